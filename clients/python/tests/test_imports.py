"""The modules of the package import each other in one direction."""

from __future__ import annotations

import ast
import importlib.util
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import rondo

PACKAGE = Path(rondo.__file__).parent
#: Modules by their dotted names, without __init__.py, which imports them all.
MODULES = {".".join(path.relative_to(PACKAGE).with_suffix("").parts): path for path in PACKAGE.rglob("*.py") if path.name != "__init__.py"}


def imports(name: str, text: str, known: set[str]) -> set[str]:
    """The modules of the package that a module imports anywhere: also in its functions, and for types alone."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {alias.name.removeprefix("rondo.") for alias in node.names if alias.name.startswith("rondo.")}
        elif isinstance(node, ast.ImportFrom) and (node.level or (node.module or "").split(".")[0] == "rondo"):
            base = name.split(".")[: -node.level] if node.level else []
            path = [*base, *(node.module or "").removeprefix("rondo").strip(".").split(".")] if node.module else base
            found |= {".".join(path), *(".".join([*path, alias.name]) for alias in node.names)}
    return found & known


def cycle(texts: dict[str, str]) -> list[str]:
    """Modules that import each other in a circle; none where there is no circle."""
    try:
        TopologicalSorter({name: imports(name, text, set(texts)) for name, text in texts.items()}).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_no_module_imports_itself_by_way_of_others() -> None:
    texts = {name: path.read_text() for name, path in MODULES.items()}
    assert "objects" in imports("feed", texts["feed"], set(texts)), "the imports are not seen"
    assert "batch" in imports("adapters.layout", texts["adapters.layout"], set(texts))
    assert cycle(texts) == []


@pytest.mark.parametrize(
    "second",
    [
        "from .a import x",
        "from . import a",
        "import rondo.a",
        "from rondo.a import x",
        "def f():\n    from .a import x",
        "if TYPE:\n    from .a import x",
    ],
)
def test_a_circle_is_found(second: str) -> None:
    assert cycle({"a": "from .b import y", "b": second})
    assert cycle({"a": "from .b import y", "b": "import os"}) == []


#: Imports each module named on the command line into an empty package, so that no other module of it was there before.
ALONE = """
import importlib, sys, types
for name in sys.argv[2:]:
    for loaded in [m for m in sys.modules if m.split(".")[0] == "rondo"]:
        del sys.modules[loaded]
    for package in ("rondo", "rondo.adapters"):
        empty = types.ModuleType(package)
        empty.__path__ = [sys.argv[1] + "/" + package.replace(".", "/")]
        sys.modules[package] = empty
    importlib.import_module("rondo." + name)
"""


#: Modules that are for another package, which may not be here.
NEED = (
    ("tensors", "torch"),
    ("patches", "torch"),
    ("weight_transfer", "vllm"),
    ("nemo_gym", "nemo_gym"),
    ("harbor", "harbor"),
    ("verl", "verl"),
    ("transfer_queue", "transfer_queue"),
    ("atropos", "atroposlib"),
    ("env_server", "verifiers"),
)


def test_each_module_can_be_imported_alone() -> None:
    names = sorted(MODULES)
    for name, package in NEED:
        if importlib.util.find_spec(package) is None:
            names.remove(name)
    done = subprocess.run([sys.executable, "-c", ALONE, str(PACKAGE.parent), *names], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
