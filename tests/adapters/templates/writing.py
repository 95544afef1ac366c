"""Renders templates with transformers' settings of jinja2.

Transformers itself refuses templates that append to a list, such as llama.cpp's for Kimi K2.
"""

from __future__ import annotations

import json
from datetime import datetime
from functools import cache
from typing import Any, NoReturn

import jinja2
import jinja2.ext
import jinja2.sandbox


def refuse(reason: str) -> NoReturn:
    raise jinja2.TemplateError(reason)


def as_json(
    value: Any, ensure_ascii: bool = False, indent: int | None = None, separators: tuple[str, str] | None = None, sort_keys: bool = False
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


@cache
def template(source: str) -> jinja2.Template:
    environment = jinja2.sandbox.SandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols])
    environment.filters["tojson"] = as_json
    environment.filters["from_json"] = json.loads
    environment.globals["raise_exception"] = refuse
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return environment.from_string(source)
