"""OpenRLHF: the steps of its replay buffer take the Experience, and its PolicyLoss over the batch is the reference's.

openrlhf.models imports deepspeed and flash-attn, which need a GPU's compiler. Only its loss is loaded, from its own file; the name
deepspeed, which models/utils.py asks for and the loss never uses, is an empty module.
"""

from __future__ import annotations

import sys
import types
from importlib.util import find_spec
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from reference import agree, batch, loss, rows, terms

root = Path(find_spec("openrlhf").submodule_search_locations[0])  # type: ignore[union-attr,index]
for name in ("openrlhf.models", "openrlhf.trainer", "openrlhf.utils"):
    bare = types.ModuleType(name)
    bare.__path__ = [str(root / name.split(".")[1])]
    sys.modules[name] = bare
sys.modules["deepspeed"] = types.ModuleType("deepspeed")

import table
import torch
from openrlhf.models.loss import PolicyLoss
from openrlhf.trainer.ppo_utils.experience import (
    Experience,
    make_experience_batch,
    remove_padding_in_sequences,
    split_experience_batch,
)

from rondo.adapters.openrlhf import to_openrlhf

samples = rows()
experience = Experience(**to_openrlhf(batch(samples), pad_id=0))
# What its replay buffer does when it takes a batch and gives one; the buffer itself asks for a GPU when it is made.
taken = make_experience_batch(remove_padding_in_sequences(split_experience_batch(experience)))
assert taken.rewards.tolist() == [row["reward"] for row in samples]

logits = table.parameter()
told = table.of_next(logits, taken.sequences)
mask = taken.action_mask
found = PolicyLoss(0.2, 0.2)(told, taken.rollout_log_probs.double(), taken.advantages.double(), action_mask=mask)
found = found[0] if isinstance(found, tuple) else found
found.backward()
assert isinstance(logits.grad, torch.Tensor)
agree("openrlhf 0.11.2", found.item(), logits.grad, loss(terms(samples)))
