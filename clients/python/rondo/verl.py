"""Rondo in the place of the agent loops of verl's V1 trainer: it trains on the batches of a feed. Needs verl 0.9.1 and TransferQueue.

    actor_rollout_ref.rollout.agent.agent_loop_manager_class=rondo.verl.AgentLoopManager
    trainer.checkpoint_callback_class=rondo.verl.CheckpointCallback
    algorithm.adv_estimator=rondo
    +rondo.run=mine +rondo.feed=trainer +rondo.dir=/srv/rondo

What is below `rondo` are arguments of rondo.Feed, and `experts: true` for the experts of each token. The estimator `rondo` keeps the
advantages of the batch; with one of verl's own the trajectories have rewards, and a batch with split rollouts is refused.

Step n of the trainer is step n of the feed, whatever of verl's dataset it asks to be answered: its prompts only start the steps. So
`trainer_mode` is sync (rollouts are under way while it trains all the same, as far as the run's `staleness` allows), and it has no
validation: leave that to an evaluation of the plane's.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import numpy as np
import transfer_queue as tq
from verl.trainer.ppo import checkpoint_callback
from verl.trainer.ppo.core_algos import register_adv_est
from verl.utils.checkpoint.checkpoint_manager import find_latest_ckpt_path
from verl.utils.tensordict_utils import get_non_tensor_data, list_of_dict_to_tensordict

from .adapters.verl import keep_advantages, to_verl_trajectories
from .batch import Batch
from .errors import RondoError
from .sync import Feed

__all__ = ["AgentLoopManager", "CheckpointCallback"]

log = logging.getLogger("rondo")

#: The name of keep_advantages as an estimator of verl's.
ESTIMATOR = "rondo"

register_adv_est(ESTIMATOR)(keep_advantages)


class AgentLoopManager:
    """What verl's trainer asks for trajectories."""

    def __init__(self, config: Any) -> None:
        options = dict(config.rondo)
        self._config, self._experts = config, bool(options.pop("experts", False))
        mode = config.trainer.v1.trainer_mode
        if mode != "sync":
            raise RondoError(f"trainer.v1.trainer_mode is {mode}: use sync; the run's staleness says how far ahead of it rollouts are")
        step, folder = _resumed(config.trainer)
        self._feed = Feed(after=step, **options)
        if folder and config.trainer.get("checkpoint_callback_class") == f"{__name__}.{CheckpointCallback.__name__}":
            self.saved(step, folder)  # a trainer that was killed may not have come to it
        self._thread = ThreadPoolExecutor(1, "rondo")
        self._last: Future[None] | None = None

    @classmethod
    def create(cls, config: Any, **_: Any) -> AgentLoopManager:
        """As verl makes it. Of what it gives only the configuration counts: the plane has servers, teachers and verifiers of its own."""
        return cls(config)

    def generate_sequences(self, prompts: Any) -> None:
        """Let the trainer have the batch of its step, in TransferQueue, when there is one. It does not wait."""
        if get_non_tensor_data(prompts, "validate", False):
            raise RondoError("validation is not Rondo's: set trainer.val_before_train=False and trainer.test_freq=-1")
        if self._last is not None and self._last.done():
            self._last.result()  # what went wrong with the step before
        self._last = self._thread.submit(self._answer, list(prompts["uid"]), int(get_non_tensor_data(prompts, "global_steps", 0)))

    def _answer(self, uids: Sequence[str], step: int) -> None:
        try:
            self._put(uids, step, self._next(step))
        except BaseException:
            log.exception("step %d of verl's trainer has no batch", step)
            tq.kv_batch_put(keys=uids, partition_id="train", tags=[{"status": "failure"} for _ in uids])
            raise

    def _next(self, step: int) -> Batch:
        batch = next(self._feed, None)
        if batch is None:
            raise RondoError(f"run {self._feed.asynchronous.run} is closed")
        asked = self._config.actor_rollout_ref.rollout.temperature
        if batch.step != step or batch.ranks != 1 or np.any(batch["temperature"] != np.float32(asked)):
            raise RondoError(
                f"{batch}: want step {step}, one rank (verl shares out itself), and the temperature {asked}, with which it trains"
            )
        self._feed.consumed(batch)
        return batch

    def _put(self, uids: Sequence[str], step: int, batch: Batch) -> None:
        """The samples as trajectories of the prompts, shared out among these, and then the prompts as finished."""
        scores: Literal["advantages", "rewards"] = "advantages" if self._config.algorithm.adv_estimator == ESTIMATOR else "rewards"
        fields = to_verl_trajectories(batch, scores=scores, experts=self._experts)
        indexes, versions = batch["sample_index"].tolist(), list(batch.token_versions.rows())
        keys, tags = [], []
        for i, field in enumerate(fields):
            keys.append(f"{uids[batch.groups[i] % len(uids)]}_{batch.rollouts[i]}_{indexes[i]}")
            known = versions[i][versions[i] >= 0] if np.any(versions[i] >= 0) else batch["dispatch_version"][i : i + 1]
            sizes = {"prompt_len": len(field["prompts"]), "response_len": len(field["responses"]), "seq_len": len(field["input_ids"])}
            steps = {"global_steps": step, "min_global_steps": int(known.min()), "max_global_steps": int(known.max())}
            tags.append({"status": "success", **sizes, **steps})
        tq.kv_batch_put(keys=keys, partition_id="train", fields=list_of_dict_to_tensordict(fields), tags=tags)
        tq.kv_batch_put(keys=uids, partition_id="train", tags=[{"status": "finished"} for _ in uids])

    def saved(self, step: int, folder: str | Path) -> None:
        """Publish the weights of a checkpoint of verl's as the version of its step, and state that the trainer resumes there."""
        weights = Path(folder) / "actor/huggingface"
        if not any(weights.glob("*.safetensors")):
            raise RondoError(f"{weights} has no weights: let actor_rollout_ref.actor.checkpoint.save_contents have hf_model")
        self._feed.publish_weights(weights, version=step, through_step=step)
        self._feed.checkpointed(step)


class CheckpointCallback(checkpoint_callback.CheckpointCallback):  # type: ignore[misc]
    """Publishes the weights of each checkpoint, so that inference servers load them, and tells the feed where the trainer resumes."""

    def on_save(self, trainer: Any, global_step: int, checkpoint_dir: str, async_save: bool = False, **more: Any) -> None:
        """Called by verl when a checkpoint is saved."""
        if async_save:
            raise RondoError("a checkpoint that is still being written cannot be published: set checkpoint.async_save=False")
        trainer.agent_loop_manager.saved(global_step, checkpoint_dir)


def _resumed(trainer: Any) -> tuple[int, str]:
    """The step and the folder of the checkpoint that verl resumes from: 0 and none where it begins."""
    folder = ""
    if trainer.resume_mode == "resume_path":
        folder = str(trainer.resume_from_path)
    elif trainer.resume_mode == "auto":
        folder = find_latest_ckpt_path(os.path.abspath(trainer.default_local_dir)) or ""
    return int(folder.rpartition("global_step_")[2] or 0), folder
