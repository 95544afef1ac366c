"""What a model writes as arguments, and what they mean by the schema: the cases of the tool runner's own tools."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rondo import env
from rondo.env.arguments import meant
from rondo.env.environment import adapted

TABLE = json.loads((Path(__file__).parents[3] / "sandbox/tools/testdata/arguments.json").read_text())


@pytest.mark.parametrize("case", TABLE["cases"], ids=[case["given"] for case in TABLE["cases"]])
def test_arguments_mean_what_the_tool_runner_takes_them_for(case: dict[str, Any]) -> None:
    given = case["given"]
    if "refused" in case:
        with pytest.raises(ValueError, match="must be|there is no") as refused:
            meant(TABLE["schema"], given)
        assert str(refused.value) == case["refused"]
        return
    try:
        want = case["meant"] if "meant" in case else json.loads(given or "{}")
    except ValueError:
        with pytest.raises(json.JSONDecodeError):
            meant(TABLE["schema"], given)
        return
    got = meant(TABLE["schema"], given)
    assert json.dumps(got, sort_keys=True) == json.dumps(want, sort_keys=True)
    assert meant(TABLE["schema"], json.dumps(got)) == got


def test_a_schema_that_refers_to_itself_says_nothing() -> None:
    itself = {"$ref": "#/properties/a"}
    for schema in (itself, {"anyOf": [itself, itself]}):
        assert meant({"properties": {"a": schema}}, '{"a": "1"}') == {"a": "1"}


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
