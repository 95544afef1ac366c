"""The harnesses of examples/harnesses, in their own packages, mend a task: the model follows a script, everything else is real."""

from __future__ import annotations

import importlib
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "clients/python"), str(ROOT / "examples/harnesses"), str(ROOT / "tests/adapters")]
# mini-swe-agent asks on a terminal for a configuration where it finds none, and litellm fetches prices.
os.environ |= {"MSWEA_CONFIGURED": "true", "MSWEA_SILENT_STARTUP": "1", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}

from mended import binary

from tests.scripted import MEND, gateway, model, open_run

#: What the model says to a conversation by the number of its own answers in it: a call, or the last word.
SCRIPTS: dict[str, list[str | tuple[str, dict[str, Any]]]] = {
    "mini_swe_agent": [("bash", {"command": MEND}), ("bash", {"command": "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"})],
    "openai_agents": [("bash", {"command": MEND}), "It is mended."],
    "smol_agents": [("bash", {"command": MEND}), ("final_answer", {"answer": "It is mended."})],
}


def main() -> None:
    with tempfile.TemporaryDirectory() as name, gateway(binary(Path(name)), Path(name)) as (plane, url):
        os.environ |= {"RONDO_DIR": str(plane.dir), "RONDO_GATEWAY": url}
        for harness, script in SCRIPTS.items():
            with model(lambda messages, script=script: script[sum(m["role"] == "assistant" for m in messages)]) as served:
                run = harness.replace("_", "-")
                open_run(plane, run, served)
                verdict = importlib.import_module(harness).work(run, "shell-slugify").verdict()
                assert verdict.reward == 1, (harness, verdict)
                print(f"{harness}: the verifier gives {verdict.reward:g}")


if __name__ == "__main__":
    main()
