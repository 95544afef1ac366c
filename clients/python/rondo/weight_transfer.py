"""The backend `rondo` of weight transfer, for a vLLM with this package in its environment: --weight-transfer-config '{"backend":"rondo"}'.

The side-car fetches versions beside the server, verifies them, and names in an update what is on the disk. An update has two parts. The
first one verifies every byte that the second one reads or sets, and changes nothing: where it fails, the server still has its version. The
second one applies them. Where it fails, the weights are a mixture, and nothing rolls that back: the side-car has taken the label away
before, and loads the version whole.

On a GPU the elements that differ from the version before are set in place. On CPU vLLM computes with packed copies of the weights. There
versions are loaded whole, layer by layer, as everywhere the first version after the server's start.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from vllm.distributed.weight_transfer.base import WeightTransferEngine, WeightTransferInitInfo, WeightTransferUpdateInfo
from vllm.model_executor.model_loader.checkpoint_weight_patch import CheckpointWeightPatch, load_checkpoint_weight_patches
from vllm.model_executor.model_loader.reload.inplace import reload_weights

from .errors import Damaged
from .patches import Patch, read, verify
from .vllm import pack_head

__all__ = ["InitInfo", "UpdateInfo", "WeightTransfer"]


@dataclass
class InitInfo(WeightTransferInitInfo):  # type: ignore[misc]
    """Nothing: the files are beside the server."""


@dataclass
class UpdateInfo(WeightTransferUpdateInfo):  # type: ignore[misc]
    """A version on the disk. Where apply is set, the digest alone says which of those that were verified is meant."""

    digest: str
    apply: bool = False
    dir: str = ""
    #: SHA-256 by name of the files in dir.
    files: dict[str, str] = field(default_factory=dict)
    #: Digest of the version that the changes begin at; empty: there are none.
    base: str = ""
    #: SHA-256 by path.
    changes: dict[str, str] = field(default_factory=dict)


class WeightTransfer(WeightTransferEngine[InitInfo, UpdateInfo]):  # type: ignore[misc]
    """One worker's part."""

    init_info_cls = InitInfo
    update_info_cls = UpdateInfo
    supports_draft_weight_update = False

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.served = ""  # digest of the version that the weights are; empty: unknown
        self.verified: tuple[str, Callable[[], None]] | None = None

    @property
    def in_place(self) -> bool:
        """Whether the model's tensors are what the device computes with."""
        return bool(self.device.type != "cpu")

    def init_transfer_engine(self, init_info: InitInfo) -> None:
        """Do nothing."""

    def start_weight_update(self) -> None:
        """Forget an update that nobody has finished."""
        self.verified = None

    def finish_weight_update(self) -> None:
        """Forget the update."""
        self.verified = None

    def shutdown(self) -> None:
        """Forget the update."""
        self.verified = None

    def update_weights(self, update_info: dict[str, Any]) -> None:
        """Verify an update, or apply it. vLLM's own method waits for an accelerator, which a CPU lacks."""
        self.receive_weights(self.parse_update_info(update_info))
        if self.device.type != "cpu":
            torch.accelerator.synchronize()

    def receive_weights(self, update_info: UpdateInfo) -> None:
        """Verify an update, or apply it."""
        if not update_info.apply:
            self.verified = update_info.digest, self.verify(update_info)
            return
        if self.verified is None or self.verified[0] != update_info.digest:
            raise ValueError(f"version {update_info.digest} was not verified in this update")
        (digest, change), self.verified, self.served = self.verified, None, ""
        change()
        self.served = digest

    def verify(self, info: UpdateInfo) -> Callable[[], None]:
        """What applies the update. Damaged where it must not be applied."""
        if info.base and self.in_place:
            if info.base != self.served:
                raise Damaged(f"the changes begin at version {info.base}, and the weights are {self.served or 'unknown'}")
            patches = read(info.changes)
            check(patches)
            return lambda: self.set(patches)
        verify({Path(info.dir, name): digest for name, digest in info.files.items()})
        return lambda: self.load(info.dir)

    def set(self, patches: list[Patch]) -> None:
        """Set the changed elements. vLLM's loader of the model finds where the elements of the checkpoint are in this worker's tensors."""
        load_checkpoint_weight_patches(
            self.model,
            [CheckpointWeightPatch(p.name, p.shape, p.values.dtype, p.values.to(self.device), p.places.to(self.device)) for p in patches],
            validate_unique_indices=False,  # they rise
        )

    def load(self, folder: str) -> None:
        """Load the whole version."""
        reload_weights(self.vllm_config, self.model, None, folder, True)
        pack_head(self.model)


def check(patches: list[Patch]) -> None:
    """Refuse what vLLM's loader cannot set: to it NaN means that an element stays."""
    for patch in patches:
        if not patch.values.is_floating_point() or bool(patch.values.isnan().any()):
            raise Damaged(f"tensor {patch.name[:80]!r} has new elements that are integers or NaN: load the version whole")
