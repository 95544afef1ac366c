"""What vLLM lacks to take up weights in place on CPU: start it with --worker-extension-cls rondo.vllm.Worker, with this package in its environment.

On CPU vLLM computes with packed copies of the weights. Its own reload leaves the copy of an output layer that shares its weights with the
input layer, as small models have it, at the old version. The side-car uses `reload_version` where a server has it.
"""

from __future__ import annotations

from typing import Any

__all__ = ["Worker"]


class Worker:
    """Methods that vLLM adds to its workers."""

    def reload_version(self: Any, weights_path: str) -> None:
        """Reload the weights from a folder, and pack anew what shares them."""
        self.reload_weights(weights_path=weights_path, is_checkpoint_format=True)
        for layer in self.get_model().modules():
            if type(layer).__name__ == "ParallelLMHead" and hasattr(layer, "cpu_linear"):
                layer.quant_method.process_weights_after_loading(layer)
