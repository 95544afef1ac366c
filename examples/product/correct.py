"""A user who corrects the agent in a repository of their own: python3 correct.py RUN.

The user asks for a change, looks at the answer, makes the change with a test for it, and hands in the files as they are in the end.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import rondo

PLANE = os.environ.get("PLANE", "/srv/rondo")

BEGAN = {
    "stock.py": "def take(stock, item, n):\n    stock[item] -= n\n    return True\n",
    "test_stock.py": """import unittest
from stock import take


class TestTake(unittest.TestCase):
    def test_take(self):
        stock = {"bolt": 3}
        self.assertTrue(take(stock, "bolt", 2))
        self.assertEqual(stock["bolt"], 1)
""",
}

CORRECTED = {
    "stock.py": "def take(stock, item, n):\n    if stock[item] < n:\n        return False\n    stock[item] -= n\n    return True\n",
    "test_many.py": """import unittest
from stock import take


class TestMany(unittest.TestCase):
    def test_many(self):
        stock = {"bolt": 1}
        self.assertFalse(take(stock, "bolt", 2))
        self.assertEqual(stock["bolt"], 1)
""",
}

WISH = "In stock.py a user can take more of an item than there is. Refuse that, and leave the stock as it is."


def write(folder: Path, files: dict[str, str]) -> None:
    """Write files of the user's."""
    for name, text in files.items():
        (folder / name).write_text(text)


def main(run: str) -> None:
    """Ask, correct, and hand in what came of it."""
    with rondo.Client(PLANE, source="product") as client, tempfile.TemporaryDirectory() as folder:
        code = Path(folder)
        write(code, BEGAN)
        task = client.config(run)["tasks"][0]["name"]  # of which the query has the environment and the limits
        query = client.submit_query(run, WISH, task=task, name="stock", session="b1", consent=True, repository=code)
        rollout, _ = client.answer(run, query, timeout=600)
        write(code, CORRECTED)
        client.record_feedback(run, rollout, "follow_up", reward=0.25, text="I have done it myself.", repository=code)
        print(f"b1: corrected, rollout {rollout}")


if __name__ == "__main__":
    main(sys.argv[1])
