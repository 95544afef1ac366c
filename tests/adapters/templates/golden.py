"""The recorded conversations of inference/testdata/templates, which the ordinary Go tests read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def written(conversation: dict[str, Any]) -> str:
    """JSON with a line for each message, turn and rendering."""

    def lines(values: list[Any]) -> str:
        return "[\n" + ",\n".join("  " + json.dumps(value, ensure_ascii=False, separators=(",", ":")) for value in values) + "\n ]"

    fields = [f' "{key}": {lines(value) if isinstance(value, list) else json.dumps(value, ensure_ascii=False)}' for key, value in conversation.items()]
    return "{\n" + ",\n".join(fields) + "\n}\n"


def compare(file: Path, conversation: dict[str, Any], rewrite: bool) -> None:
    """Hold a recording to a conversation, or replace it."""
    text = written(conversation)
    if rewrite:
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    assert file.exists() and file.read_text() == text, f"{file} differs from what is published: run this with --rewrite, and read the difference"
    assert len(text) < 100_000, f"{file} has {len(text)} bytes"
