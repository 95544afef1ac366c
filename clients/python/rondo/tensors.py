"""Batches as torch tensors; torch is imported only here."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import torch

from .columns import Array, Ragged

__all__ = ["Tensors", "packed", "padded"]


class Tensors(dict[str, Any]):
    """Tensors by name, also as attributes."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"no tensor {name!r} among {', '.join(self)}") from None

    def to(self, device: Any) -> Tensors:
        """The same tensors on a device."""
        return Tensors({k: v.to(device, non_blocking=True) if isinstance(v, torch.Tensor) else v for k, v in self.items()})


class Samples(Protocol):
    """The columns of a batch of which tensors are made."""

    def __getitem__(self, name: str, /) -> Any:
        """Any column by its name."""
        ...

    @property
    def tokens(self) -> Ragged:
        """Token ids of each sample."""
        ...

    @property
    def loss_mask(self) -> Ragged:
        """Which tokens are trained on."""
        ...

    @property
    def sampler_logprobs(self) -> Ragged:
        """Log-probabilities of the tokens when they were sampled."""
        ...

    @property
    def advantages(self) -> Ragged:
        """Advantage of each token."""
        ...

    @property
    def rewards(self) -> Array:
        """Reward of each sample."""
        ...

    @property
    def lengths(self) -> Array:
        """Tokens of each sample."""
        ...

    @property
    def offsets(self) -> Array:
        """Where each sample begins."""
        ...

    @property
    def groups(self) -> Array:
        """Group of each sample."""
        ...

    @property
    def token_count(self) -> int:
        """Tokens of all samples."""
        ...


def _tensor(array: Array, kind: Any = None) -> Any:
    # torch does not know read-only memory: it gets an array of its own.
    return torch.from_numpy(np.array(array, dtype=kind))


def _per_sample(batch: Samples) -> dict[str, Any]:
    return {
        "rewards": _tensor(batch.rewards),
        "lengths": _tensor(batch.lengths, np.int64),
        "prompt_lengths": _tensor(batch["prompt_length"], np.int64),
        "groups": _tensor(batch.groups),
        "samples_in_rollout": _tensor(batch["samples_in_rollout"], np.int64),
    }


def padded(batch: Samples, device: Any, pad_id: int, width: int | None) -> Tensors:
    """Right-padded tensors [B, S]; see Batch.to_torch."""
    ids = batch.tokens.padded(pad_id, width)
    width = ids.shape[1]
    positions = np.arange(width)
    mask = positions < batch.lengths[:, None]
    tensors = Tensors(
        input_ids=_tensor(ids, np.int64),
        attention_mask=_tensor(mask, np.int64),
        position_ids=_tensor(np.where(mask, positions, 0), np.int64),
        loss_mask=_tensor(batch.loss_mask.padded(False, width)),
        sampler_logprobs=_tensor(batch.sampler_logprobs.padded(0, width)),
        advantages=_tensor(batch.advantages.padded(0, width)),
        **_per_sample(batch),
    )
    return tensors if device is None else tensors.to(device)


def packed(batch: Samples, device: Any) -> Tensors:
    """Tensors [N] of all samples one after the other; see Batch.to_torch."""
    lengths, offsets = batch.lengths, batch.offsets
    tensors = Tensors(
        input_ids=_tensor(batch.tokens.values, np.int64),
        position_ids=_tensor(np.arange(batch.token_count) - np.repeat(offsets[:-1], lengths), np.int64),
        loss_mask=_tensor(batch.loss_mask.values),
        sampler_logprobs=_tensor(batch.sampler_logprobs.values),
        advantages=_tensor(batch.advantages.values),
        cu_seqlens=_tensor(offsets, np.int32),
        max_seqlen=int(lengths.max()) if len(lengths) else 0,
        **_per_sample(batch),
    )
    return tensors if device is None else tensors.to(device)
