"""TRL: its GRPOTrainer's loss, and its asynchronous trainer's dataset, collator and loss, on what the adapter gives."""

from __future__ import annotations

import dataclasses
import inspect
import os
import queue
import random
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
from built import binary
from datasets import Dataset
from reference import agree, batch, loss, rows, terms
from transformers import Qwen3Config, Qwen3ForCausalLM
from transformers.utils import ModelOutput
from trl import GRPOConfig, GRPOTrainer
from trl.experimental.async_grpo import AsyncGRPOConfig
from trl.experimental.async_grpo import async_grpo_trainer as asynchronous
from trl.experimental.async_grpo.async_rollout_worker import RolloutSample

from rondo.adapters.trl import to_trl, to_trl_samples
from tests.model import serving
from tests.pages import files, followed, words


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


def adds(messages: Any) -> str:
    """A model that answers "What is 3 + 2?", and is wrong now and then."""
    return str(int(str(messages[-1]["content"]).split()[2]) + random.choice((2, 3)))


def the_page() -> None:
    """docs/guide/from-trl.md leads to a step of TRL's own trainer over a feed's batch; only the model is small. Its words are TRL's."""
    settings = {field.name for kind in (GRPOConfig, AsyncGRPOConfig) for field in dataclasses.fields(kind)}
    known = {*settings, *inspect.signature(GRPOTrainer.__init__).parameters, "prompt", "AsyncGRPOConfig", "RolloutSample"}
    named = words("from-trl")
    assert set(named) <= known, set(named) - known
    os.environ["HF_HUB_OFFLINE"] = "1"  # the model lies in a folder of its name
    with tempfile.TemporaryDirectory() as name, serving(adds) as url:
        folder = Path(name, "reader")
        small = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "head_dim": 8}
        Qwen3ForCausalLM(Qwen3Config(vocab_size=512, num_key_value_heads=1, **small)).save_pretrained(folder / "Qwen/Qwen3-0.6B")
        tokenizer().save_pretrained(folder / "Qwen/Qwen3-0.6B")
        # A machine without a GPU has to be told so.
        train = files("from-trl")["train.py"].replace("save_steps=1)", "save_steps=1, use_cpu=True, bf16=False)")
        with followed("from-trl", folder, binary(Path(name)), url, {"train.py": train}) as told:
            assert list((folder / "out").glob("checkpoint-*/model.safetensors")), told
    print(f"trl {trl.__version__}: docs/guide/from-trl.md leads to version {told['policy_version']}")


if __name__ == "__main__":
    synchronous()
    asynchronous_trainer()
    if trl.__version__ == "1.16.0":  # the page's
        the_page()
