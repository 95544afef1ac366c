"""Puts Rondo's programs into a wheel where RONDO_WHEEL_PROGRAMS names a folder that has them; RONDO_WHEEL_PLATFORM is what they run on.

Without these the wheel is the client alone, for every system. `clients/python/wheels` builds both kinds.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

#: The program, and the first process of its sandboxes, which it looks for beside itself.
PROGRAMS = ("rondo", "rondo-sandbox-init")


class Programs(BuildHookInterface):  # type: ignore[type-arg]
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the programs as scripts, and name the platform in the wheel's tag."""
        folder, platform = os.environ.get("RONDO_WHEEL_PROGRAMS", ""), os.environ.get("RONDO_WHEEL_PLATFORM", "")
        if bool(folder) != bool(platform):
            raise ValueError("set both RONDO_WHEEL_PROGRAMS and RONDO_WHEEL_PLATFORM, or neither")
        if self.target_name != "wheel" or version == "editable" or not folder:
            return
        paths = [Path(folder) / name for name in PROGRAMS]
        if missing := [str(path) for path in paths if not path.is_file()]:
            raise ValueError(f"there is no {' and no '.join(missing)}: build ./cmd/... into {folder}")
        build_data["shared_scripts"].update({str(path): path.name for path in paths})
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform}"
