"""Jobs of Harbor's run on a task pack in sandboxes of a live plane; the agent's model follows a script, everything else is real.

The agent asks through Harbor's own client, whose collector of tokens loses the turn that is cut by length: Harbor's results must have
the tokens as the server sampled them.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any, get_args

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[1])]
os.environ |= {"HARBOR_TELEMETRY": "0", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}

import yaml
from harbor.agents.base import BaseAgent
from harbor.cli.job_plugins import attach_job_plugins, finalize_job_plugins, plugin_configs_from_cli
from harbor.job import Job
from harbor.llms.base import OutputLengthExceededError
from harbor.llms.chat import Chat
from harbor.llms.lite_llm import LiteLLM
from harbor.models.agent.context import AgentContext
from harbor.models.job.config import JobConfig
from harbor.utils.trajectory_validator import TrajectoryValidator
from mended import ROOT, binary
from pydantic import BaseModel

from tests.pages import files, words
from tests.scripted import MEND, Cut, gateway, model, open_run

#: What the model says after so many messages of a conversation. Its second turn is cut.
SAYS = {1: "cat lib/shorten.sh", 3: Cut(MEND[:30]), 5: MEND, 7: "Done."}

#: The job's tasks. The script mends the first one alone, so the others must not pass.
TASKS = ("shell-slugify", "shell-leapday", "shell-expenses")


class Mender(BaseAgent):
    """An agent of Harbor's that runs what the rollout's model says, and then starts a second conversation about it."""

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
        r = environment.rollout
        llm = LiteLLM(f"openai/{r.model}", api_base=r.base_url, collect_rollout_details=True, api_key=r.api_key)
        chat, said = Chat(llm), instruction
        while True:
            try:
                says = (await chat.chat(said)).content
            except OutputLengthExceededError as cut:
                chat.messages.extend([{"role": "user", "content": said}, {"role": "assistant", "content": cut.truncated_response}])
                said = "Your answer was cut. Say it again."
                continue
            if says == "Done.":
                break
            done = await environment.exec(says, timeout_sec=60)
            said = f"exit code {done.return_code}"
        await Chat(llm).chat(f"Sum up what you did about: {instruction}")
        context.rollout_details = chat.rollout_details
        await environment.exec("echo worked >/logs/agent/notes.txt")


class Stumbler(Mender):
    """An agent that fails behind its first turn, and says nothing of its tokens."""

    async def run(self, instruction: str, environment: Any, context: Any) -> None:
        r = environment.rollout
        await Chat(LiteLLM(f"openai/{r.model}", api_base=r.base_url, api_key=r.api_key)).chat(instruction)
        raise RuntimeError("stumbled")


async def job(folder: Path, run: str, agent: dict[str, str], *tasks: str) -> tuple[Any, dict[str, Any]]:
    """What a job's trials came to, by task."""
    config = {
        "job_name": next(iter(agent.values())).split(":")[-1],
        "jobs_dir": str(folder),
        "n_concurrent_trials": 2,
        "quiet": True,
        "environment": {"import_path": "rondo.harbor:Environment", "kwargs": {"run": run}},
        "verifier": {"import_path": "rondo.harbor:Verifier"},
        "agents": [agent],
        "datasets": [{"path": str(ROOT / "demo/packs/sample"), "task_names": [f"*{task}" for task in tasks]}],
    }
    made = await Job.create(JobConfig.model_validate(config))
    declared = tomllib.loads((ROOT / "clients/python/pyproject.toml").read_text())["project"]["entry-points"]["harbor.plugins"]
    plugins = await attach_job_plugins(made, plugin_configs_from_cli([declared["rondo"]], None))
    result = await made.run()
    await finalize_job_plugins(plugins, result)
    trials = [json.loads(path.read_text()) for path in (folder / made.config.job_name).glob("*/result.json")]
    return result, {trial["task_name"].split("/")[-1]: trial for trial in trials}


def sampled(answers: list[dict[str, Any]], task: str) -> list[tuple[list[int], list[int], list[float], str]]:
    """What the server sampled for a task, in order: prompt, ids, log-probabilities, and how each turn ended."""
    quoted = json.dumps((ROOT / f"demo/packs/sample/{task}/instruction.md").read_text().strip())[1:-1]
    return [
        (a["prompt_token_ids"], c["token_ids"], [t["logprob"] for t in c["logprobs"]["content"]], c["finish_reason"])
        for a in answers
        if quoted in bytes(a["prompt_token_ids"]).decode()
        for c in a["choices"]
    ]


def aligned(trial: dict[str, Any], answers: list[dict[str, Any]], task: str) -> int:
    """How many turns a trial's details have: each has what the server sampled for it, the one that was cut, too."""
    want = sampled(answers, task)
    assert [reason for *_, reason in want] == ["stop", "length", "stop", "stop", "stop"], (task, want)
    result, rows = trial["agent_result"], []
    for d in result["rollout_details"]:
        # Harbor's own collector has no extra; then the turns alone are compared.
        reasons = d.get("extra", {"finish_reason": [""] * len(d["logprobs"])})["finish_reason"]
        rows.append(list(zip(d["prompt_token_ids"], d["completion_token_ids"], d["logprobs"], reasons, strict=True)))
    assert [len(own) for own in rows] == [4, 1], (task, [len(own) for own in rows])
    assert rows == [want[:4], want[4:]], (task, rows, want)
    assert result["n_output_tokens"] == sum(len(ids) for _, ids, *_ in want), (task, result["n_output_tokens"])
    return len(want)


def documents(folder: Path, trials: dict[str, Any]) -> None:
    """The trials as ATIF documents: Harbor finds them valid, and they have the tokens of its results."""
    found = {}
    for file in folder.rglob("*.json"):
        validator = TrajectoryValidator()
        assert validator.validate(file), (file.name, validator.get_errors())
        document = json.loads(file.read_text())
        assert document["schema_version"] == "ATIF-v1.8", document["schema_version"]
        own = [step["metrics"] for step in document["steps"] if "metrics" in step]
        rollout = document["extra"].get("rollout", document["trajectory_id"])
        found[f"{document['session_id']}.{rollout}", len(own)] = [
            [m[name] for m in own] for name in ("prompt_token_ids", "completion_token_ids", "logprobs")
        ]
    for trial in trials.values():
        result = trial["agent_result"]
        for d in result["rollout_details"]:
            lists = [d[name] for name in ("prompt_token_ids", "completion_token_ids", "logprobs")]
            assert found.pop((result["metadata"]["rondo_rollout"], len(lists[0]))) == lists, result["metadata"]
    assert not found, found.keys()


def is_field(model: Any, word: str) -> bool:
    """Whether a configuration of Harbor's has a field, a.b of the models that it is made of."""
    name, _, rest = word.partition(".")
    if not (isinstance(model, type) and issubclass(model, BaseModel)) or name not in model.model_fields:
        return False
    told = model.model_fields[name].annotation
    return not rest or any(is_field(m, rest) for m in (told, *get_args(told)))


def the_page() -> None:
    """What docs/guide/from-harbor.md shows of Harbor is Harbor's: its jobs, and its words."""
    shown = files("from-harbor")
    for name in ("job.yaml", "job-on-a-plane.yaml"):
        JobConfig.model_validate(yaml.safe_load(shown[name]))
    named = [
        word for word in words("from-harbor") if not word.endswith((".json", ".txt")) and word not in ("rollout_details", "harbor view")
    ]
    assert len(named) > 6 and "rollout_details" in AgentContext.model_fields, named
    assert all(is_field(JobConfig, word) for word in named), [word for word in named if not is_field(JobConfig, word)]
    assert not is_field(JobConfig, "agents.no_field")


def main() -> None:
    the_page()
    with tempfile.TemporaryDirectory() as name, gateway(binary(Path(name)), Path(name)) as (plane, url):
        os.environ |= {"RONDO_DIR": str(plane.dir), "RONDO_GATEWAY": url}
        answers: list[dict[str, Any]] = []
        with model(lambda messages: SAYS[len(messages)], exact=True, answers=answers) as served:
            open_run(plane, "harbor", served)
            result, trials = asyncio.run(job(Path(name) / "jobs", "harbor", {"import_path": "contract:Mender"}, *TASKS))
            for task, trial in trials.items():
                print(task, trial["verifier_result"], (trial["exception_info"] or {}).get("exception_traceback"))
            rewards = {task: trial["verifier_result"]["rewards"]["reward"] for task, trial in trials.items()}
            assert rewards == {task: float(task == TASKS[0]) for task in TASKS}, rewards
            assert result.n_total_trials == 3 and result.stats.n_errored_trials == 0, result
            notes = list((Path(name) / "jobs").rglob("agent/notes.txt"))
            assert len(notes) == 3 and notes[0].read_text() == "worked\n", notes
            turns = sum(aligned(trial, answers, task) for task, trial in trials.items())
            plane.command("trajectories", "export", "harbor", "--format", "atif", "--out", str(plane.dir / "atif"))
            documents(plane.dir / "atif", trials)
            del answers[:]
            _, failed = asyncio.run(job(Path(name) / "jobs", "harbor", {"import_path": "contract:Stumbler"}, TASKS[0]))
            ended, [(prompt, ids, logprobs, _)] = failed[TASKS[0]], sampled(answers, TASKS[0])
            assert ended["exception_info"]["exception_message"] == "stumbled" and ended["verifier_result"] is None, ended
            [detail] = ended["agent_result"]["rollout_details"]
            assert [detail[n] for n in ("prompt_token_ids", "completion_token_ids", "logprobs")] == [[prompt], [ids], [logprobs]], detail
            _, idle = asyncio.run(job(Path(name) / "jobs", "harbor", {"name": "nop"}, TASKS[0]))
            ended = idle[TASKS[0]]
            assert ended["verifier_result"] is None and ended["agent_result"]["rollout_details"] is None, ended
            assert "asked nothing of environment.rollout.base_url" in ended["exception_info"]["exception_message"], ended["exception_info"]
        print(f"Harbor's job: 3 trials with their rewards, {turns} turns with their tokens, as ATIF, too; of a failed one, too")


if __name__ == "__main__":
    main()
