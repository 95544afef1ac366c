"""The extension of vLLM's workers, without vLLM."""

from __future__ import annotations

from typing import Any

from rondo.vllm import Worker


class Packs:
    def process_weights_after_loading(self, layer: Any) -> None:
        layer.packed += 1


class Layer:
    def __init__(self, packs: bool) -> None:
        self.packed, self.quant_method = 0, Packs()
        if packs:
            self.cpu_linear = None


class ParallelLMHead(Layer):
    pass


class Process(Worker):
    def __init__(self, *layers: Layer) -> None:
        self.layers, self.loaded = layers, ""

    def reload_weights(self, weights_path: str, is_checkpoint_format: bool) -> None:
        assert is_checkpoint_format and not any(layer.packed for layer in self.layers)
        self.loaded = weights_path

    def get_model(self) -> Any:
        return self

    def modules(self) -> tuple[Layer, ...]:
        return self.layers


def test_the_output_layer_alone_is_packed_anew() -> None:
    head, other, unpacked = ParallelLMHead(True), Layer(True), ParallelLMHead(False)
    worker = Process(head, other, unpacked)
    worker.reload_version("/models/v000002")
    assert worker.loaded == "/models/v000002"
    assert (head.packed, other.packed, unpacked.packed) == (1, 0, 0)
