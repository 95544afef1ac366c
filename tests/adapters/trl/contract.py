"""TRL: its GRPOTrainer's loss, and its asynchronous trainer's dataset, collator and loss, on what the adapter gives."""

from __future__ import annotations

import queue
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import torch
import trl
from accelerate import Accelerator
from bigram import Bigram, tokenizer
from datasets import Dataset
from reference import agree, batch, loss, rows, terms
from transformers.utils import ModelOutput
from trl import GRPOConfig, GRPOTrainer
from trl.experimental.async_grpo import async_grpo_trainer as asynchronous
from trl.experimental.async_grpo.async_rollout_worker import RolloutSample

from rondo.adapters.trl import to_trl, to_trl_samples


def synchronous() -> None:
    """A whole GRPOTrainer, whose loss over the batch is the reference's, for tokens of several turns and of a rollout that was split."""
    given = to_trl(batch(rows()), pad_id=0)
    for kind in ("dapo", "bnpo"):
        model = Bigram.make()
        with tempfile.TemporaryDirectory() as folder:
            settings = GRPOConfig(
                folder, use_cpu=True, bf16=False, beta=0, epsilon=0.2, loss_type=kind, report_to=[], temperature=1.0,
                per_device_train_batch_size=2, num_generations=2, gradient_accumulation_steps=1, steps_per_generation=1,
            )  # fmt: skip
            trainer = GRPOTrainer(model, lambda completions, **_: [0.0] * len(completions), settings,
                                  train_dataset=Dataset.from_dict({"prompt": ["a"]}), processing_class=tokenizer())  # fmt: skip
            trainer.current_gradient_accumulation_steps = 1
            model.train()
            found = trainer.compute_loss(model, dict(given))
            found.backward()
        agree(f"trl {trl.__version__} GRPOTrainer, {kind}", found.item(), model.table.grad, loss(terms(rows())))


class Answer:
    """The model as the asynchronous trainer's fused head answers: for labels as they are (TRL up to 1.15), or shifted by the collator."""

    def __init__(self, table: torch.nn.Parameter) -> None:
        self.table = table

    def __call__(self, input_ids: torch.Tensor, labels: Any = None, shift_labels: Any = None, **_: Any) -> ModelOutput:
        places = input_ids if labels is None else input_ids[:, :-1]
        wanted = shift_labels if labels is None else labels[:, 1:]
        told = self.table[places].log_softmax(-1).gather(-1, wanted.clamp(min=0).unsqueeze(-1)).squeeze(-1)
        return ModelOutput(log_probs=told, entropy=torch.zeros_like(told))


def asynchronous_trainer() -> None:
    """The worker's queue, the dataset, the planner and the collator are TRL's own; so is the loss, over a model without attention."""
    waiting: queue.Queue[RolloutSample] = queue.Queue()
    for fields in to_trl_samples(batch(rows())):
        waiting.put(RolloutSample(**fields))
    count, metrics = waiting.qsize(), defaultdict(list)
    dataset = asynchronous.RolloutQueueDataset(waiting, lambda: 3, lambda _: None, 60, metrics)
    planner = asynchronous.FixedCountBatcher(dataset, 1, count)
    collator = asynchronous.DataCollatorForRollout(0, 1)
    given = collator([next(iter(planner))])
    assert metrics["sample/staleness_max"] == [0.0] * count, "model_version is the version at dispatch"

    trainer = object.__new__(asynchronous.AsyncGRPOTrainer)
    trainer.accelerator, trainer.aux_loss_enabled = Accelerator(cpu=True), False
    trainer.epsilon_low = trainer.epsilon_high = 0.2
    trainer.current_gradient_accumulation_steps, trainer._metrics = 1, {"train": defaultdict(list)}
    for counted in ("forward_tokens", "trained_tokens", "seq_len_weighted", "samples", "forward_s"):
        setattr(trainer, f"_step_{counted}", 0.0)
    table = torch.nn.Parameter(Bigram.make().table.detach().clone())
    found = trainer.compute_loss(Answer(table), given)
    found.backward()
    agree(f"trl {trl.__version__} AsyncGRPOTrainer", found.item(), table.grad, loss(terms(rows())))


if __name__ == "__main__":
    synchronous()
    asynchronous_trainer()
