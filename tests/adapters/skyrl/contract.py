"""SkyRL: its training batch takes the tensors, its ppo loss over them is the reference's, and its advantages need step-wise rewards."""

from __future__ import annotations

import sys
import typing
from pathlib import Path

import typing_extensions

if sys.version_info < (3, 12):  # its pydantic models want this one, and it imports the other
    typing.TypedDict = typing_extensions.TypedDict  # type: ignore[assignment]

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import table
from reference import agree, batch, loss, rows, terms
from skyrl.backends.skyrl_train.training_batch import TrainingInputBatch
from skyrl.backends.skyrl_train.utils.ppo_utils import ppo_policy_loss
from skyrl.train.config import AlgorithmConfig

from rondo.adapters.skyrl import to_skyrl, to_skyrl_generator

samples = rows()
given = TrainingInputBatch(to_skyrl(batch(samples), pad_id=0))
assert given.batch_size == len(samples)
width = given["loss_mask"].shape[1]
logits = table.parameter()
told = table.of_next(logits, given["sequences"])[:, -width:]
settings = AlgorithmConfig()
settings.policy_loss_type, settings.eps_clip_low, settings.eps_clip_high = "regular", 0.2, 0.2
mask, old = given["loss_mask"].double(), given["rollout_logprobs"].double()
found, _ = ppo_policy_loss(told, old, given["advantages"].double(), settings, mask, old)
found.backward()
agree("skyrl 0.3.0", found.item(), logits.grad, loss(terms(samples), mean=False))

try:
    to_skyrl_generator(batch(samples))
    raise AssertionError("a split rollout went to SkyRL's own advantages as two")
except ValueError as error:
    print(f"refused: {error}")
made = to_skyrl_generator(batch(samples), step_wise=True)
assert [t.instance_id for t in made["trajectory_ids"]] == [row["group_id"] for row in samples]
assert made["is_last_step"] == [True, True, True, False, True]
