"""A conversation of a model that thinks and calls tools, as published material has it: what it samples, and what each next prompt adds."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from families import Message, Model, Said, plain, standing

#: Tools of Rondo's, described in fewer words.
TOOLS: list[Message] = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": text,
            "parameters": {"type": "object", "properties": properties, "required": list(properties)[:1]},
        },
    }
    for name, text, properties in (
        (
            "list_dir",
            "List a folder.",
            {"target_directory": {"type": "string"}, "ignore_globs": {"type": "array", "items": {"type": "string"}}},
        ),
        ("read_file", "Read a file.", {"target_file": {"type": "string"}, "offset": {"type": "integer"}, "limit": {"type": "integer"}}),
    )
]


def listed(folder: str, *ignored: str) -> tuple[str, dict[str, Any]]:
    return "list_dir", {"target_directory": folder, "ignore_globs": list(ignored)}


def read(path: str, **lines: int) -> tuple[str, dict[str, Any]]:
    return "read_file", {"target_file": path, **lines}


SYSTEM = "You are an agent."
ASKS = "How large is it? Read the files."
ASKS_AGAIN = "And without the umlauts?\n"

#: Eight turns, and what answers each one: results of tools in the order of the calls, or the user.
TURNS: list[tuple[Said, list[str]]] = [
    (Said("Where to begin? The folder says most.", "I list the folder.", (listed(".", "*.log", "*.md"),), tight=True), ["a.txt\nb.txt\n"]),
    (Said("Two files. Both at once.", "", (read("a.txt", offset=1, limit=20), read("b.txt")), tight=True), ["Größe: 7\n\n", ""]),
    (Said("The second is empty.\n\nOnce more, then.", "Reading on:", (read("b.txt", offset=1),)), ["  indented, and at its end a space "]),
    (Said("That is it.", "The first file says 7."), [ASKS_AGAIN]),
    (Said("The user wants it in ASCII.", "", (read("ä/c.txt", limit=3),), tight=True), ["<no such file>"]),
    (Said("", "I look again.", (listed("ä"),)), ["<|im_end|>.txt\n<|observation|>.txt\nc.txt"]),
    (Said("Now both, to be sure.", "Both:", (read("a.txt", offset=1), listed("ä", "b*", "*.md")), tight=True), ["Groesse: 7", "c.txt"]),
    (Said("Done.", "It says 7 in both."), ["Thank you."]),
]


#: Another turn, which is cut. No rollout of one stage goes on behind such a turn, so that it is in the recordings alone.
CUT: tuple[Said, list[str]] = (Said("Nothing is left to do.", "It is always", cut=True), ["Go on."])


def calls_before(turn: int) -> int:
    return sum(len(says.calls) for says, _ in TURNS[:turn])


def answers(message: Message, texts: Sequence[str]) -> list[Message]:
    """The messages behind an answer: results of its calls, or the user's words."""
    calls = message.get("tool_calls", [])
    if not calls:
        return [{"role": "user", "content": text} for text in texts]
    return [{"role": "tool", "content": text, "tool_call_id": call["id"]} for call, text in zip(calls, texts, strict=True)]


def play(model: Model) -> dict[str, Any]:
    """The conversation. The template and, where there is one, the renderer's bridge agree on what each prompt adds."""
    messages: list[Message] = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": ASKS}]
    prompt, turns, said = model.render(messages, TOOLS, True), [], []
    added = prompt
    for number, (says, texts) in enumerate([*TURNS, CUT]):
        sampled = model.sampled(says, prompt, calls_before(number))
        message = model.read(sampled, prompt, TOOLS, f"call-{number}")
        check(says, message)
        turns.append({"messages": len(messages), "added": added, "sampled": sampled, "unsure": says.cut})
        new = answers(message, texts)
        messages += [message, *new]
        added = model.added(messages, TOOLS, says.words if says.cut else "")
        said.append(model.behind(model.text([plain(m) for m in messages], TOOLS, False), number + 1))
        bridged = model.bridged(prompt, sampled, messages, len(new), TOOLS)
        if bridged is not None and says.cut and model.family.template.startswith("GLM"):
            bridged.remove(model.encode("<|endoftext|>")[0])  # the renderer ends with it what was cut, and the template with nothing
        prompt = prompt + sampled + added
        assert bridged is None or bridged == prompt, (
            f"turn {number}: the template adds {model.decode(added)!r}, the renderer {model.decode(bridged[len(prompt) - len(added) :])!r}"
        )
    turns.append({"messages": len(messages), "added": added, "sampled": [], "unsure": False})
    at, whole = 0, model.text([plain(m) for m in messages], TOOLS, False)
    for text in said:  # a template writes new messages as it writes them later, when others have followed
        at = whole.index(text, at) + len(text)
    return {"tools": TOOLS, "messages": messages, "turns": turns, "renderings": renderings(model, messages)}


def check(says: Said, message: Message) -> None:
    calls = [(call["function"]["name"], json.loads(call["function"]["arguments"])) for call in message.get("tool_calls", [])]
    assert calls == [(name, dict(given)) for name, given in says.calls], message
    assert message["content"].strip() == says.words, message


def renderings(model: Model, messages: Sequence[Message]) -> list[dict[str, Any]]:
    """All renderings of a conversation, each by what it changes: with thoughts, without, and with stand-ins in an answer and behind one."""
    made = []
    before: list[int] = []
    ways = {"whole": lambda message: message, "plain": plain, "standing": standing}
    for answers, prompts in (("whole", True), ("plain", True), ("plain", False), ("standing", True)):
        for n in range(1, len(messages) + 1):
            answered = messages[n - 1]["role"] == "assistant"
            goes_on = n < len(messages) and not answered and messages[n]["role"] != "assistant"
            if answered == prompts or goes_on:
                continue
            ids = model.render([ways[answers](m) for m in messages[:n]], TOOLS, prompts)
            same = next((i for i, (a, b) in enumerate(zip(before, ids, strict=False)) if a != b), min(len(before), len(ids)))
            made.append({"messages": n, "answers": answers, "prompts": prompts, "same": same, "ids": ids[same:]})
            before = ids
    return made
