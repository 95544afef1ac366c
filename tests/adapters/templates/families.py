"""The templates that are checked: which vocabulary and renderer belong to each, and how its model writes what it says."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import readers
import renderers
import vocabularies
import writing

Message = dict[str, Any]


@dataclass(frozen=True)
class Said:
    """What a model says in a turn: its thoughts, its words, and the calls that it asks for."""

    thoughts: str
    words: str
    calls: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    #: Arguments are JSON without spaces, which no template writes.
    tight: bool = False
    #: The answer is cut behind its words: it has no stop token.
    cut: bool = False

    def json(self, value: Any) -> str:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":") if self.tight else None)

    def text(self, value: Any) -> str:
        return value if isinstance(value, str) else self.json(value)


@dataclass(frozen=True)
class Family:
    #: The file of the template, without its ending.
    template: str
    vocabulary: str
    #: What begins an answer in a rendering, and the tokens that end what is sampled: behind a call, and behind words.
    opens: str
    stops: tuple[str, str]
    #: Writes an answer behind a prompt (its end decides whether thoughts are open), with the number of the conversation's calls before it.
    writes: Callable[[Said, str, int], str]
    #: Tokens of the model that the vocabulary lacks.
    special: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    #: The renderer of the package renderers, and its settings.
    renderer: tuple[str, Mapping[str, Any]] | None = None
    #: Reads a message in a text, where renderers has no parser of the model.
    reads: Callable[[str], Message] | None = None


def qwen3(said: Said, prompt: str, _: int) -> str:
    calls = [f"<tool_call>\n{said.json({'name': name, 'arguments': given})}\n</tool_call>" for name, given in said.calls]
    thoughts = f"<think>\n{said.thoughts}\n</think>\n\n" if said.thoughts else ""
    return thoughts + "\n".join([said.words, *calls] if said.words else calls)


def qwen35(said: Said, prompt: str, _: int) -> str:
    calls = [
        f"<tool_call>\n<function={name}>\n"
        + "".join(f"<parameter={key}>\n{said.text(value)}\n</parameter>\n" for key, value in given.items())
        + "</function>\n</tool_call>"
        for name, given in said.calls
    ]
    between = "\n\n" if said.words and calls else ""
    return f"{said.thoughts}\n</think>\n\n{said.words}{between}" + "\n".join(calls)


def glm46(said: Said, prompt: str, _: int) -> str:
    calls = [
        f"\n<tool_call>{name}\n"
        + "".join(f"<arg_key>{key}</arg_key>\n<arg_value>{said.text(value)}</arg_value>\n" for key, value in given.items())
        + "</tool_call>"
        for name, given in said.calls
    ]
    return f"\n<think>{said.thoughts}</think>" + (f"\n{said.words}" if said.words else "") + "".join(calls)


def glm47(said: Said, prompt: str, _: int) -> str:
    calls = [
        f"<tool_call>{name}"
        + "".join(f"<arg_key>{key}</arg_key><arg_value>{said.text(value)}</arg_value>" for key, value in given.items())
        + "</tool_call>"
        for name, given in said.calls
    ]
    return f"{said.thoughts}</think>{said.words}" + "".join(calls)


def kimi_calls(said: Said, before: int) -> str:
    calls = [
        f"<|tool_call_begin|>functions.{name}:{before + i}<|tool_call_argument_begin|>{said.json(given)}<|tool_call_end|>"
        for i, (name, given) in enumerate(said.calls)
    ]
    return f"<|tool_calls_section_begin|>{''.join(calls)}<|tool_calls_section_end|>" if calls else ""


def kimi_instruct(said: Said, prompt: str, before: int) -> str:
    return said.words + kimi_calls(said, before)


def kimi_thinking(said: Said, prompt: str, before: int) -> str:
    return f"<think>{said.thoughts}</think>{said.words}" + kimi_calls(said, before)


def kimi3(said: Said, prompt: str, _: int) -> str:
    def element(tag: str, body: str, **attributes: Any) -> str:
        named = "".join(f' {key}="{value}"' for key, value in attributes.items())
        return f"<|open|>{tag}{named}<|sep|>{body}<|close|>{tag}<|sep|>"

    kinds = {str: "string", int: "number", list: "array"}

    def call(number: int, name: str, given: Mapping[str, Any]) -> str:
        arguments = [element("argument", said.text(value), key=key, type=kinds[type(value)]) for key, value in given.items()]
        return element("call", "".join(arguments), tool=name, index=number)

    calls = "".join(call(i + 1, name, given) for i, (name, given) in enumerate(said.calls))
    tools = element("tools", calls) if calls else ""
    return f"{said.thoughts}<|close|>think<|sep|>{element('response', said.words)}{tools}<|close|>message<|sep|>"


def deepseek31(said: Said, prompt: str, _: int) -> str:
    calls = [f"<｜tool▁call▁begin｜>{name}<｜tool▁sep｜>{said.json(given)}<｜tool▁call▁end｜>" for name, given in said.calls]
    thoughts = f"{said.thoughts}</think>" if prompt.endswith("<think>") else ""  # the template opens none behind results of tools
    return thoughts + said.words + (f"<｜tool▁calls▁begin｜>{''.join(calls)}<｜tool▁calls▁end｜>" if calls else "")


def dsml(block: str) -> Callable[[Said, str, int], str]:
    def parameter(said: Said, key: str, value: Any) -> str:
        return f'<｜DSML｜parameter name="{key}" string="{str(isinstance(value, str)).lower()}">{said.text(value)}</｜DSML｜parameter>\n'

    def write(said: Said, prompt: str, _: int) -> str:
        calls = [
            f'<｜DSML｜invoke name="{name}">\n' + "".join(parameter(said, k, v) for k, v in given.items()) + "</｜DSML｜invoke>\n"
            for name, given in said.calls
        ]
        return f"{said.thoughts}</think>{said.words}" + (f"\n\n<｜DSML｜{block}>\n{''.join(calls)}</｜DSML｜{block}>" if calls else "")

    return write


ALL = {"thinking_retention": "all"}
IM_START = "<|im_start|>assistant\n"
KIMI_OPENS = "<|im_assistant|>assistant<|im_middle|>"
KIMI = (
    "<|im_user|>",
    "<|im_assistant|>",
    "<|im_system|>",
    "<|im_middle|>",
    "<|tool_calls_section_begin|>",
    "<|tool_calls_section_end|>",
    "<|tool_call_begin|>",
    "<|tool_call_argument_begin|>",
    "<|tool_call_end|>",
    "<|media_start|>",
    "<|media_content|>",
    "<|media_pad|>",
    "<|media_end|>",
)
GLM = (
    "[gMASK]",
    "<sop>",
    "<|system|>",
    "<|user|>",
    "<|assistant|>",
    "<|observation|>",
    "<arg_key>",
    "</arg_key>",
    "<arg_value>",
    "</arg_value>",
)
DEEPSEEK = ("<think>", "</think>", "｜DSML｜")
BOS = "<｜begin▁of▁sentence｜>"
EOS = "<｜end▁of▁sentence｜>"

FAMILIES = {
    family.template: family
    for family in (
        Family("Qwen-Qwen3-0.6B", "qwen3", IM_START, ("<|im_end|>",) * 2, qwen3, renderer=("Qwen3Renderer", ALL)),
        Family("Qwen3.5-4B", "qwen3.5", IM_START, ("<|im_end|>",) * 2, qwen35, renderer=("Qwen35Renderer", ALL)),
        Family("GLM-4.6", "qwen3", "<|assistant|>", ("<|observation|>", "<|user|>"), glm46, GLM, renderer=("GLM45Renderer", ALL)),
        Family("GLM-4.7-Flash", "qwen3", "<|assistant|>", ("<|observation|>", "<|user|>"), glm47, GLM, renderer=("GLM5Renderer", ALL)),
        Family("Kimi-K2-Instruct", "qwen3", KIMI_OPENS, ("<|im_end|>",) * 2, kimi_instruct, KIMI, renderer=("KimiK2Renderer", ALL)),
        Family("Kimi-K2-Thinking", "qwen3", KIMI_OPENS, ("<|im_end|>",) * 2, kimi_thinking, KIMI, renderer=("KimiK2Renderer", ALL)),
        Family("Kimi-K3", "qwen3", '<|open|>message role="assistant"<|sep|>', ("<|end_of_msg|>",) * 2, kimi3,
               ("<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>"), reads=readers.kimi3),
        Family("deepseek-ai-DeepSeek-V3.1", "deepseek-v3", "", (EOS,) * 2, deepseek31, DEEPSEEK, {"thinking": True},
               reads=readers.deepseek31),
        Family("deepseek-ai-DeepSeek-V3.2", "deepseek-v3", "", (EOS,) * 2, dsml("function_calls"), DEEPSEEK, {"thinking": True},
               reads=readers.dsml),
        Family("deepseek-ai-DeepSeek-V4-Flash-0731", "deepseek-v4", "", (EOS,) * 2, dsml("tool_calls"), settings={"thinking": True},
               renderer=("DeepSeekV4Renderer", {**ALL, "enable_thinking": True})),
    )
}  # fmt: skip


class Model:
    """A template with its tokenizer and its renderer."""

    def __init__(self, family: Family, templates: Path, modules: Path) -> None:
        self.family = family
        self.source = (templates / f"{family.template}.jinja").read_text()
        self.tokenizer = vocabularies.vocabulary(family.vocabulary, modules, family.special)
        self.renderer: Any = None
        if family.renderer is not None:
            name, settings = family.renderer
            kind = getattr(renderers, name)
            self.renderer = kind(self.tokenizer, getattr(renderers, name + "Config")(**settings))
        self._special = re.compile("(" + "|".join(re.escape(token) for token in self.tokenizer.special) + ")")

    def text(self, messages: Sequence[Message], tools: Sequence[Message], prompts: bool) -> str:
        """The template's rendering of messages as a server gives them: arguments are objects, and thoughts have both of their names."""
        given = []
        for message in messages:
            message = json.loads(json.dumps(message))
            for call in message.get("tool_calls", []):
                call["function"]["arguments"] = json.loads(call["function"]["arguments"])
            if "reasoning" in message:
                message["reasoning_content"] = message["reasoning"]
            given.append(message)
        return writing.template(self.source).render(
            messages=given, tools=list(tools), add_generation_prompt=prompts, bos_token=BOS, **self.family.settings
        )

    def encode(self, text: str) -> list[int]:
        return self.tokenizer.encode(text)

    def decode(self, ids: Sequence[int]) -> str:
        return self.tokenizer.decode(ids)

    def render(self, messages: Sequence[Message], tools: Sequence[Message], prompts: bool) -> list[int]:
        return self.encode(self.text(messages, tools, prompts))

    def sampled(self, said: Said, prompt: Sequence[int], before: int) -> list[int]:
        """The tokens of an answer behind a prompt and so many calls. Some words are cut as no tokenizer does: a model may sample so.

        Those of an answer that is cut are not: its end is found by them.
        """
        text = self.family.writes(said, self.decode(prompt[-8:]), before)
        if said.cut:
            text = text[: text.index(said.words) + len(said.words)]
        chance = random.Random(text)
        ids: list[int] = []
        for piece in self._special.split(text):
            if self._special.fullmatch(piece):
                ids += self.encode(piece)
                continue
            cuts = [0, *(i for i in range(1, len(piece)) if chance.random() < 0.05 and not said.cut), len(piece)]
            for begin, end in pairwise(cuts):
                ids += self.encode(piece[begin:end])
        assert self.decode(ids) == text, (self.decode(ids), text)
        return ids if said.cut else ids + self.encode(self.family.stops[0 if said.calls else 1])

    def read(self, ids: Sequence[int], prompt: Sequence[int], tools: Sequence[Message], names: str) -> Message:
        """The message in the sampled tokens, as vLLM answers with it: by renderers' parser or by ours. names begins the ids of calls."""
        if self.family.reads is not None:
            text = self.decode(ids)
            for stop in self.family.stops:
                text = text.removesuffix(stop)
            message = self.family.reads(text)
        else:
            parsed = self.renderer.parse_response(list(ids), tools=list(tools), prompt_ids=list(prompt))
            message = {"role": "assistant", "content": parsed.content}
            if parsed.reasoning_content:
                message["reasoning"] = parsed.reasoning_content
            if parsed.tool_calls:
                assert all(call.status == renderers.ToolCallParseStatus.OK for call in parsed.tool_calls), parsed.tool_calls
                message["tool_calls"] = [readers.call(call.name, call.arguments, call.id) for call in parsed.tool_calls]
        for i, call in enumerate(message.get("tool_calls", [])):
            call["id"] = call["id"] or f"{names}-{i}"
        return message

    def behind(self, text: str, answers: int) -> str:
        """What a rendering has behind so many answers, and behind the token that ends the last one."""
        at = 0
        for _ in range(answers):
            at = text.index(self.family.opens, at) + len(self.family.opens)
            at = min(text.index(stop, at) + len(stop) for stop in set(self.family.stops) if stop in text[at:])
        return text[at:]

    def added(self, messages: Sequence[Message], tools: Sequence[Message], cut: str = "") -> list[int]:
        """What the next prompt adds behind the last sample, by the template alone. cut: the last words of a sample that was cut."""
        answers = sum(message["role"] == "assistant" for message in messages)
        text = self.text([plain(m) for m in messages], tools, True)
        return self.encode(text[text.rindex(cut) + len(cut) :] if cut else self.behind(text, answers))

    def bridged(
        self, prompt: Sequence[int], sampled: Sequence[int], messages: Sequence[Message], new: int, tools: Sequence[Message]
    ) -> list[int] | None:
        """The next prompt, of so many new messages, by the renderer's own bridge; None where there is no renderer."""
        if self.renderer is None:
            return None
        bridge = self.renderer.bridge_to_next_turn(list(prompt), list(sampled), list(messages[-new:]), tools=list(tools))
        if bridge is not None:
            return list(bridge.token_ids)
        # DeepSeek V4's has none for several results, as their order is that of the message with the calls: its whole rendering is taken.
        assert sum(message["role"] == "tool" for message in messages[-new:]) > 1, f"{type(self.renderer).__name__} makes no bridge"
        answers = sum(message["role"] == "assistant" for message in messages)
        whole = self.renderer.render_ids([plain(m) for m in messages], tools=list(tools), add_generation_prompt=True)
        return [*prompt, *sampled, *self.encode(self.behind(self.decode(whole), answers))]


def plain(message: Message) -> Message:
    """A message without its thoughts, as Rondo has templates render it to find what is new."""
    if message["role"] != "assistant":
        return message
    return {**{key: value for key, value in message.items() if key != "reasoning"}, "content": message["content"].lstrip(" \n")}


#: What Rondo has an answer say whose words need not be rendered.
MARK = "\u2402rondo\u2403"


def standing(message: Message) -> Message:
    """What Rondo has templates render in the place of an answer whose tokens are known: the same calls, and no words of the model's."""
    if message["role"] != "assistant":
        return message
    calls = [{**call, "function": {**call["function"], "arguments": "{}"}} for call in message.get("tool_calls", [])]
    return {"role": "assistant", "content": MARK, **({"tool_calls": calls} if calls else {})}
