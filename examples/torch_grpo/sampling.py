"""Samples answers for many requests at once."""

import copy
import queue
import threading
from dataclasses import dataclass, field

import torch
from vocabulary import END, IDS

AT_ONCE = 64  # requests


@dataclass
class Request:
    """What to continue, and how; once `done` is set also the answer and the version of the weights that gave it."""

    prompt: list
    temperature: float
    max_tokens: int
    seed: int
    tokens: list = field(default_factory=list)
    logprobs: list = field(default_factory=list)
    version: int = 0
    done: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self):
        self.random = torch.Generator().manual_seed(self.seed)

    @property
    def ended(self):
        """Whether the model has said that its answer is over."""
        return self.tokens[-1:] == [IDS[END]]

    @property
    def open(self):
        """Whether there is more to sample."""
        return not self.ended and len(self.tokens) < self.max_tokens

    def take(self, logits):
        """Sample one token, and keep its log-probability under the distribution that it was sampled from."""
        if self.temperature == 0:
            token, logprob = int(logits.argmax()), 0.0
        else:
            logprobs = (logits / self.temperature).log_softmax(-1)
            token = int(torch.multinomial(logprobs.exp(), 1, generator=self.random))
            logprob = float(logprobs[token])
        self.tokens.append(token)
        self.logprobs.append(logprob)


@torch.no_grad()
def sample(model, requests):
    """Sample the answers of some requests together."""
    while going := [r for r in requests if r.open]:
        texts = [r.prompt + r.tokens for r in going]
        padded = torch.zeros(len(texts), max(map(len, texts)), dtype=torch.long)
        for row, text in zip(padded, texts, strict=True):
            row[: len(text)] = torch.tensor(text)
        logits = model(padded)
        for i, r in enumerate(going):
            r.take(logits[i, len(texts[i]) - 1])


class Sampler:
    """A thread that samples for all others, with the weights that were loaded last."""

    def __init__(self, model):
        self.model, self.version = model, 0
        self._waiting, self._loading = queue.Queue(), threading.Lock()
        threading.Thread(target=self._work, daemon=True).start()

    def load(self, version, weights):
        """Take up weights between two rounds: one version samples a whole answer. Weights of another model change nothing."""
        loaded = copy.deepcopy(self.model)
        loaded.load_state_dict(weights)
        with self._loading:
            self.model, self.version = loaded, version

    def complete(self, request):
        """Wait until a request is answered."""
        self._waiting.put(request)
        request.done.wait()

    def _work(self):
        while True:
            requests = [self._waiting.get()]
            while not self._waiting.empty() and len(requests) < AT_ONCE:
                requests.append(self._waiting.get())
            with self._loading:
                sample(self.model, requests)
                for request in requests:
                    request.version = self.version
                    request.done.set()
