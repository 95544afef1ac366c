"""What a call's arguments mean by the schema that the model was shown.

What can mean one thing only becomes that, and anything else is refused in the schema's words.
Parsers of some engines write every argument as a text, or the whole object as one. The tool runner has the same rules for its own tools
(sandbox/tools/meant.go), and both are held to the same cases.
"""

from __future__ import annotations

import copy
import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["meant", "unicode"]

#: Texts around an object of arguments, references that lead to one another, things that are wrong with a call as the model is told,
#: bytes of a value that is wrong.
_QUOTED, _REFERENCES, _WRONG, _SHOWN = 3, 16, 8, 80

#: What checking arguments may cost: the schema's cost, times the arguments' bytes. It is a sixteenth of the tool runner's bound
#: (sandbox/tools/cost.go), as Python is slower, and other episodes wait for it: this much takes some seconds at worst.
_CHECKING = 1 << 20


@dataclass(frozen=True)
class _Number:
    """A number as it is written."""

    text: str

    def whole(self) -> _Number | None:
        """A number without a fraction in digits alone."""
        if not any(sign in self.text for sign in ".eE"):
            return self
        value = float(self.text)
        return _Number(str(int(value))) if abs(value) <= 1 << 53 and value == int(value) else None

    def value(self) -> int | float:
        if any(sign in self.text for sign in ".eE"):
            return float(self.text)
        try:
            return int(self.text)
        except ValueError:
            raise ValueError(f"a number has {len(self.text)} digits, at most {sys.get_int_max_str_digits()}") from None


def meant(schema: Mapping[str, Any], arguments: str) -> dict[str, Any]:
    """The arguments as the schema lets them mean, or as they are where checking them would take too long.

    ValueError where they are no JSON, or none of the tool's.
    """
    try:
        return _fitting(schema, arguments)
    except RecursionError:
        raise ValueError("the arguments are nested too deeply") from None


def _fitting(schema: Mapping[str, Any], arguments: str) -> dict[str, Any]:
    given = _unquoted(arguments)
    twice = _given_twice(arguments)
    if twice is not None:
        raise ValueError(f"{_called(twice)} is given twice")
    fit = _Fit(schema)
    if given is None:  # as of a call without arguments
        given = {}
    if not isinstance(given, dict):
        fit.must("", "object", given)
    elif _checkable(schema, arguments):
        given = fit.object(schema, given, "")
    if fit.wrong:
        more = [f"and {len(fit.wrong) - _WRONG} more"] if len(fit.wrong) > _WRONG else []
        raise ValueError("; ".join(fit.wrong[:_WRONG] + more))
    plain: dict[str, Any] = _plain(given)
    return plain


def _checkable(schema: Mapping[str, Any], arguments: str) -> bool:
    """Whether arguments can be checked by a schema: one of a kilobyte may take hours."""
    try:
        cost = _cost(schema, schema, {})
    except RecursionError:
        return False
    return cost * (len(arguments.encode(errors="replace")) + 1) <= _CHECKING


def _cost(root: Any, node: Any, known: dict[str, float]) -> float:
    """What a schema costs as if every reference in it were written out; infinite is what refers to itself, or is not understood."""
    cost = 1.0
    if isinstance(node, list):
        cost += sum(_cost(root, one, known) for one in node)
    elif isinstance(node, Mapping):
        for key, value in node.items():
            if key == "$ref" and isinstance(value, str):
                if value not in known:
                    known[value] = math.inf  # while it is being weighed: it refers to itself
                    known[value] = sum(_cost(root, one, known) for one in _pointed(root, value)) or math.inf
                cost += known[value]
            elif key in ("$dynamicRef", "$recursiveRef") or (key == "$id" and isinstance(value, str)):
                return math.inf
            else:
                cost += _cost(root, value, known)
    return cost


def _pointed(root: Any, reference: str) -> list[Any]:
    """What a reference into a schema means, alone in a list; an empty one where it is not written plainly."""
    place = reference[1:]
    if not reference.startswith("#") or (place and place[0] != "/") or "%" in place or "~" in place:
        return []
    for step in place.split("/")[1:]:
        if not isinstance(root, Mapping):
            return []
        root = root.get(step)
    return [root]


def _unquoted(arguments: str) -> Any:
    """Read arguments that may be a text in a text."""
    given: Any = None
    for _ in range(_QUOTED):
        given = _value(arguments.strip() or "{}")
        if not isinstance(given, str):
            return given
        try:
            inner = _value(given.strip() or "{}")
        except ValueError:
            return given
        if not isinstance(inner, (str, dict)):
            return given
        arguments = given
    return given


def _given_twice(arguments: str) -> str | None:
    """The first argument that an object has twice. Decoders take the last of them, whatever the model meant."""
    names: list[str] = []

    def pairs(found: list[tuple[str, Any]]) -> None:
        names[:] = [name for name, _ in found]  # those of the outermost object come last

    if arguments.lstrip().startswith("{"):
        json.loads(arguments, parse_int=str, parse_float=str, object_pairs_hook=pairs)
    return next((name for i, name in enumerate(names) if name in names[:i]), None)


def _value(text: str) -> Any:
    def none(word: str) -> Any:
        raise ValueError(f"{word} is no JSON")

    return json.loads(text, parse_int=_Number, parse_float=_Number, parse_constant=none)


def _inside(text: str) -> Any:
    """The value that a text is one of in JSON; None where it is none."""
    try:
        return _value(text)
    except ValueError:
        return None


def _plain(value: Any) -> Any:
    if isinstance(value, _Number):
        return value.value()
    if isinstance(value, dict):
        return {unicode(name): _plain(one) for name, one in value.items()}
    if isinstance(value, str):
        return unicode(value)
    return [_plain(one) for one in value] if isinstance(value, list) else value


def _numbered(value: Any) -> Any:
    """A value of a schema, its numbers as those of arguments."""
    return _value(json.dumps(value))


def _encoded(value: Any) -> str:
    if isinstance(value, _Number):
        return value.text
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(name, ensure_ascii=False)}:{_encoded(value[name])}" for name in sorted(value)) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_encoded, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def _types(schema: Mapping[str, Any]) -> list[str]:
    named = schema.get("type")
    return [named] if isinstance(named, str) else [one for one in _list(named) if isinstance(one, str)]


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _is(kind: str, value: Any) -> bool:
    """Whether a value has a type of JSON Schema."""
    if isinstance(value, _Number):
        return kind == "number" or (kind == "integer" and value.whole() is not None)
    names = {type(None): "null", bool: "boolean", str: "string", list: "array", dict: "object"}
    return names[type(value)] == kind


def _is_null(value: Any) -> bool:
    return value is None or value in ("null", "None")


def unicode(text: str) -> str:
    """A text that can be encoded: the halves of surrogate pairs in it are replaced by U+FFFD."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _cut(text: str) -> str:
    text = unicode(text)
    data = text.encode()
    return text if len(data) <= _SHOWN else data[:_SHOWN].decode(errors="ignore") + "…"


def _called(at: str) -> str:
    return f"`{_cut(at)}`" if at else "the arguments"


def _article(kinds: Sequence[str]) -> str:
    return " or ".join(kind if kind == "null" else ("an " if kind[:1] in "aeiou" else "a ") + kind for kind in kinds)


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, str):
        return json.dumps(_cut(value), ensure_ascii=False)
    return "an empty array" if value == [] else _cut(_encoded(value))


@dataclass
class _Fit:
    """Brings a value into the form of a schema."""

    root: Mapping[str, Any]
    changed: bool = False
    wrong: list[str] = field(default_factory=list)

    def must(self, at: str, want: str, got: Any) -> None:
        self.wrong.append(f"{_called(at)} must be {_article([want])}, got {_shown(got)}")

    def value(self, schema: Any, value: Any, at: str) -> Any:
        """What a value means by a schema. A schema that is not understood lets it be."""
        s = self._resolved(schema)
        if s is None:
            return value
        for part in _list(s.get("allOf")):
            value = self.value(part, value, at)
        if options := _list(s.get("anyOf")) + _list(s.get("oneOf")):
            value = self._either(options, value, at)
        kinds = _types(s)
        value = self._typed(s, kinds, value, at) if kinds else self._member(s, value, at)
        if isinstance(value, dict):
            return self.object(s, value, at)
        if isinstance(value, list) and "prefixItems" not in s and s.get("items") is not None:
            return [self.value(s["items"], one, f"{at}[{i}]") for i, one in enumerate(value)]
        return value

    def _resolved(self, schema: Any) -> Mapping[str, Any] | None:
        """A schema behind its references, where they are written plainly."""
        for _ in range(_REFERENCES):
            if not isinstance(schema, Mapping):
                return None
            reference = schema.get("$ref")
            if not isinstance(reference, str):
                return schema
            schema = next(iter(_pointed(self.root, reference)), None)
        return None

    def _either(self, options: Sequence[Any], value: Any, at: str) -> Any:
        """What fits one of several schemas as it is, else what all of those that it can be made to fit make of it."""
        made: list[Any] = []
        for option in options:
            attempt = _Fit(self.root)
            got = attempt.value(option, copy.deepcopy(value), at)
            if attempt.wrong:
                continue
            if not attempt.changed:
                return value
            made.append(got)
        if not made or any(_encoded(one) != _encoded(made[0]) for one in made):
            self.wrong.append(f"{_called(at)} must be {self._alternatives(options)}, got {_shown(value)}")
            return value
        self.changed = True
        return made[0]

    def _alternatives(self, options: Sequence[Any]) -> str:
        names = {_article([kind]) for option in options for kind in _types(self._resolved(option) or {})}
        return " or ".join(sorted(names)) or "one of what its schema names"

    def _member(self, s: Mapping[str, Any], value: Any, at: str) -> Any:
        """A value of a list without types, found by its text."""
        values = _numbered([s["const"]] if "const" in s else _list(s.get("enum")))
        if not values or any(_encoded(one) == _encoded(value) for one in values):
            return value
        for one in values:
            if isinstance(value, str) and _encoded(one) == value.strip():
                self.changed = True
                return one
        self.wrong.append(f"{_called(at)} must be one of {_shown(values)}, got {_shown(value)}")
        return value

    def _typed(self, s: Mapping[str, Any], kinds: Sequence[str], value: Any, at: str) -> Any:
        """A value of one of some types: as it is, or what it can mean alone."""
        if any(_is(kind, value) for kind in kinds):
            whole = value.whole() if isinstance(value, _Number) else None
            if whole is not None and "number" not in kinds and whole != value:
                self.changed = True
                return whole
            return value
        made = [got for kind in kinds for got in self._converted(s, kind, value)]
        if not made or any(_encoded(one) != _encoded(made[0]) for one in made):
            self.wrong.append(f"{_called(at)} must be {_article(kinds)}, got {_shown(value)}")
            return value
        self.changed = True
        return made[0]

    def _converted(self, s: Mapping[str, Any], to: str, value: Any) -> list[Any]:
        """What a value of another type means as one of a type, alone in a list; an empty one where that is nothing, or not one thing."""
        is_text = isinstance(value, str)
        text = value.strip() if is_text else ""
        inside = _inside(text) if is_text else None
        match to:
            case "integer" if isinstance(inside, _Number):
                whole = inside.whole()
                return [] if whole is None else [whole]
            case "number" if isinstance(inside, _Number):
                return [inside]
            case "boolean":
                if isinstance(value, _Number):
                    text = value.text
                named = {"true": True, "1": True, "false": False, "0": False}
                return [named[text.lower()]] if text.lower() in named else []
            case "string" if isinstance(value, _Number):
                return [value.text]
            case "string" if isinstance(value, bool):
                return ["true" if value else "false"]
            case "null" if is_text and text in ("null", "None"):
                return [None]
            case "object" if isinstance(inside, dict):
                return [inside]
            case "array":
                return self._listed(s, value, text, inside)
        return []

    def _listed(self, s: Mapping[str, Any], value: Any, text: str, inside: Any) -> list[Any]:
        """A list that was written as a text, or the one entry that stands for a list of it."""
        if isinstance(inside, list):
            return [inside]
        if isinstance(inside, dict) and isinstance(value, str):
            value = inside
        if value is None or (isinstance(value, str) and (not text or text[0] in "[{")):
            return []
        items = self._resolved(s.get("items"))
        if items is None:
            return [[value]] if s.get("items") is None else []
        # One entry does not say how deep it lies.
        fits = any(kind != "array" and (_is(kind, value) or self._converted(items, kind, value)) for kind in _types(items))
        return [[value]] if fits else []

    def object(self, s: Mapping[str, Any], given: dict[str, Any], at: str) -> dict[str, Any]:
        """An object whose fields fit. One that is null where the schema has no null is left out."""
        properties = s.get("properties") if isinstance(s.get("properties"), Mapping) else {}
        assert properties is not None
        open_names, made = bool(s.get("patternProperties")), dict(given)
        for name in sorted(given):
            schema = properties.get(name)
            if name not in properties and not open_names:
                schema = s.get("additionalProperties")
                if schema is False:
                    same = [other for other in properties if other.casefold() == name.casefold()]
                    if len(same) != 1 or same[0] in made:
                        self.wrong.append(_unknown(at, name, properties))
                        continue
                    made[same[0]], schema, self.changed = made.pop(name), properties[same[0]], True
                    name = same[0]
            attempt = _Fit(self.root)
            value = attempt.value(schema, made[name], f"{at}.{name}" if at else name)
            odd, optional = bool(attempt.wrong), name not in _list(s.get("required"))
            if (made[name] is None and odd) or (_is_null(made[name]) and optional and (odd or attempt.changed)):
                del made[name]
                self.changed = True
                continue
            made[name] = value
            self.changed |= attempt.changed
            self.wrong += attempt.wrong
        return made


def _unknown(at: str, name: str, properties: Mapping[str, Any]) -> str:
    place = f"the fields of {_called(at)}" if at else "the arguments"
    known = ", ".join(f"`{_cut(one)}`" for one in sorted(properties))
    return f"there is no `{_cut(name)}`; {place} are {known or 'none'}"
