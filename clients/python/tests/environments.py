"""Environments and rewards for the tests, which may run in a process of their own: python -m tests.environments DIR RUN NAME FILE."""

from __future__ import annotations

import os
import random
import signal
import sys
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

from rondo import env


class Guess:
    """A game with a state: another worker goes on from it."""

    #: Where each step is written down, and the step behind which the process kills itself.
    journal: Path | None = None
    die = 0

    def reset(self, task: env.Task) -> str:
        self.number, self.tries = int(task.data["number"]), 0
        self.note("reset")
        return "Guess a number from 0 to 15."

    def save(self) -> Any:
        return {"number": self.number, "tries": self.tries}

    def load(self, task: env.Task, state: Any) -> None:
        self.number, self.tries = state["number"], state["tries"]
        self.note("load")

    def step(self, action: env.Action) -> env.Answer:
        guess, self.tries = int(action.content), self.tries + 1
        self.note(f"step {self.tries}")
        if guess == self.number:
            return env.Step("Right.", reward=1.0, done=True, components={"tries": self.tries})
        return "Higher." if guess < self.number else "Lower."

    def note(self, what: str) -> None:
        if self.journal is None:
            return
        with open(self.journal, "a") as out:
            out.write(f"{os.getpid()} {what}\n")
        if what == f"step {self.die}":
            os.kill(os.getpid(), signal.SIGKILL)


def countdown(task: env.Task) -> Generator[str, env.Action, float]:
    """The same as a generator: another worker gives it the recorded turns again."""
    for left in range(int(task.data["from"]), 0, -1):
        action = yield f"Say {left}."
        Guess.note(Guess(), f"said {action.content}")
        if action.content != str(left):
            return 0.0
    return 1.0


class TicTacToe:
    """A game of two. Another worker goes on from its state."""

    def reset(self, task: env.Task) -> env.Next:
        self.board = "." * 9
        Guess.note(Guess(), "reset")
        return env.Next("x", self.shown("x"))

    def shown(self, role: str) -> str:
        return f"You play {role}. Say a free field, 0 to 8. {self.board}"

    def save(self) -> Any:
        return self.board

    def load(self, task: env.Task, state: Any) -> None:
        self.board = state
        Guess.note(Guess(), "load")

    def step(self, action: env.Action) -> env.Next | env.End:
        role, other = action.role, "o" if action.role == "x" else "x"
        at = int(action.content)
        Guess.note(Guess(), f"step {9 - self.board.count('.') + 1}")
        if self.board[at] != ".":
            return env.End({role: -1.0, other: 0.0}, {role: {"moves": 0.0}})
        self.board = self.board[:at] + role + self.board[at + 1 :]
        if any(all(self.board[i] == role for i in line) for line in LINES):
            return env.End({role: 1.0, other: -1.0}, {role: {"moves": float(self.board.count(role))}})
        return env.Next(other, self.shown(other)) if "." in self.board else env.End()


LINES = [(0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6)]


def tictactoe(task: env.Task) -> Generator[env.Next, env.Action, env.End]:
    """The same as a generator: another worker gives it the recorded turns again."""
    game = TicTacToe()
    action = yield game.reset(task)
    while isinstance(then := game.step(action), env.Next):
        action = yield then
    return then


def any_free(messages: Sequence[Any]) -> str:
    """A model that plays tic-tac-toe by chance."""
    board = str(messages[-1]["content"]).split()[-1]
    return str(random.choice([i for i, field in enumerate(board) if field == "."]))


def bisect(messages: Sequence[Any]) -> str:
    """A model that plays Guess well."""
    low, high, guess = 0, 15, 7
    for message in messages:
        if message["role"] == "assistant":
            guess = int(message["content"])
        elif message["content"] == "Higher.":
            low = guess + 1
        elif message["content"] == "Lower.":
            high = guess - 1
    return str((low + high) // 2)


def main() -> None:
    """A worker of its own process."""
    dir, run, name, file, die = sys.argv[1:]
    Guess.journal, Guess.die = Path(file), int(die)
    env.serve(run, environment={"guess": Guess, "countdown": countdown, "game": TicTacToe, "generated": tictactoe}[name], dir=dir, slots=1)


if __name__ == "__main__":
    main()
