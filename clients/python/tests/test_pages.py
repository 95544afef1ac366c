"""The guide's pages for users of other libraries lead to a first trained step.

tests/adapters has the packages of these libraries: what the pages show of them is held to them there.
"""

from __future__ import annotations

import importlib.util
import json
import random
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from .conftest import ROOT, missing
from .model import serving
from .pages import PAGES, TRAINER, files, followed, words

#: In place of a taskset's tasks and rewards.
TASKS = """
import json

with open("tasks.jsonl", "w") as out:
    for n in range(8):
        out.write(json.dumps({"name": f"sum-{n}", "instruction": f"What is {n} + 2?", "answer": str(n + 2)}) + "\\n")
"""
REWARD = """
from rondo import env

env.serve("sums", reward=lambda rollout: float(rollout.answer == rollout.data["answer"]))
"""

#: In place of prime-rl's trainer: it waits for the files of the first step, and leaves weights as that does.
PRIME_RL = """
import time
from pathlib import Path

import msgspec
import numpy
from safetensors.numpy import save_file

batch, weights = Path("out/rollouts/step_1/rank_0.bin"), Path("out/broadcasts/step_1")
while not batch.exists():
    time.sleep(0.1)
parts = msgspec.msgpack.decode(batch.read_bytes())
for ids, mask, advantages, logprobs, positions, lengths, temperatures, names, _ in parts:
    assert len(ids) == len(mask) == len(advantages) == len(logprobs) == len(positions) == len(temperatures) == len(names) == sum(lengths)
assert any(any(part[1]) for part in parts)
weights.mkdir(parents=True)
save_file({"w": numpy.zeros(3, numpy.float32)}, weights / "model.safetensors")
(weights / "STABLE").touch()
"""

#: In place of trainers that are no file of their page.
TRAINERS = {"from-prime-rl": PRIME_RL, "from-verl": TRAINER.format(run="sums")}

#: What stands in for a page's files, by the package that they need.
INSTEAD = {
    "from-harbor": {},
    "from-prime-rl": {"verifiers": {"tasks.py": TASKS, "reward.py": REWARD}},
    "from-trl": {"trl": {"train.py": TRAINER.format(run="sums")}},
    "from-verl": {},
}


def answers(messages: Sequence[Mapping[str, Any]]) -> Any:
    """A model that adds, and is wrong now and then; and that mends the task of `rondo tasks init`, or does not."""
    if asked := re.search(r"What is (\d+) \+ (\d+)", str(messages[-1]["content"])):
        return str(int(asked[1]) + int(asked[2]) + random.choice((0, 0, 1)))
    if messages[-1]["role"] == "tool":
        return "Done."
    mend = "sed -i 's/split(\" \")/split()/' count.py" if random.random() < 0.5 else "cat count.py"
    return [{"id": "c0", "name": "run_terminal_cmd", "arguments": json.dumps({"command": mend})}]


def test_all_pages_are_followed() -> None:
    assert sorted(INSTEAD) == PAGES


#: What the right column of the tables has beside keys of a run file.
NO_KEYS = re.compile(
    r"rondo |to_trl_samples$|instruction$|agent\.timeout_sec$|preset$|mean_centred$|maxrl$|rae$|grpo$|max_rl$|trl_async$|AsyncGRPOTrainer$"
)


@pytest.mark.parametrize("page", PAGES)
def test_words_of_a_page_are_keys_of_a_run_file(page: str) -> None:
    known = set(re.findall(r"(\w+):", (ROOT / "examples/run.yaml").read_text()))
    unknown = [word for word in words(page, 1) if not NO_KEYS.match(word) and not set(word.split(".")) <= known]
    assert not unknown


@pytest.mark.parametrize("page", PAGES)
def test_a_page_leads_to_a_trained_step(
    page: str, binary: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    absent = [text for package, text in INSTEAD[page].items() if importlib.util.find_spec(package) is None]
    lacking = {name: text for given in absent for name, text in given.items()}
    assert set(lacking) <= set(files(page))
    with serving(answers) as url, followed(page, tmp_path, binary, url, lacking, TRAINERS.get(page, "")) as told:
        assert told["rewards"] and 0 <= told["rewards"][0] <= 1, told
        if page == "from-harbor":
            monkeypatch.chdir(tmp_path)
            the_notebook_reads_a_run("mine", capsys)


def the_notebook_reads_a_run(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The cells of examples/read_run.ipynb run one after the other, beside the run's plane."""
    if importlib.util.find_spec("polars") is None:
        missing("polars is not installed")
    cells = json.loads((ROOT / "examples/read_run.ipynb").read_text())["cells"]
    code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    found: dict[str, Any] = {}
    capsys.readouterr()
    exec(code.replace('"demo-1"', repr(run)), found)
    said = capsys.readouterr().out
    assert found["steps"]["step"].to_list()[0] == 1 and found["batch"].step == 1, said
    assert set(found["rollouts"]["task"]) == {"word-count"} and found["rollout"].verdict.reward in (0, 0.25, 0.5, 0.75, 1), said
    assert len(found["tokens"]) and found["tokens"]["probability"].is_between(0, 1).all() and "turn 0, token" in said, said
