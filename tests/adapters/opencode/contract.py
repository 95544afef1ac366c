"""opencode, which edits files, mends a task in a copy of the workspace."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from mended import mended

FILE = "lib/shorten.sh"
EDIT = {"filePath": FILE, "oldString": '-ge "$limit"', "newString": '-gt "$limit"'}
SCRIPT = [("read", {"filePath": FILE}), ("edit", EDIT), "It is mended."]

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as home:
        # opencode keeps its sessions at home, and would fetch a list of models.
        os.environ |= {
            "HOME": home,
            "XDG_DATA_HOME": home,
            "XDG_CONFIG_HOME": home,
            "XDG_STATE_HOME": home,
            "OPENCODE_DISABLE_MODELS_FETCH": "1",
        }
        mended({"opencode": lambda messages: SCRIPT[sum(m["role"] == "assistant" for m in messages)]})
