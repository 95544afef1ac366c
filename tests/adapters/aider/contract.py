"""aider, which edits files, mends a task in a copy of the workspace."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # or litellm fetches prices

from mended import mended

EDIT = """The comparison is one too strict.

lib/shorten.sh
```
<<<<<<< SEARCH
		if [ "${#longer}" -ge "$limit" ]; then
=======
		if [ "${#longer}" -gt "$limit" ]; then
>>>>>>> REPLACE
```
"""


def script(messages: list[dict[str, Any]]) -> str:
    """Ask for the file until it is shown, and then edit it."""
    return EDIT if any('-ge "$limit"' in str(m.get("content")) for m in messages) else "Add lib/shorten.sh to the chat."


if __name__ == "__main__":
    mended({"aider_chat": script})
