"""Batches as other trainers expect them: one module for each, pure functions, no dependency on the trainer.

Functions whose trainer takes tensors give torch tensors on the CPU; the others give lists and numpy arrays, as their trainers' wires want
them. `tests/adapters` in the repository holds each to the trainer's own package: its structs, collators and losses take what is given
here, and loss and gradient are those of a plain reference. Versions are the ones of these tests.

| module | trainer | seen to work with | layout |
|---|---|---|---|
| `verl` | verl | 0.9.1 | prompt left-padded, response right-padded |
| `trl` | TRL, GRPOTrainer and asynchronous GRPO | 1.16.0, 1.15.0, 1.14.2 | prompt left-padded, completion right-padded; samples |
| `prime_rl` | prime-rl | 0.8.0 (structs) | packed micro-batches, every token with its own values |
| `slime` | slime, miles | not on PyPI: by its documentation | lists; masks and log-probabilities of the response only |
| `areal` | AReaL | 1.0.4 | whole sequences right-padded, place t about token t + 1 |
| `skyrl` | SkyRL | 0.3.0 | whole sequences left-padded, responses aligned on the right |
| `openrlhf` | OpenRLHF | 0.11.2 | sequences right-padded, actions shifted by one |
| `tinker` | Tinker | 0.38.0 | one datum for each sample, shifted by one |
| `atropos` | Atropos | 0.4.0 | lists by group, -100 where not sampled |

`hints` is for any of them: the loss at the tokens that hints are about.

The advantages of a batch are final. A trainer that computes them again from rewards loses the run's estimator, and one that takes each
sample for a rollout counts a rollout that was split as often as it has samples. So where rewards are asked for in such a trainer's
layout (`to_verl(scores="rewards")`, `to_areal_rollouts`, `to_skyrl_generator`), a batch with split rollouts is refused.

| trainer | how it is told to keep the advantages |
|---|---|
| verl | `keep_advantages` as estimator, `to_verl(scores="advantages")`; its V1 trainer: `rondo.verl` |
| TRL | GRPOTrainer: give `to_trl` to `compute_loss`; asynchronous: samples carry them |
| prime-rl, Tinker | micro-batches, samples and data carry them |
| slime | `--advantage-estimator grpo`, and no normalisation of rewards: `rewards` are the advantages |
| AReaL | call `ppo_update` without `compute_advantages` |
| SkyRL | give `to_skyrl` to the policy's update; `to_skyrl_generator` is for who wants SkyRL's own |
| OpenRLHF | put the Experience into the replay buffer, past the experience maker |
| Atropos | train on `advantages`, not on `scores` |
"""
