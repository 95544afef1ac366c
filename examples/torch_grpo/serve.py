"""Serves the transformer as an OpenAI-compatible endpoint, and takes up versions of its weights as SGLang does.

    python3 serve.py --policy reverser --seed 1 --port 8018
    rondo weights fetch reverser --to served --follow --engine sglang --engine-url http://127.0.0.1:8018

Answers carry what training needs: the ids of the prompt's and the answer's tokens, the log-probability of each sampled token, and
the version of the weights. It knows nothing of Rondo: the side-car (the second line) lays each version into a folder and lets the
server load it. Until then it serves the initial weights of the seed, version 0.
"""

import argparse
import http.server
import json
import pathlib

import safetensors
import torch
from model import CONTEXT, Transformer
from safetensors.torch import load_file
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
    logprobs = [{"token": WORDS[token], "logprob": logprob} for token, logprob in zip(request.tokens, request.logprobs, strict=True)]
    choice = {"index": 0, "message": message, "finish_reason": reason, "token_ids": request.tokens, "logprobs": {"content": logprobs}}
    usage = {"prompt_tokens": len(request.prompt), "completion_tokens": len(request.tokens)}
    return {
        "id": "chatcmpl-0", "object": "chat.completion", "model": model, "weight_version": request.version,
        "prompt_token_ids": request.prompt, "choices": [choice],
        "usage": {**usage, "total_tokens": sum(usage.values())},
    }  # fmt: skip


def load(sampler, body):
    """Take up the version in a folder. It becomes the label when its weights are those that are sampled with, and not before."""
    try:
        folder, version = pathlib.Path(body["model_path"]), int(body["weight_version"])
        tensors = {}
        for file in sorted(folder.glob("*.safetensors")):
            tensors.update(load_file(file))
        sampler.load(version, tensors)
    except (KeyError, TypeError, ValueError, OSError, RuntimeError, safetensors.SafetensorError) as error:
        raise Refused(400, f"not a version of this model: {error!r:.300}") from None
    print(f"version {version} is active", flush=True)
    return {"success": True, "message": ""}


class Server(http.server.ThreadingHTTPServer):
    """The endpoint of one policy."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, port, policy, sampler):
        super().__init__(("127.0.0.1", port), Handler)
        self.policy, self.sampler = policy, sampler

    def chat(self, body):
        """Answer a chat request."""
        request = read(body)
        if body.get("model") != self.policy:
            raise Refused(404, f"this server serves {self.policy}")
        self.sampler.complete(request)
        return answer(self.policy, request)

    def models(self):
        """Tell the model and its version."""
        return {"object": "list", "data": [{"id": self.policy, "object": "model", "weight_version": self.sampler.version}]}


# SGLang pauses, loads and goes on by three requests. The sampler loads between two rounds, so it needs no pause.
ROUTES = {
    ("POST", "/v1/chat/completions"): lambda server, body: server.chat(body),
    ("GET", "/v1/models"): lambda server, _: server.models(),
    ("GET", "/model_info"): lambda server, _: {"weight_version": str(server.sampler.version)},
    ("POST", "/pause_generation"): lambda *_: {},
    ("POST", "/update_weights_from_disk"): lambda server, body: load(server.sampler, body),
    ("POST", "/continue_generation"): lambda *_: {},
}


class Handler(http.server.BaseHTTPRequestHandler):
    """Reads one request after the other of a connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self):
        """Answer a request with a body."""
        try:
            length = int(self.headers.get("Content-Length", -1))
            if not 0 <= length <= MAX_BODY:
                self.close_connection = True  # the body stays unread
                raise Refused(413, f"want at most {MAX_BODY} bytes")
            body = json.loads(self.rfile.read(length))
            self._send(200, self._route()(self.server, body))
        except Refused as error:
            self._send(error.status, {"success": False, "message": str(error), "error": {"message": str(error)}})
        except ValueError as error:
            self._send(400, {"error": {"message": f"not JSON: {error}"}})

    def do_GET(self):
        """Answer a request without one."""
        try:
            self._send(200, self._route()(self.server, None))
        except Refused as error:
            self._send(error.status, {"error": {"message": str(error)}})

    def _route(self):
        if route := ROUTES.get((self.command, self.path)):
            return route
        raise Refused(404, "there are " + ", ".join(" ".join(r) for r in ROUTES))

    def _send(self, status, data):
        text = json.dumps(data).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        """Say nothing of each request."""


def main(args):
    """Serve until killed."""
    server = Server(args.port, args.policy, Sampler(Transformer(args.seed)))
    print(f"serving {args.policy} on http://127.0.0.1:{args.port}/v1", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policy", default="reverser", help="name of the weights, and of the model that is asked for")
    parser.add_argument("--seed", type=int, default=1, help="of the initial weights; the trainer's is the run's")
    parser.add_argument("--port", type=int, default=8018)
    torch.set_num_threads(1)  # a model of this size gains nothing from more
    main(parser.parse_args())
