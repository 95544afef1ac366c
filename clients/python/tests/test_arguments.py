"""What a model writes as arguments, and what they mean by the schema: the cases of the tool runner's own tools."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rondo import env
from rondo.env.arguments import meant
from rondo.env.environment import adapted
from rondo.env.roles import _decided

TABLE = json.loads((Path(__file__).parents[3] / "sandbox/tools/testdata/arguments.json").read_text())


@pytest.mark.parametrize("case", TABLE["cases"], ids=[case["given"] for case in TABLE["cases"]])
def test_arguments_mean_what_the_tool_runner_takes_them_for(case: dict[str, Any]) -> None:
    given, schema = case["given"], case.get("schema", TABLE["schema"])
    if "refused" in case:
        with pytest.raises(ValueError, match="must be|there is no|is given twice") as refused:
            meant(schema, given)
        assert str(refused.value) == case["refused"]
        return
    try:
        want = case["meant"] if "meant" in case else json.loads(given or "{}")
    except ValueError:
        with pytest.raises(json.JSONDecodeError):
            meant(schema, given)
        return
    got = meant(schema, given)
    assert json.dumps(got, sort_keys=True) == json.dumps(want, sort_keys=True)
    assert meant(schema, json.dumps(got)) == got


def test_a_schema_that_refers_to_itself_says_nothing() -> None:
    itself = {"$ref": "#/properties/a"}
    for schema in (itself, {"anyOf": [itself, itself]}):
        assert meant({"properties": {"a": schema}}, '{"a": "1"}') == {"a": "1"}


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ('{"a": ' + "[" * 600 + "]" * 600 + "}", "the arguments are nested too deeply"),
        ("[" * 100_000, "the arguments are nested too deeply"),
        ('{"a": ' + "1" * 5000 + "}", "a number has 5000 digits, at most 4300"),
    ],
    ids=["deep", "deeper", "long"],
)
def test_what_python_cannot_read_is_refused_in_plain_words(given: str, why: str) -> None:
    for schema in (None, {"properties": {"a": {}}, "additionalProperties": False}):
        with pytest.raises(ValueError, match=why):
            env.Call("1", "a", given, schema).parsed()


class Echoes:
    """An environment whose tool says what it is given."""

    def __init__(self) -> None:
        self.tools = {"echo": lambda a: a}

    def reset(self, task: env.Task) -> str:
        return "\ud800"

    def step(self, action: env.Action) -> env.Answer:
        raise AssertionError("its tools answer")


def test_half_a_surrogate_pair_is_answered() -> None:
    def said(arguments: str, schema: dict[str, Any] | None = None) -> str:
        message = adapted(Echoes)().step(env.Action(0, "", (env.Call("1", "echo", arguments, schema),)))["messages"][0]
        return str(message["content"])

    numbers = {"properties": {"a": {"type": "integer"}}, "additionalProperties": False}
    assert said(r'{"a": "\ud800"}', numbers) == 'error: `a` must be an integer, got "\ufffd"'
    assert said(r'{"\ud800": 1}', numbers) == "error: there is no `\ufffd`; the arguments are `a`"
    assert said(r'{"a": "\ud800!\ud83d\ude00\udc00"}') == "\ufffd!\U0001f600\ufffd"
    assert adapted(Echoes)().reset(env.Task("t", "", {}))["messages"][0]["content"] == "\ufffd"
    call = env.Call("1", "echo", "{}")
    assert _decided(["a"], "a", env.Action(0, "", (call,)), env.Next("a", "\ud800", answers={"1": "\udfff"}))["messages"] == [
        {"role": "tool", "content": "\ufffd", "tool_call_id": "1", "name": "echo"},
        {"role": "user", "content": "\ufffd"},
    ]


def test_arguments_that_would_take_too_long_stay_as_they_are() -> None:
    tree: dict[str, Any] = {"type": "integer"}
    for _ in range(14):
        tree = {"anyOf": [{"type": "array", "items": tree}, {"type": "array", "items": tree}]}
    given = '{"a": ' + "[" * 14 + '"1"' + "]" * 14 + "}"
    assert meant({"properties": {"a": tree}}, given) == json.loads(given)


def test_a_tool_is_called_with_what_was_meant() -> None:
    class Adds:
        def __init__(self) -> None:
            self.tools = {"add": lambda a, twice=False: repr((a, twice))}

        def reset(self, task: env.Task) -> str:
            return ""

        def step(self, action: env.Action) -> env.Answer:
            raise AssertionError("its tools answer")

    schema = {"type": "object", "properties": {"a": {"type": "integer"}, "twice": {"type": "boolean"}}, "additionalProperties": False}

    def said(arguments: str) -> tuple[str, bool]:
        call = env.Call("1", "add", arguments, schema)
        message = adapted(Adds)().step(env.Action(0, "", (call,)))["messages"][0]
        return message["content"], message.get("error", False)

    assert said('{"a": "3", "twice": "false"}') == ("(3, False)", False)
    assert said('{"a": 2.0}') == ("(2, False)", False)
    assert said('{"a": "many"}') == ('error: `a` must be an integer, got "many"', True)
    assert said('{"b": 1}') == ("error: there is no `b`; the arguments are `a`, `twice`", True)
