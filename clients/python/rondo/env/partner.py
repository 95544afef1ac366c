"""Somebody who talks with the model and is not trained: a fixed model on an endpoint of its own, such as a simulated user."""

from __future__ import annotations

import http.client
import json
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any

__all__ = ["Partner", "PartnerError"]

#: Bytes that an answer of the endpoint may have, and that a conversation may have, as it is part of the environment's state.
MAX_ANSWER, MAX_CONVERSATION = 8 << 20, 512 << 10

#: Answers of a server that is busy, or being started: they are asked again.
_BUSY = (408, 429, 500, 502, 503, 504)

#: Seconds between two tries.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.25, 10.0


class PartnerError(Exception):
    """The partner did not answer. Raised out of `reset` or `step` it fails the rollout as a failure of the machine; it holds no key."""


class Partner:
    """A model of an endpoint that speaks OpenAI's chat completions. It hears the trained model as its user, and remembers the conversation.

    Keep `messages` in the environment's state (`save`) and set it again (`load`): another worker then continues the same conversation.
    """

    def __init__(self, url: str, model: str, system: str = "", *, key: str = "", patience: float = 300.0, **sampling: Any) -> None:
        """url: of the API, as http://127.0.0.1:9000/v1. key: of the endpoint, from the worker's surroundings.

        patience: seconds for an answer, all tries together.
        sampling: what else the request says, as temperature=0.7, max_tokens=200.
        """
        self.messages: list[dict[str, str]] = [{"role": "system", "content": system}] if system else []
        self._url, self._model, self._key = url.rstrip("/") + "/chat/completions", model, key
        self._patience, self._sampling = patience, sampling

    def answer(self, text: str) -> str:
        """Say something to the partner; what it answers. PartnerError where it does not; then nothing was said."""
        asked = [*self.messages, {"role": "user", "content": text}]
        if (size := sum(len(m["content"].encode()) for m in asked)) > MAX_CONVERSATION:
            raise PartnerError(f"the conversation has {size} bytes, at most {MAX_CONVERSATION}: end the episode earlier")
        said = self._ask({**self._sampling, "model": self._model, "messages": asked})
        self.messages = [*asked, {"role": "assistant", "content": said}]
        return said

    def _ask(self, body: Mapping[str, Any]) -> str:
        deadline, pause = time.monotonic() + self._patience, _FIRST_PAUSE
        data = json.dumps(body).encode()
        headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {self._key}"} if self._key else {})}
        while True:
            try:
                request = urllib.request.Request(self._url, data, headers)
                with urllib.request.urlopen(request, timeout=max(0.1, deadline - time.monotonic())) as response:
                    return _content(response.read(MAX_ANSWER + 1))
            except urllib.error.HTTPError as error:
                error.close()
                problem, again = f"HTTP {error.code}", error.code in _BUSY
            except (OSError, http.client.HTTPException) as error:
                problem, again = type(error).__name__, True
            if not again or time.monotonic() + pause >= deadline:
                # Neither address nor body is in the message: either may hold a secret.
                raise PartnerError(f"the partner {self._model} does not answer: {problem}")
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)


def _content(body: bytes) -> str:
    try:
        if len(body) > MAX_ANSWER:
            raise ValueError("too long")
        said = json.loads(body)["choices"][0]["message"]["content"]
    except (ValueError, LookupError, TypeError):
        said = None
    if not isinstance(said, str) or not said:
        raise PartnerError("the partner's answer is no chat completion with a text")
    return said
