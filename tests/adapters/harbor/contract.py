"""A job of Harbor's runs on a task pack in sandboxes of a live plane; the agent's model follows a script, everything else is real."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import urllib.request
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[1])]

from harbor.agents.base import BaseAgent  # noqa: E402
from harbor.job import Job  # noqa: E402
from harbor.models.job.config import JobConfig  # noqa: E402
from mended import ROOT, binary, turns  # noqa: E402
from tests.scripted import MEND, gateway, model, open_run  # noqa: E402


class Mender(BaseAgent):
    """An agent of Harbor's that runs what the rollout's model says."""

    @staticmethod
    def name() -> str:
        return "mender"

    def version(self) -> str:
        return "1"

    async def setup(self, environment: Any) -> None:
        await environment.upload_file(__file__, "/tmp/tool/contract.py")
        await environment.upload_dir(Path(__file__).parent, "/tmp/tool/all")
        told = await environment.exec("cmp contract.py all/contract.py && echo $WHO", cwd="/tmp/tool", env={"WHO": "agent"})
        assert (told.stdout, told.return_code) == ("agent\n", 0), told

    async def run(self, instruction: str, environment: Any, context: Any) -> None:
        r, messages = environment.rollout, [{"role": "user", "content": instruction}]
        headers = {"Authorization": f"Bearer {r.api_key}", "Content-Type": "application/json"}
        while True:
            body = json.dumps({"model": r.model, "messages": messages}).encode()
            request = urllib.request.Request(r.base_url + "/chat/completions", body, headers)
            with await asyncio.to_thread(urllib.request.urlopen, request, timeout=120) as answer:
                said = json.load(answer)["choices"][0]["message"]["content"]
            if said == "Done.":
                break
            done = await environment.exec(said, timeout_sec=60)
            messages += [{"role": "assistant", "content": said}, {"role": "user", "content": f"exit code {done.return_code}"}]
        await environment.exec("echo worked >/logs/agent/notes.txt")


async def job(folder: Path, run: str, *tasks: str) -> tuple[Any, dict[str, Any]]:
    """What a job's trials came to, by task."""
    config = {
        "job_name": run,
        "jobs_dir": str(folder),
        "n_concurrent_trials": 1,
        "quiet": True,
        "environment": {"import_path": "rondo.harbor:Environment", "kwargs": {"run": run}},
        "verifier": {"import_path": "rondo.harbor:Verifier"},
        "agents": [{"import_path": "contract:Mender"}],
        "datasets": [{"path": str(ROOT / "demo/packs/sample"), "task_names": [f"*{task}" for task in tasks]}],
    }
    made = await Job.create(JobConfig.model_validate(config))
    result = await made.run()
    trials = [json.loads(path.read_text()) for path in (folder / run).glob("*/result.json")]
    return result, {trial["task_name"].split("/")[-1]: trial for trial in trials}


def main() -> None:
    with tempfile.TemporaryDirectory() as name, gateway(binary(Path(name)), Path(name)) as (plane, url):
        os.environ |= {"RONDO_DIR": str(plane.dir), "RONDO_GATEWAY": url, "HARBOR_TELEMETRY": "0"}
        # The script mends shell-slugify alone, so another task of the pack must not pass.
        with model(lambda messages: MEND if len(messages) == 1 else "Done.", exact=True) as served:
            open_run(plane, "harbor", served)
            result, trials = asyncio.run(job(Path(name) / "jobs", "harbor", "shell-slugify", "shell-leapday"))
        print({task: (trial["verifier_result"], trial["exception_info"]) for task, trial in trials.items()})
        rewards = {task: trial["verifier_result"]["rewards"]["reward"] for task, trial in trials.items()}
        assert rewards.pop("shell-slugify") == 1 and list(rewards.values()) == [0], trials
        assert result.n_total_trials == 2 and result.stats.n_errored_trials == 0, result
        notes = list((Path(name) / "jobs").rglob("agent/notes.txt"))
        assert len(notes) == 2 and notes[0].read_text() == "worked\n", notes
        print(f"Harbor's job: 2 trials with their rewards, {turns(plane, 'harbor')} turns with their tokens")


if __name__ == "__main__":
    main()
