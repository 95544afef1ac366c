"""Rondo as an environment, a verifier and a plug-in of Harbor's: a trial is a rollout. Harbor imports all three by their names.

    environment: {import_path: "rondo.harbor:Environment", kwargs: {run: theirs}}
    verifier: {import_path: "rondo.harbor:Verifier"}

    harbor run --config job.yaml --plugin rondo

The run is external and has the job's tasks. RONDO_GATEWAY, RONDO_GATEWAY_KEY and RONDO_DIR say where its gateway is, as for
rondo.rollout. An agent that asks `environment.rollout.base_url` has its turns recorded, and the plug-in puts their tokens into Harbor's
results; a rollout without turns has no verdict. Needs Harbor 0.25 and Python 3.12.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from harbor.environments.base import BaseEnvironment, ExecResult
from harbor.environments.capabilities import EnvironmentCapabilities
from harbor.models.agent.rollout_detail import RolloutDetail
from harbor.models.job.plugin import BaseJobPlugin
from harbor.models.trial.paths import EnvironmentPaths
from harbor.models.verifier.result import VerifierResult
from harbor.verifier.base import BaseVerifier

from . import checkout
from .errors import Failed, GatewayError
from .harness import Rollout, Turn, rollout

#: Seconds that a command may take for which Harbor names no limit. The run's time for tools bounds it, too.
_LONG = 3600

#: The environments of this process's trials, by the trial's folder: a plug-in is told of a trial, and not of its environment.
_TRIALS: WeakValueDictionary[Path, Environment] = WeakValueDictionary()


class Environment(BaseEnvironment):  # type: ignore[misc]
    """A trial's container: the sandbox of a rollout of the run's task that has the trial's name.

    Attempts of one job at a task are members of one group, so the run's group_size is the job's n_attempts. The network is what run and
    task allow. There is one user. Outside of the workspace only /tmp and /logs can be written, and they are gone when the sandbox moves.
    """

    def __init__(self, *args: Any, run: str, **kwargs: Any) -> None:
        self.run = run
        self._started: Rollout | None = None
        super().__init__(*args, **kwargs)

    @staticmethod
    def type() -> str:
        """The name of this kind of environment."""
        return "rondo"

    @property
    def capabilities(self) -> EnvironmentCapabilities:
        """A sandbox has no network unless run and task give it one."""
        return EnvironmentCapabilities(disable_internet=True)

    def _validate_definition(self) -> None:
        """Nothing is built here: the plane checked the task when the run was opened."""

    @property
    def rollout(self) -> Rollout:
        """The trial's rollout: `base_url` and `api_key` of its model, and its sandbox."""
        if self._started is None:
            raise Failed("the environment is not started, so there is no rollout")
        return self._started

    async def start(self, force_build: bool) -> None:
        """Start the rollout: the next member of its task's group in this job."""
        job = self.trial_paths.trial_dir.resolve().parent
        group = hashlib.sha256(f"{job}\n{self.environment_name}".encode()).hexdigest()[:32]
        self._started = await asyncio.to_thread(rollout, self.run, self.environment_name, group=group)
        _TRIALS[self.trial_paths.trial_dir.resolve()] = self
        paths = EnvironmentPaths()
        await self.ensure_dirs([paths.agent_dir, paths.verifier_dir, paths.artifacts_dir])

    async def stop(self, delete: bool) -> None:
        """End the rollout; where no verifier did that, as a failure."""
        if self._started is not None:
            await asyncio.to_thread(self._started.finish, failure="Harbor's trial ended without a verifier")

    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        """Run a command in bash. RuntimeError where it takes too long, as in Harbor's Docker environment."""
        directory, values = cwd or self.task_env_config.workdir or "", self._merge_env(env) or {}
        done = await asyncio.to_thread(
            self.rollout.sandbox.exec, ["bash", "-c", command], timeout=float(timeout_sec or _LONG), dir=directory, env=values
        )
        if done.timed_out:
            raise RuntimeError(f"Command timed out after {timeout_sec or _LONG} seconds")
        return ExecResult(stdout=done.stdout, stderr=done.stderr, return_code=done.exit_code)

    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        """Copy a file of at most 4 MiB into the sandbox."""
        source = Path(source_path)
        content, mode = source.read_bytes(), source.stat().st_mode & 0o777
        await asyncio.to_thread(self.rollout.sandbox.write, str(target_path), content, mode=mode)

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        """Copy the files of a folder into the sandbox."""
        for path in sorted(Path(source_dir).rglob("*")):
            if path.is_file():
                await self.upload_file(path, f"{target_dir}/{path.relative_to(source_dir).as_posix()}")

    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        """Copy a file of at most 64 MiB out of the sandbox."""
        content = await asyncio.to_thread(self.rollout.sandbox.read_bytes, str(source_path))
        target = Path(target_path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)

    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        """Copy a folder out of the sandbox, without links that lead out of it."""
        folder = Path(target_dir)
        folder.mkdir(parents=True, exist_ok=True)
        await asyncio.to_thread(checkout.fetch, self.rollout.sandbox, str(source_dir), folder)


class Verifier(BaseVerifier):  # type: ignore[misc]
    """The task's verifier as the plane runs it: in a fresh sandbox, behind the rollout's end. The agent's sandbox never has the tests."""

    async def verify(self) -> VerifierResult:
        """Harbor's rewards: the verdict's components, and the reward. Failed where the rollout has no verdict, which is no reward of 0."""
        ended: Rollout = self.environment.rollout
        try:
            await asyncio.to_thread(ended.finish, verify=True)
        except GatewayError as refused:
            if refused.code != "no_turns":
                raise
            raise Failed(
                f"rollout {ended.id} has no verdict: the agent asked nothing of environment.rollout.base_url, so the rollout has no turns. "
                "`rondo tasks lint` says what doing nothing and a task's solution score"
            ) from None
        verdict = await asyncio.to_thread(ended.verdict)
        rewards = {**verdict.components, "reward": verdict.reward}
        self.trial_paths.reward_json_path.write_text(json.dumps(rewards) + "\n")
        return VerifierResult(rewards=rewards)


class Plugin(BaseJobPlugin):  # type: ignore[misc]
    """Puts the tokens that the plane has recorded into Harbor's results: `--plugin rondo`, or `--plugin rondo.harbor:Plugin`.

    `rollout_details` of each trial's `agent_result` are the turns that its rollout has when the agent ends, whatever the agent itself has
    put there: one entry for each training sample, whose lists all have one element for each turn. `extra` has each turn's
    `finish_reason`, `policy_version` and `version_spans`. A rollout without turns, or with one that is text only, gets none.
    `metadata.rondo_rollout` names the rollout, and token counts that the agent left out are the plane's.
    """

    async def on_job_start(self, job: Any) -> None:
        """Look at each trial when its agent has ended, also by an error or for lack of time."""
        job.on_agent_ended(self.fill)

    async def on_job_end(self, job_result: Any) -> None:
        """Nothing: each trial's result is complete when Harbor writes it."""

    async def fill(self, event: Any) -> None:
        """Fill a trial's result."""
        trial = _TRIALS.get((event.config.trials_dir / event.config.trial_name).resolve())
        context = event.result.agent_result
        if trial is None or context is None or not (turns := await asyncio.to_thread(trial.rollout.turns)):
            return
        context.metadata = {**(context.metadata or {}), "rondo_rollout": trial.rollout.id}
        if any(t.text_only for t in turns):
            context.rollout_details = None
            return
        context.rollout_details = _details(turns)
        if context.n_input_tokens is None:
            context.n_input_tokens = sum(len(t.prompt_token_ids) for t in turns)
        if context.n_output_tokens is None:
            context.n_output_tokens = sum(len(t.token_ids) for t in turns)


def _details(turns: list[Turn]) -> list[RolloutDetail]:
    """The turns of each segment, in the order in which the segments began."""
    segments: dict[int, list[Turn]] = {}
    for t in turns:
        segments.setdefault(t.segment, []).append(t)
    return [
        RolloutDetail(
            prompt_token_ids=[list(t.prompt_token_ids) for t in own],
            completion_token_ids=[list(t.token_ids) for t in own],
            logprobs=[list(t.logprobs) for t in own],
            extra={name: [getattr(t, name) for t in own] for name in ("finish_reason", "policy_version", "version_spans")},
        )
        for own in segments.values()
    ]
