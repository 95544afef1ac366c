"""The guide's pages for users of other libraries lead to a first trained step. tests/adapters runs their trainers' lines in the trainers' own packages."""

from __future__ import annotations

import importlib.util
import random
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from .model import serving
from .pages import PAGES, TRAINER, files, followed

#: What stands in for a page's files, by the package that they need.
INSTEAD = {
    "from-trl": {"trl": {"train.py": TRAINER.format(run="sums")}},
}


def sums(messages: Sequence[Mapping[str, Any]]) -> str:
    """A model that adds, and is wrong now and then."""
    asked = re.search(r"(\d+) \+ (\d+)", str(messages[-1]["content"]))
    assert asked is not None, messages
    return str(int(asked[1]) + int(asked[2]) + random.choice((0, 0, 1)))


def test_all_pages_are_followed() -> None:
    assert len(PAGES) == 4 and PAGES == sorted(INSTEAD)


@pytest.mark.parametrize("page", PAGES)
def test_a_page_leads_to_a_trained_step(page: str, binary: str, tmp_path: Path) -> None:
    lacking = {name: text for package, given in INSTEAD[page].items() if importlib.util.find_spec(package) is None for name, text in given.items()}
    assert set(lacking) <= set(files(page))
    with serving(sums) as url, followed(page, tmp_path, binary, url, lacking) as told:
        assert told["rewards"] and 0 <= told["rewards"][0] <= 1, told
