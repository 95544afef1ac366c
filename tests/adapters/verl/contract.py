"""verl: DataProto takes the tensors, its trainer keeps the advantages, and its loss over them is the reference's."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import table
import torch
from reference import agree, batch, loss, rows, terms
from verl import DataProto
from verl.trainer.ppo.core_algos import AdvantageEstimator, compute_policy_loss_vanilla, register_adv_est
from verl.trainer.ppo.ray_trainer import compute_advantage
from verl.workers.config import ActorConfig

from rondo.adapters.verl import keep_advantages, to_verl

samples = rows()
given = DataProto.from_single_dict(to_verl(batch(samples), pad_id=0, scores="advantages"))
assert len(given) == len(samples) and given.batch["responses"].dtype == torch.int64, "the batch has tensors"
assert given.non_tensor_batch["uid"].tolist() == [row["group_id"] for row in samples]

# What its trainer does before the loss: scores become rewards, and the estimator turns them into advantages.
register_adv_est("rondo")(keep_advantages)
wanted = given.batch["advantages"].clone()
given.batch["token_level_rewards"] = given.batch["rm_scores"]
given = compute_advantage(given, "rondo")
assert torch.equal(given.batch["advantages"], wanted), "the estimator keeps the advantages"

logits = table.parameter()
responses = given.batch["responses"].shape[1]
told = table.of_next(logits, given.batch["input_ids"])[:, -responses:]
settings = ActorConfig(
    strategy="fsdp", rollout_n=1, ppo_micro_batch_size_per_gpu=1, clip_ratio=0.2, clip_ratio_low=0.2, clip_ratio_high=0.2, clip_ratio_c=1e9
)
old, advantages = given.batch["rollout_log_probs"].double(), given.batch["advantages"].double()
found = compute_policy_loss_vanilla(old, told, advantages, given.batch["response_mask"], "token-mean", settings)[0]
found.backward()
agree("verl 0.9.1", found.item(), logits.grad, loss(terms(samples)))

# Why a split rollout is refused where verl computes advantages: its grpo counts it once for each sample.
try:
    to_verl(batch(samples), scores="rewards")
    raise AssertionError("a split rollout went to verl's own advantages as two")
except ValueError as error:
    print(f"refused: {error}")
whole = DataProto.from_single_dict(to_verl(batch(rows(split=False)), scores="rewards"))
whole.batch["token_level_rewards"] = whole.batch["rm_scores"]
whole = compute_advantage(whole, AdvantageEstimator.GRPO)
rewards = torch.tensor([1.0, 0.0, 0.25])
first = whole.batch["advantages"][:3].gather(1, whole.batch["response_mask"][:3].argmax(1, keepdim=True)).squeeze(1)
torch.testing.assert_close(first, (rewards - rewards.mean()) / (rewards.std() + 1e-6))

for part in ("page_contract.py", "queue_contract.py", "v1_contract.py"):
    subprocess.run([sys.executable, Path(__file__).with_name(part)], check=True)
