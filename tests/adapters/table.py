"""The reference's model in plain torch, for trainers whose losses take log-probabilities."""

from __future__ import annotations

import reference
import torch


def parameter() -> torch.nn.Parameter:
    """Logits of the next token by the one before: float64 [V, V], so that rounding hides nothing."""
    return torch.nn.Parameter(torch.from_numpy(reference.table()))


def of_next(table: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """Log-probability of token t + 1 at place t: [B, S - 1] of ids [B, S]."""
    ids = ids.long()
    return table[ids[:, :-1]].log_softmax(-1).gather(-1, ids[:, 1:].unsqueeze(-1)).squeeze(-1)
