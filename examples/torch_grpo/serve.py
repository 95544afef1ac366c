"""Serves the transformer as an OpenAI-compatible endpoint, and takes up every version of its weights that is published.

    python3 serve.py --dir /srv/rondo --policy reverser --seed 1 --port 8018

Answers carry what training needs: the ids of the prompt's and the answer's tokens, the log-probability of each sampled token, and
the version of the weights. Until weights are published it serves the initial ones of the seed, version 0.
"""

import argparse
import http.server
import json
import sys
import threading

import rondo
import safetensors
import torch

from model import CONTEXT, Transformer
from sampling import Request, Sampler
from vocabulary import WORDS, parse, prompt

MAX_BODY = 1 << 20  # bytes


class Refused(Exception):
    """A request that makes no sense, or that names another model."""

    def __init__(self, status, reason):
        super().__init__(reason)
        self.status = status


def read(body):
    """The sampler's part of a chat request."""
    try:
        request = Request(
            prompt=prompt(body["messages"], body.get("tools") or []),
            temperature=float(body.get("temperature", 1)),
            max_tokens=int(body.get("max_tokens", 16)),
            seed=int(body.get("seed", 0)),
        )
    except (AttributeError, KeyError, TypeError, ValueError, RuntimeError) as error:
        raise Refused(400, f"not a chat request: {error!r}") from None
    if not 0 <= request.temperature <= 100 or request.max_tokens < 1:
        raise Refused(400, f"temperature {request.temperature} and max_tokens {request.max_tokens}: want 0 to 100, and at least 1")
    if len(request.prompt) >= CONTEXT:
        raise Refused(400, f"a prompt of {len(request.prompt)} tokens leaves no room for an answer (context {CONTEXT})")
    request.max_tokens = min(request.max_tokens, CONTEXT - len(request.prompt))
    return request


def answer(model, request):
    """A chat completion, with token ids and log-probabilities where vLLM has them."""
    content, call = parse(request.tokens)
    message = {"role": "assistant", "content": content}
    if call:
        message["tool_calls"] = [{"id": "call_0", "type": "function", "function": call}]
    reason = "tool_calls" if call else "stop" if request.ended else "length"
    logprobs = [{"token": WORDS[token], "logprob": logprob} for token, logprob in zip(request.tokens, request.logprobs)]
    choice = {"index": 0, "message": message, "finish_reason": reason, "token_ids": request.tokens, "logprobs": {"content": logprobs}}
    usage = {"prompt_tokens": len(request.prompt), "completion_tokens": len(request.tokens)}
    return {
        "id": "chatcmpl-0", "object": "chat.completion", "model": model, "weight_version": request.version,
        "prompt_token_ids": request.prompt, "choices": [choice],
        "usage": {**usage, "total_tokens": sum(usage.values())},
    }  # fmt: skip


class Server(http.server.ThreadingHTTPServer):
    """The endpoint of one policy."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, port, policy, sampler):
        super().__init__(("127.0.0.1", port), Handler)
        self.policy, self.sampler = policy, sampler


class Handler(http.server.BaseHTTPRequestHandler):
    """Reads one request after the other of a connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self):
        """Answer a chat request."""
        try:
            length = int(self.headers.get("Content-Length", -1))
            if self.path != "/v1/chat/completions" or not 0 <= length <= MAX_BODY:
                self.close_connection = True  # the body stays unread
                raise Refused(404 if 0 <= length <= MAX_BODY else 413, f"want POST /v1/chat/completions, at most {MAX_BODY} bytes")
            body = json.loads(self.rfile.read(length))
            request = read(body)
            if body.get("model") != self.server.policy:
                raise Refused(404, f"this server serves {self.server.policy}")
            self.server.sampler.complete(request)
            self._send(200, answer(self.server.policy, request))
        except Refused as error:
            self._send(error.status, {"error": {"message": str(error)}})
        except ValueError as error:
            self._send(400, {"error": {"message": f"not JSON: {error}"}})

    def do_GET(self):
        """Tell the model and its version."""
        sampler = self.server.sampler
        if self.path != "/v1/models":
            return self._send(404, {"error": {"message": "there are /v1/chat/completions and /v1/models"}})
        self._send(200, {"object": "list", "data": [{"id": self.server.policy, "object": "model", "weight_version": sampler.version}]})

    def _send(self, status, data):
        text = json.dumps(data).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        """Say nothing of each request."""


def take_up(sampler, version):
    """Load a version; whether it is one of this model."""
    try:
        sampler.load(version.version, version.load("torch"))
    except (RuntimeError, safetensors.SafetensorError) as error:
        print(f"version {version.version} of {version.policy} is not for this model: {error}", file=sys.stderr, flush=True)
        return False
    print(f"version {version.version} of {version.policy} is active", flush=True)
    return True


def main(args):
    """Serve until killed."""
    sampler = Sampler(Transformer(args.seed))
    server = Server(args.port, args.policy, sampler)
    with rondo.Client(args.dir, source="torch-server", timeout=None) as client:
        first = client.published(args.policy)
        if first and take_up(sampler, first):
            client.activated(args.policy, first.version)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        print(f"serving {args.policy}, version {sampler.version}, on http://127.0.0.1:{args.port}/v1", flush=True)
        for version in client.versions(args.policy, after=first.version if first else 0):
            if take_up(sampler, version):
                client.activated(args.policy, version.version)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dir", default=".rondo", help="where `rondo up` runs")
    parser.add_argument("--policy", default="reverser", help="name of the weights, and of the model that is asked for")
    parser.add_argument("--seed", type=int, default=1, help="of the initial weights; the trainer's is the run's")
    parser.add_argument("--port", type=int, default=8018)
    torch.set_num_threads(1)  # a model of this size gains nothing from more
    main(parser.parse_args())
