"""verl's V1 trainer over rondo.verl: its task runner, its loop, its replay buffer and its loss; only the actor is one table of logits.

It is killed at each place where it could lose a batch or train on one twice. In the end its table must be the one that a plain loop over
the feed's batches comes to.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, NamedTuple

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import numpy as np
import reference

import rondo

#: Steps of the trainer, its learning rate, and where it is killed: a step, and what it is about to do.
STEPS, RATE = 4, 50.0
KILLS = ("1 train", "2 save", "3 train", "3 publish", "4 publish")


def trajectories(rng: np.random.Generator, split: bool) -> list[rondo.Trajectory]:
    """Two rollouts of a group, with a tool's answer in the middle; the second may have two samples."""
    made = []
    for member in range(2):
        messages = []
        for segment in range(2 if split and member else 1):
            tokens = rng.integers(2, reference.VOCABULARY, rng.integers(9, 14)).tolist()
            told = np.concatenate([[0], reference.logprobs(reference.table(), tokens)]) + rng.uniform(-0.5, 0.5, len(tokens))
            for role, a, b in (("user", 0, 2 + segment), ("assistant", 2 + segment, 5), ("tool", 5, 6), ("assistant", 6, len(tokens))):
                logprobs = np.minimum(told[a:b], -1e-3).tolist() if role == "assistant" else None
                messages.append(rondo.Message(role, role, tokens[a:b], logprobs, segment=segment))
        made.append(rondo.Trajectory(messages, reward=float(member)))
    return made


class Case(NamedTuple):
    """Where TransferQueue's fields lie, verl's estimator of advantages, how many prompts it asks for in a step, steps, and kills."""

    backend: str
    estimator: str
    prompts: int
    steps: int
    kills: int

    @property
    def name(self) -> str:
        return f"{self.backend}-{self.estimator}"


#: A batch has two groups, however many prompts verl asks for.
CASES = (Case("Rondo", "rondo", 2, STEPS, len(KILLS)), Case("SimpleStorage", "rondo", 3, STEPS, 0), Case("SimpleStorage", "grpo", 1, 1, 0))


def train(folder: Path, run: str, case: Case, steps: int) -> None:
    """verl's own task runner, in this process."""
    import ray
    import torch
    from hydra import compose, initialize_config_module
    from omegaconf import OmegaConf
    from safetensors.torch import load_file, save_file
    from tensordict import TensorDict
    from torchdata.stateful_dataloader import StatefulDataLoader
    from verl.trainer.main_ppo import TaskRunnerV1
    from verl.trainer.ppo.v1.trainer_base import TRAINER_REGISTRY
    from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
    from verl.utils import tensordict_utils as tu
    from verl.utils.dataset.rl_dataset import collate_fn
    from verl.utils.transferqueue_utils import tqbridge
    from verl.workers.config import ActorConfig
    from verl.workers.utils.losses import ppo_loss

    from rondo.verl import AgentLoopManager

    def die(where: str) -> None:
        """Be killed here, once."""
        mark = folder / where.replace(" ", "-")
        if where in KILLS and case.kills and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    clips = {"clip_ratio": 0.2, "clip_ratio_low": 0.2, "clip_ratio_high": 0.2, "clip_ratio_c": 1e9}
    settings = ActorConfig(strategy="fsdp", rollout_n=1, ppo_micro_batch_size_per_gpu=1, **clips)

    class Actor:
        """In the place of the group of GPU workers."""

        _dispatch_info: ClassVar[dict[str, Any]] = {"actor": [0]}

        def __init__(self) -> None:
            self.table = torch.nn.Parameter(torch.from_numpy(reference.table()))

        def update_actor(self, batch: Any) -> dict[str, Any]:
            die(f"{trainer().global_steps} train")
            return {"metrics": update(self, batch)}

        def save_checkpoint(self, path: str, *_: Any, **__: Any) -> None:
            (made := Path(path) / "huggingface").mkdir(parents=True, exist_ok=True)
            die(f"{trainer().global_steps} save")
            save_file({"table": self.table.detach()}, made / "model.safetensors")

        def load_checkpoint(self, local_path: str, **_: Any) -> None:
            self.table.data = load_file(Path(local_path) / "huggingface/model.safetensors")["table"]

    @tqbridge()
    def update(actor: Actor, data: TensorDict) -> dict[str, Any]:
        """A step over the batch, which verl's bridge has taken from TransferQueue."""
        tu.assign_non_tensor(data, dp_size=1, batch_num_tokens=int(data["loss_mask"].values().sum()))
        said = []
        for ids in data["input_ids"].unbind():
            of_next = actor.table[ids[:-1]].log_softmax(-1).gather(-1, ids[1:, None]).squeeze(-1)
            said.append(torch.cat([of_next, of_next.new_zeros(1)]))
        loss, _ = ppo_loss(settings, {"log_probs": torch.nested.as_nested_tensor(said, layout=torch.jagged)}, data)
        loss.backward()
        np.savez(
            folder / f"{case.name}-{trainer().global_steps}.npz", loss=loss.item(), gradient=actor.table.grad.numpy(), samples=len(data)
        )
        actor.table.data -= RATE * actor.table.grad
        actor.table.grad = None
        return {"mfu": [0.0], "loss": [loss.item()]}

    running: list[PPOTrainerSync] = []

    def trainer() -> PPOTrainerSync:
        return running[0]

    class Trainer(PPOTrainerSync):
        """The synchronous trainer, which here starts no GPU workers and no servers."""

        def _setup(self) -> None:
            running.append(self)
            self.tokenizer = SimpleNamespace(eos_token_id=1, pad_token_id=0)
            prompts = [{"raw_prompt": [{"role": "user", "content": "Anything."}], "index": i} for i in range(8)]
            self.train_dataloader = StatefulDataLoader(prompts, batch_size=case.prompts, drop_last=True, collate_fn=collate_fn)
            self.train_dataloader_it, self.steps_per_epoch, self.total_training_steps = None, 100, steps
            self._init_dump_executor()
            self.actor_rollout_wg = Actor()
            self.resource_pool_manager = SimpleNamespace(get_n_gpus=lambda: 1)
            self.llm_server_manager = SimpleNamespace(get_client=lambda: None)
            self.reward_loop_manager = SimpleNamespace(reward_loop_worker_handles=[])
            self.checkpoint_manager = SimpleNamespace(update_weights=lambda _: None, sleep_replicas=lambda: None)
            self._load_checkpoint()

    saved = AgentLoopManager.saved

    def publish(self: AgentLoopManager, step: int, at: Any) -> None:
        die(f"{step} publish")
        saved(self, step, at)

    AgentLoopManager.saved = publish  # type: ignore[method-assign]
    TRAINER_REGISTRY["sync"] = Trainer
    with initialize_config_module("verl.trainer.config", version_base=None):
        config = compose(
            "ppo_trainer",
            [
                *glue(run, os.environ["RONDO_DIR"]),
                *(f"{name}={value}" for name, value in SETTINGS.items()),
                f"algorithm.adv_estimator={case.estimator}",
                f"data.train_batch_size={case.prompts}",
                f"trainer.default_local_dir={folder / case.name}",
                f"transfer_queue.backend.storage_backend={case.backend}",
                f"+transfer_queue.backend.Rondo.dir={os.environ['RONDO_DIR']}",
            ],
        )
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    TaskRunnerV1.__ray_metadata__.modified_class().run(config)
    refuses(lambda: AgentLoopManager.create(OmegaConf.merge(config, {"trainer": {"v1": {"trainer_mode": "colocate_async"}}})), "use sync")
    refuses(lambda: trainer().agent_loop_manager.generate_sequences({"uid": ["u"], "validate": True}), "val_before_train=False")
    np.save(folder / f"{case.name}.npy", trainer().actor_rollout_wg.table.detach().numpy())


def refuses(work: Callable[[], Any], why: str) -> None:
    """It is refused, and the reason says what to do."""
    try:
        work()
    except rondo.RondoError as error:
        assert why in str(error), error
    else:
        raise AssertionError(f"not refused: {why}")


def glue(run: str, plane: str) -> list[str]:
    """The settings of the guide, for another run and plane."""
    told = (HERE.parents[2] / "docs/guide/trainer-frameworks.md").read_text().partition("## verl's V1 trainer")[2].split("```")[1]
    lines = told.removeprefix("text").split()
    assert len(lines) <= 20 and "+rondo.run=mine" in lines and "+rondo.dir=/srv/rondo" in lines, lines
    return [line.replace("=mine", f"={run}").replace("/srv/rondo", plane) for line in lines]


#: Old log-probabilities are the sampler's, as in the reference. Batches with split rollouts have five samples: verl fills them up to six.
SETTINGS = {
    "algorithm.rollout_correction.bypass_mode": True,
    "actor_rollout_ref.rollout.n": 1,
    "actor_rollout_ref.actor.ppo_mini_batch_size": 2,
    "trainer.logger": "[console]",
    "transfer_queue.backend.SimpleStorage.num_data_storage_units": 1,
}


def plain(run: str, plane: Any, found: Path, case: Case) -> np.ndarray:
    """The table that a loop over the feed's batches comes to. Each of its steps is compared with verl's."""
    table = reference.table()
    reference.table = lambda: table
    with rondo.Feed(run, "trainer", dir=plane.dir, observe=True) as feed:
        for step in range(1, case.steps + 1):
            batch = next(feed)
            columns = {"tokens": batch.tokens, "loss_mask": batch.loss_mask, "sampler_logprobs": batch.sampler_logprobs}
            columns["advantages"] = batch.advantages
            samples: list[dict[str, Any]] = [
                {name: column.row(i) for name, column in columns.items()} | {"temperature": 1.0} for i in range(len(batch))
            ]
            if case.estimator == "grpo":  # rewards are 0 and 1, and verl divides by their deviation
                for row, reward in zip(samples, batch.rewards, strict=True):
                    row["advantages"] = row["loss_mask"] * (reward - 0.5) / (0.5**0.5 + 1e-6)
            wanted = reference.loss(reference.terms(samples))
            seen = np.load(found / f"{case.name}-{step}.npz")
            assert (seen["samples"], len(batch)) == ((4, 4) if case.estimator == "grpo" else (6, 5)), (seen["samples"], len(batch))
            reference.agree(f"verl's V1 trainer, {case.name}, step {step}", float(seen["loss"]), seen["gradient"], wanted)
            table = table - RATE * wanted[1]
    return table


def main() -> None:
    from mended import binary

    from tests.conftest import Plane

    first = reference.table
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        plane = Plane(binary(folder), folder / "plane")
        plane.start()
        try:
            variables = {**os.environ, "RONDO_DIR": str(plane.dir), "RAY_USAGE_STATS_ENABLED": "0"}
            variables["VERL_USE_EXTERNAL_MODULES"] = "rondo.transfer_queue"
            for number, case in enumerate(CASES):
                reference.table = first
                rng = np.random.default_rng(5)
                with rondo.Client(plane.dir, wait=60) as client:
                    run = plane.open_run(client)
                    for group in range(2 * case.steps):
                        made = trajectories(rng, split=group % 2 == 1 and case.estimator != "grpo")
                        client.publish_group(run, group=f"g{group}", task="mend", trajectories=made)
                    killed = 0
                    command = [sys.executable, __file__, name, run, str(number)]
                    while code := subprocess.run([*command, str(case.steps)], env=variables, check=False, timeout=300).returncode:
                        assert code == -signal.SIGKILL, f"the trainer failed with {code}"
                        killed += 1
                    assert killed == case.kills, killed
                    published = client.published(f"policy-{run}")
                    assert published is not None and published.version == case.steps, published
                wanted = plain(run, plane, folder, case)
                np.testing.assert_allclose(np.load(folder / f"{case.name}.npy"), wanted, rtol=1e-4, atol=1e-4)
                print(f"{case.name}: {case.steps} steps, killed {killed} times, every batch counted once")
                print(plane.command("audit", run).splitlines()[-1])
            plane.command("run", "close", run)
            ended = subprocess.run([*command, str(case.steps + 1)], env=variables, check=False, capture_output=True, text=True, timeout=300)
            assert ended.returncode and f"run {run} is closed" in ended.stderr, ended.stderr
            print("a trainer of a closed run ends with an error")
        finally:
            plane.stop()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        train(Path(sys.argv[1]), sys.argv[2], CASES[int(sys.argv[3])], int(sys.argv[4]))
    else:
        main()
