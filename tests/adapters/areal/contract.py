"""AReaL: its PPO loss over the tensors is the reference's, and the adapter shifts as its actor does.

Importing areal starts ray, aiohttp and a GPU's tools. So only the file of its losses is run, utils/functional/functional.py; the two
names that this file imports for annotations alone are empty classes.
"""

from __future__ import annotations

import runpy
import sys
import types
from importlib.util import find_spec
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import table
import torch
from reference import agree, batch, loss, rows, terms

from rondo.adapters.areal import to_areal, to_areal_rollouts

root = Path(find_spec("areal").submodule_search_locations[0])  # type: ignore[union-attr,index]
names = {"areal": "", "areal.api": "", "areal.utils": ""}
names |= {"areal.api.cli_args": "RejectionSamplingConfig", "areal.utils.data": "KLEstimator"}
for name, only in names.items():
    sys.modules[name] = types.ModuleType(name)
    if only:
        setattr(sys.modules[name], only, type(only, (), {}))
functions = runpy.run_path(str(root / "utils/functional/functional.py"))

samples = rows()
given = to_areal(batch(samples), pad_id=0)
logits = table.parameter()
of_next = table.of_next(logits, given["input_ids"])
told = torch.cat([of_next, torch.zeros(len(of_next), 1)], 1)
found, _ = functions["ppo_actor_loss_fn"](
    logprobs=told, proximal_logprobs=given["prox_logp"].double(), old_logprobs=given["logprobs"].double(),
    advantages=given["advantages"].double(), eps_clip=0.2, loss_mask=given["loss_mask"].bool(),
)  # fmt: skip
found.backward()
agree("areal 1.0.4", found.item(), logits.grad, loss(terms(samples)))

# compute_advantages rolls masks and log-probabilities by one place to the left: so do we.
whole = batch(rows(split=False))
before, after = to_areal_rollouts(whole), to_areal(whole)
assert torch.equal(torch.roll(before["loss_mask"], -1, 1).float(), after["loss_mask"])
assert torch.equal(torch.roll(before["logprobs"], -1, 1), after["logprobs"])
assert "advantages" not in before, "compute_advantages would write them anew"
try:
    to_areal_rollouts(batch(samples))
    raise AssertionError("a split rollout went to AReaL's own advantages as two")
except ValueError as error:
    print(f"refused: {error}")
