"""Published versions of a policy, for the inference servers that take them up."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .errors import Damaged, NotFound, RolledBack
from .facts import CATALOGUE, Fact, subject
from .objects import Ref, Store, fetch, save
from .plane import Plane
from .weights import NAME

__all__ = ["Version", "follow", "latest"]


@dataclass(frozen=True)
class Version:
    """A policy version that inference servers may load. Its files are read and verified when they are asked for; that blocks.

    run, through_step: the run and the last of its feed's steps that the weights were trained on. files: by the name that an
    inference server looks for, `model.safetensors` or shards with their index, and whatever was published beside them.
    """

    policy: str
    version: int
    run: str
    through_step: int
    files: Mapping[str, Ref]
    _store: Store = field(repr=False, compare=False)

    def read(self, name: str) -> bytes:
        """The bytes of a file. NotFound; Damaged when they are not those that were published."""
        if name not in self.files:
            raise NotFound(f"version {self.version} of policy {self.policy} has no file {name!r}, but {', '.join(sorted(self.files))}")
        return fetch(self._store, self.files[name])

    def load(self, framework: str = "numpy") -> dict[str, Any]:
        """All tensors by name, as arrays or, where the framework is torch, as tensors. numpy has no bfloat16."""
        if framework == "torch":
            from safetensors.torch import load
        elif framework == "numpy":
            from safetensors.numpy import load
        else:
            raise ValueError(f"framework {framework!r}: must be numpy or torch")
        tensors: dict[str, Any] = {}
        for name in sorted(self.files):
            if name.endswith(".safetensors"):
                tensors.update(load(self.read(name)))
        return tensors

    def download(self, folder: str | os.PathLike[str]) -> Path:
        """Write the files into a folder, as inference servers load them; the folder.

        Each file appears whole or not at all. A download that was interrupted goes on when it is repeated.
        """
        place = Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        for name, ref in self.files.items():
            whole, part = place / name, place / f".{name}.part"
            marker = place / f".{name}.sha256"
            if whole.is_file() and marker.is_file() and marker.read_text() == ref.sha256:
                continue
            save(self._store, ref, part)
            marker.unlink(missing_ok=True)
            os.replace(part, whole)
            marker.write_text(ref.sha256)
        return place


async def latest(plane: Plane, policy: str) -> Version | None:
    """The version that was published last; None before the first."""
    fact = await plane.log.last(CATALOGUE, subject(CATALOGUE, "weights.published", policy))
    return await _version(plane, fact) if fact else None


async def follow(plane: Plane, policy: str, after: int) -> AsyncGenerator[Version, None]:
    """The last version behind `after`, and those that follow; of several that were published meanwhile only the last.

    RolledBack where one that was given is not the policy's any more: the next ones have its number, or lower ones.
    """
    published, given, place = subject(CATALOGUE, "weights.published", policy), after, 1
    read: Fact | None = None
    while True:
        fact = await plane.log.last(CATALOGUE, published)
        if read is not None and (fact is None or (not fact.same(read) and int(fact.data["version"]) <= int(read.data["version"]))):
            now = f"another version {fact.data['version']} is the last one" if fact else "there is none"
            raise RolledBack(f"policy {policy} was rolled back: version {read.data['version']} was read, and {now}; see `rondo doctor`")
        if fact is not None:
            read, place = fact, fact.sequence + 1
            if int(fact.data["version"]) > given:
                given = int(fact.data["version"])
                yield await _version(plane, fact)
                continue  # another one may have come while this one was loaded
        async with aclosing(plane.log.follow(CATALOGUE, published, place, read=read)) as facts:
            await anext(facts)


async def _version(plane: Plane, fact: Fact) -> Version:
    told = fact.data
    manifest = json.loads(await asyncio.to_thread(fetch, plane.objects, Ref.parse(told["manifest"])))
    files = {str(f["name"]): Ref.parse(f) for f in manifest["files"]}
    for name in files:  # they become names in a folder of ours
        if not NAME.fullmatch(name):
            raise Damaged(f"version {told['version']} of policy {told['policy']}: file name {name[:140]!r}")
    return Version(str(told["policy"]), int(told["version"]), str(told["run"]), int(told["through_step"]), files, plane.objects)
