"""Publishing a policy version: its files go to the store, the wish to the intake, and the publisher says what became of it."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any

from .errors import NotFound, WeightsRejected
from .facts import CATALOGUE, subject
from .objects import Ref, put_weights, weights_key
from .plane import Plane
from .source import Source
from .weights import File, Weights, files

__all__ = ["publish"]

#: Bytes of a manifest at most.
MAX_MANIFEST = 1 << 20

#: Part of the files' bytes up to which a delta is worth its making.
WORTH = 0.7


async def publish(
    plane: Plane,
    policy: str,
    weights: Weights,
    run: str,
    version: int | None,
    through_step: int,
    metadata: dict[str, str],
    base: str | os.PathLike[str] | None = None,
    allow: Sequence[str] = (),
) -> int:
    """Publish a version and wait for its outcome; see AsyncClient.publish_weights."""
    last = await plane.log.last(CATALOGUE, subject(CATALOGUE, "weights.published", policy))
    newest = int(last.data["version"]) if last else 0
    if version is None:
        version = newest + 1
    wish: dict[str, Any] = {"version": version, "run": run, "through_step": through_step}
    if allow:
        wish["allow"] = list(allow)
    if base is not None and 0 < newest < version:
        blobs, made = await asyncio.to_thread(_delta, plane.objects, policy, weights, metadata, base)
        if made is not None:
            with suppress(WeightsRejected):  # by another base than the folder holds, for one: then the files go up
                return await _submit(plane, policy, {**wish, "delta": {"base": newest, "blob": made.told()}}, blobs)
    blobs = await asyncio.to_thread(_store, plane.objects, policy, weights, metadata)
    if version <= newest:
        await _same(plane, policy, version, newest, blobs)
        return version
    return await _submit(plane, policy, wish, blobs)


async def _submit(plane: Plane, policy: str, wish: dict[str, Any], blobs: dict[str, Ref]) -> int:
    """Submit a version and wait for its outcome."""
    version = int(wish["version"])
    wish = {**wish, "files": [{"name": name, "blob": ref.told()} for name, ref in blobs.items()]}
    answer = await plane.intake.state(CATALOGUE, "weights.submitted", policy, wish, id=uuid.uuid4().hex)
    async with aclosing(plane.log.follow(CATALOGUE, subject(CATALOGUE, "weights.*", policy), answer.sequence + 1)) as facts:
        async for fact in facts:
            if fact.type == "weights.rejected" and fact.data["version"] == version:
                raise WeightsRejected(f"policy {policy}: {fact.data['reason']}")
            if fact.type == "weights.published" and fact.data["version"] == version:
                await _same(plane, policy, version, version, blobs)
                return version
    raise AssertionError("following the log does not end")


def _delta(
    objects: Any, policy: str, weights: Weights, metadata: dict[str, str], base: str | os.PathLike[str]
) -> tuple[dict[str, Ref], Ref | None]:
    """Store a delta, and what is no tensor. References of the files, which the publisher is to make; None for a delta not worth it."""
    from .delta import EXTENSION, encode_files

    blobs: dict[str, Ref] = {}
    tensors = 0

    def noted() -> Iterator[File]:
        nonlocal tensors
        for file in files(weights, metadata):
            if not file.name.endswith(".safetensors"):
                blobs[file.name] = put_weights(objects, policy, file.data)
                continue
            with Source(file.data) as source:
                blobs[file.name] = Ref(weights_key(policy, source.sha256), source.sha256, source.size)
                tensors += source.size
            yield file

    with tempfile.TemporaryDirectory(prefix="rondo") as folder:
        path = Path(folder, f"new{EXTENSION}")
        with open(path, "wb") as out:
            encode_files(base, noted(), out)
        return blobs, put_weights(objects, policy, path) if path.stat().st_size <= tensors * WORTH else None


def _store(objects: Any, policy: str, weights: Weights, metadata: dict[str, str]) -> dict[str, Ref]:
    return {file.name: put_weights(objects, policy, file.data) for file in files(weights, metadata)}


async def _same(plane: Plane, policy: str, version: int, newest: int, blobs: dict[str, Ref]) -> None:
    """A version that was published with these files is published; one with others never will be."""
    published: dict[str, str] = {}
    with suppress(NotFound):
        manifest = await asyncio.to_thread(plane.objects.get, f"weights/{policy}/v{version:06}/manifest.json", MAX_MANIFEST)
        published = {f["name"]: f["sha256"] for f in json.loads(manifest)["files"]}
    if published != {name: ref.sha256 for name, ref in blobs.items()}:
        raise WeightsRejected(
            f"policy {policy}: version {version} {'has other content' if published else 'was left out'}, and version {newest} is published "
            "already: versions only grow, so leave the version out to get the next one"
        )
