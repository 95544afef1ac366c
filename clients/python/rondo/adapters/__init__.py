"""Batches as other trainers expect them: one module for each, one pure function of numpy arrays, no dependency on the trainer.

| module | trainer | layout |
|---|---|---|
| `verl` | verl | prompt left-padded, response right-padded |
| `trl` | TRL, asynchronous GRPO | whole sequences right-padded, one advantage for each sample |
| `prime_rl` | prime-rl | packed micro-batches, every token with its own values |
| `slime` | slime, miles | lists; masks and log-probabilities of the response only |
| `areal` | AReaL | whole sequences right-padded, versions and turns of each token |
| `skyrl` | SkyRL | whole sequences left-padded, responses aligned on the right |
| `openrlhf` | OpenRLHF | sequences right-padded, actions shifted by one |
| `tinker` | Tinker | one datum for each sample, shifted by one |
| `atropos` | Atropos | lists by group, -100 where not sampled |
"""
