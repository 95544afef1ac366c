"""The program under test, for contracts that need a live plane."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def binary(folder: Path) -> str:
    """The program rondo, with the first process of its sandboxes beside it."""
    if given := os.environ.get("RONDO_BINARY"):
        return given
    if shutil.which("go") is None:
        sys.exit("there is no go command to build rondo with, and no RONDO_BINARY")
    for name in ("rondo", "rondo-sandbox-init"):
        subprocess.run(["go", "build", "-o", str(folder / name), f"./cmd/{name}"], cwd=ROOT, check=True)
    return str(folder / "rondo")
