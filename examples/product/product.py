"""A product whose users teach its model: completions that they accept or reject, and sessions with an agent.

    python3 product.py [RUN]

Everything about Rondo is in the class Product. PLANE is the directory of `rondo up`, where its gateway's key lies, GATEWAY the address of
that gateway, and MODEL the inference server itself, which answers the users who are left out.
"""

from __future__ import annotations

import json
import os
import sys
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from users import CHATTERS, CODERS, User

import rondo

PLANE = os.environ.get("PLANE", "/srv/rondo")
GATEWAY = os.environ.get("GATEWAY", "http://127.0.0.1:8790")
MODEL = os.environ.get("MODEL", "http://127.0.0.1:8000/v1")

TASK = "shell-slugify"  # the task of the run whose workspace the agent works in


def post(url: str, body: dict[str, Any]) -> Any:
    """Ask a server; what it answers."""
    headers = {"Content-Type": "application/json"}
    if url.startswith(GATEWAY + "/"):  # nobody else is shown the key
        headers["Authorization"] = "Bearer " + Path(PLANE, "gateway.key").read_text().strip()
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=600) as response:
        return json.load(response)


def chat(base: str, messages: list[dict[str, str]]) -> str:
    """A chat completion of any server that speaks OpenAI's protocol: the inference server, or a rollout of the gateway."""
    answer = post(base + "/chat/completions", {"model": "assistant", "messages": messages})
    return str(answer["choices"][0]["message"]["content"])


@dataclass
class Answer:
    """What a user sees; the rollout is "" where nothing is recorded."""

    text: str
    rollout: str = ""


class Product:
    """The product's backend: whoever is not taken by the run is served all the same, and Rondo never hears of him."""

    def __init__(self, client: rondo.Client, run: str) -> None:
        self.client, self.run = client, run

    def takes(self, user: User) -> bool:
        """By consent, and by a hash of the session: all of a session is taken, or nothing."""
        return self.client.takes(self.run, user.session, consent=user.consents)

    def complete(self, user: User, prompt: str) -> Answer:
        """One completion. Through the gateway it is a rollout of one turn, which the user's verdict will score."""
        messages = [{"role": "user", "content": prompt}]
        if not self.takes(user):
            return Answer(chat(MODEL, messages))
        start = {"run": self.run, "task": TASK, "group": user.session, "session": user.session, "consent": user.consents}
        rollout = post(GATEWAY + "/rollouts", start)
        text = chat(rollout["base_url"], messages)
        post(f"{GATEWAY}/rollouts/{rollout['id']}/finish", {})  # without a reward: it comes from the user
        return Answer(text, rollout["rollout"])

    def judge(self, answer: Answer, accepted: bool) -> None:
        """The user has taken the completion over, or thrown it away."""
        if answer.rollout:
            self.client.record_feedback(self.run, answer.rollout, "accept" if accepted else "reject")

    def work(self, user: User, said: list[str]) -> Answer:
        """One step of an agent's session: Rondo's own agent works on the query, in a sandbox with the task's tools."""
        if not self.takes(user):
            return Answer(chat(MODEL, [{"role": "user", "content": line} for line in said]))
        wish = "\n\n".join(said)  # what was said before belongs to the wish
        query = self.client.submit_query(self.run, wish, task=TASK, session=user.session, consent=user.consents)
        rollout, text = self.client.answer(self.run, query, timeout=600)
        return Answer(text, rollout)

    def hear(self, answer: Answer, follow_up: str) -> bool:
        """What the user says next tells how good the answer was. True when he wants something else."""
        content = follow_up.lower().startswith(("thanks", "thank you", "great"))
        if answer.rollout:  # a correction is worth something: the agent was close enough to be corrected
            self.client.record_feedback(self.run, answer.rollout, "follow_up", reward=1 if content else 0.25, text=follow_up)
        return not content


def main(run: str) -> None:
    """Serve the users of users.py, one after the other, and tell what became of each."""
    with rondo.Client(PLANE, source="product") as client:
        product = Product(client, run)
        for user in CHATTERS:
            answer = product.complete(user, user.says[0])
            product.judge(answer, user.accepts)
            print(
                f"{user.session}: completion {'accepted' if user.accepts else 'rejected'}, rollout {answer.rollout or 'none'}", flush=True
            )
        for user in CODERS:
            for i, follow_up in enumerate(user.says[1:], 1):
                answer = product.work(user, user.says[:i])
                more = product.hear(answer, follow_up)
                print(f"{user.session}: step {i} {'corrected' if more else 'done'}, rollout {answer.rollout or 'none'}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "product")
