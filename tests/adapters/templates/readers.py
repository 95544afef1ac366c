"""Parsers of what models write, for those that the package renderers has none of."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

Message = dict[str, Any]


def call(name: str, arguments: Mapping[str, Any] | str, id: str | None = None) -> Message:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return {"id": id, "type": "function", "function": {"name": name, "arguments": text}}


def message(thoughts: str, words: str, calls: Sequence[Message]) -> Message:
    said: Message = {"role": "assistant", "content": words}
    if thoughts:
        said["reasoning"] = thoughts
    if calls:
        said["tool_calls"] = list(calls)
    return said


def parts(text: str) -> tuple[str, str]:
    """Thoughts and the rest."""
    thoughts, end, rest = text.partition("</think>")
    return (thoughts.removeprefix("<think>"), rest) if end else ("", text)


def deepseek31(text: str) -> Message:
    thoughts, rest = parts(text)
    words, _, section = rest.partition("<｜tool▁calls▁begin｜>")
    calls = re.findall(r"<｜tool▁call▁begin｜>(.*?)<｜tool▁sep｜>(.*?)<｜tool▁call▁end｜>", section, re.DOTALL)
    return message(thoughts, words, [call(name, given) for name, given in calls])


def dsml(text: str) -> Message:
    thoughts, rest = parts(text)
    words, _, section = rest.partition("\n\n<｜DSML｜function_calls>")
    calls = []
    for name, body in re.findall(r'<｜DSML｜invoke name="(.*?)">(.*?)</｜DSML｜invoke>', section, re.DOTALL):
        given = re.findall(r'<｜DSML｜parameter name="(.*?)" string="(true|false)">(.*?)</｜DSML｜parameter>', body, re.DOTALL)
        calls.append(call(name, {key: value if kind == "true" else json.loads(value) for key, kind, value in given}))
    return message(thoughts, words, calls)


def kimi3(text: str) -> Message:
    thoughts, _, rest = text.partition("<|close|>think<|sep|>")
    words = re.search(r"<\|open\|>response<\|sep\|>(.*?)(?:<\|close\|>response<\|sep\|>|$)", rest, re.DOTALL)
    calls = []
    for name, body in re.findall(r'<\|open\|>call tool="(.*?)" index="\d+"<\|sep\|>(.*?)<\|close\|>call<\|sep\|>', rest, re.DOTALL):
        given = re.findall(r'<\|open\|>argument key="(.*?)" type="(.*?)"<\|sep\|>(.*?)<\|close\|>argument<\|sep\|>', body, re.DOTALL)
        calls.append(call(name, {key: value if kind == "string" else json.loads(value) for key, kind, value in given}))
    return message(thoughts, words.group(1) if words else "", calls)
