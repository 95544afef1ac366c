"""How llama-server is started."""

from pathlib import Path


def command(server: Path, gguf: Path, port: int, context: int) -> list[str]:
    """context: the tokens of each of two slots."""
    # Its defaults, flash attention and a cache in float16, move log-probabilities by some 1e-2.
    precise = ["--flash-attn", "off", "--cache-type-k", "f32", "--cache-type-v", "f32"]
    words = [
        server,
        "--model",
        gguf,
        "--alias",
        "toy",
        "--host",
        "127.0.0.1",
        "--port",
        port,
        "--ctx-size",
        2 * context,
        "--parallel",
        2,
        "--jinja",
        "--threads",
        2,
        *precise,
    ]
    return list(map(str, words))
