"""What vLLM lacks to take up weights in place, with this package in its environment.

vLLM finds the plug-in `register` by itself. It adds the backend `rondo` of weight transfer (rondo.weight_transfer).

Without the backend, start vLLM on CPU with --worker-extension-cls rondo.vllm.Worker. There vLLM computes with packed copies of the weights.
Its own reload leaves the copy of an output layer that shares its weights with the input layer, as small models have it, at the old version.
The side-car uses `reload_version` where a server has it.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

__all__ = ["Worker", "pack_head", "register"]


def register() -> None:
    """Add the backend to vLLM's. A process may call this several times, and one of an older vLLM has no backends."""
    try:
        from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory
    except ImportError:
        return
    with suppress(ValueError):  # it is there already
        WeightTransferEngineFactory.register_engine("rondo", "rondo.weight_transfer", "WeightTransfer")


def pack_head(model: Any) -> None:
    """Pack anew, on CPU, the output layer that shares its weights."""
    for layer in model.modules():
        if type(layer).__name__ == "ParallelLMHead" and hasattr(layer, "cpu_linear"):
            layer.quant_method.process_weights_after_loading(layer)


class Worker:
    """Methods that vLLM adds to its workers."""

    def reload_version(self: Any, weights_path: str) -> None:
        """Reload the weights from a folder, and pack anew what shares them."""
        self.reload_weights(weights_path=weights_path, is_checkpoint_format=True)
        pack_head(self.get_model())
