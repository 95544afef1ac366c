"""Tokens, chat template and tool parser: what a model of this size can read and say.

A token is a word. What the model may say comes first in WORDS; the other words stand in prompts only. Text outside of the
vocabulary becomes <unknown>, one for each stretch of it.
"""

import json

END = "<end>"
# Each tool with its arguments in the order in which they are said: a word each, and the last one takes all that is left.
TOOLS = {"write": ("file_path", "contents"), "read_file": ("target_file",), "list_dir": ("target_directory",)}
SAID = (END, *TOOLS, "answer.txt", "numbers.txt", "1", "2", "3", "4")
WORDS = (*SAID, "<system>", "<tools>", "<user>", "<assistant>", "<tool>", "<unknown>")
IDS = {word: i for i, word in enumerate(WORDS)}


def encode(text):
    """Token ids of a text."""
    ids = []
    for word in text.split():
        token = IDS[word if word in SAID and word != END else "<unknown>"]
        if token != IDS["<unknown>"] or ids[-1:] != [token]:
            ids.append(token)
    return ids


def prompt(messages, tools):
    """Token ids of a conversation and the offered tools, up to where the assistant speaks.

    An assistant's message gives the very tokens again that were sampled for it, so each prompt extends the one before.
    """
    offered = [IDS[t["function"]["name"]] for t in tools if t["function"]["name"] in TOOLS]
    ids = [IDS["<tools>"], *offered] if offered else []
    for message in messages:
        ids += [IDS[f"<{message['role']}>"], *encode(message.get("content") or "")]
        for call in message.get("tool_calls") or []:
            arguments = json.loads(call["function"]["arguments"])
            ids += encode(" ".join([call["function"]["name"], *map(str, arguments.values())]))
        if message["role"] == "assistant":
            ids.append(IDS[END])
    return [*ids, IDS["<assistant>"]]


def parse(ids):
    """The text and the tool call that an answer's tokens spell: words, then a tool's name, its arguments and <end>.

    Where they spell no whole call it is None, and all of them are text.
    """
    words = [WORDS[i] for i in ids if i != IDS[END]]
    at = next((i for i, word in enumerate(words) if word in TOOLS), None)
    if at is None or ids[-1] != IDS[END]:
        return " ".join(words), None
    names, said = TOOLS[words[at]], words[at + 1 :]
    values = [*said[: len(names) - 1], " ".join(said[len(names) - 1 :])]
    if len(values) < len(names) or not values[0]:
        return " ".join(words), None
    return " ".join(words[:at]), {"name": words[at], "arguments": json.dumps(dict(zip(names, values, strict=True)))}
