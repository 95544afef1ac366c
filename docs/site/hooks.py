"""What the site has beside the pages of docs/: the README as its home, the map, and the Python reference.

The questions of the guide are its navigation. Links to files outside of docs/ lead to the repository.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from posixpath import normpath
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[2]
#: Pages that stand elsewhere in the repository, by their place in the site.
BORROWED = {"index.md": "README.md", "architecture.md": "ARCHITECTURE.md", "changes.md": "CHANGELOG.md"}
REFERENCE = "python.md"
LINK = re.compile(r"(?<!!)(\[[^\]\n]*\]\()(?!https?:|#|mailto:)([^)\s#]+)(#[^)\s]*)?\)")
ROW = re.compile(r"^\| (?P<question>[^|]+\?) \| (?P<pages>.+) \|$", re.MULTILINE)


def on_config(config: Any) -> Any:
    """Makes the navigation of the guide's questions."""
    guide = (ROOT / "docs/guide/README.md").read_text()
    questions = [
        {row["question"]: [f"guide/{page}" for page in re.findall(r"\]\(([\w-]+\.md)\)", row["pages"])]} for row in ROW.finditer(guide)
    ]
    decisions = sorted(p.name for p in (ROOT / "docs/decisions").glob("[0-9]*.md"))
    config.nav = [
        {"Home": "index.md"},
        {"Guide": ["guide/README.md", *questions]},
        {"Reference": [{"Python": REFERENCE}, "guarantees.md", "benchmarks.md", "scale.md", "dependencies.md", "upstream/README.md"]},
        {"Architecture": ["architecture.md", {"Decisions": ["decisions/README.md", *(f"decisions/{d}" for d in decisions)]}]},
        {"Changes": "changes.md"},
    ]
    return config


def on_files(files: Any, config: Any) -> Any:
    """Adds the pages that are not files of docs/."""
    for place, source in BORROWED.items():
        files.append(File.generated(config, place, content=(ROOT / source).read_text()))
    files.append(File.generated(config, REFERENCE, content=reference()))
    return files


def reference() -> str:
    """The Python reference: each public name of the package, in the order of the alphabet."""
    tree = ast.parse((ROOT / "clients/python/rondo/__init__.py").read_text())
    names = next(
        ast.literal_eval(node.value) for node in tree.body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    )
    return "\n\n".join(["# Python", ast.get_docstring(tree) or "", *(f"::: rondo.{name}" for name in names)])


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Turns links of the repository into links of the site, or of the repository's address."""
    place = page.file.src_uri
    here = BORROWED.get(place, f"docs/{place}")
    within = {source: target for target, source in BORROWED.items()}

    def link(found: re.Match[str]) -> str:
        before, path, anchor = found[1], found[2], found[3] or ""
        target = normpath(f"{Path(here).parent.as_posix()}/{path}")
        if target in within:
            inside = within[target]
        elif target.startswith("docs/") and (ROOT / target).is_dir() and (ROOT / target / "README.md").exists():
            inside = f"{target}/README.md".removeprefix("docs/")
        elif target.startswith("docs/"):
            inside = target.removeprefix("docs/")
        else:
            kind = "tree" if (ROOT / target).is_dir() else "blob"
            if not (ROOT / target).exists():
                raise ValueError(f"{here}: there is no {path}")
            return f"{before}{config.repo_url.rstrip('/')}/{kind}/main/{target}{anchor})"
        up = "../" * place.count("/")
        return f"{before}{up}{inside}{anchor})"

    return LINK.sub(link, markdown)
