"""Publishing a policy version: its files go to the store, the wish to the intake, and the publisher says what became of it."""

from __future__ import annotations

import asyncio
import json
import uuid
from contextlib import aclosing, suppress
from typing import Any

from .errors import NotFound, WeightsRejected
from .facts import CATALOGUE, subject
from .objects import Ref, put_weights
from .plane import Plane
from .weights import Weights, files

__all__ = ["publish"]

#: Bytes of a manifest at most.
MAX_MANIFEST = 1 << 20


async def publish(
    plane: Plane, policy: str, weights: Weights, run: str, version: int | None, through_step: int, metadata: dict[str, str]
) -> int:
    """Publish a version and wait for its outcome; see AsyncClient.publish_weights."""
    blobs = await asyncio.to_thread(_store, plane.objects, policy, weights, metadata)
    last = await plane.log.last(CATALOGUE, subject(CATALOGUE, "weights.published", policy))
    newest = int(last.data["version"]) if last else 0
    if version is None:
        version = newest + 1
    if version <= newest:
        await _same(plane, policy, version, newest, blobs)
        return version
    wish = {
        "version": version,
        "run": run,
        "through_step": through_step,
        "files": [{"name": name, "blob": ref.told()} for name, ref in blobs.items()],
    }
    answer = await plane.intake.state(CATALOGUE, "weights.submitted", policy, wish, id=uuid.uuid4().hex)
    async with aclosing(plane.log.follow(CATALOGUE, subject(CATALOGUE, "weights.*", policy), answer.sequence + 1)) as facts:
        async for fact in facts:
            if fact.type == "weights.rejected" and fact.data["version"] == version:
                raise WeightsRejected(f"policy {policy}: {fact.data['reason']}")
            if fact.type == "weights.published" and fact.data["version"] == version:
                await _same(plane, policy, version, version, blobs)
                return version
    raise AssertionError("following the log does not end")


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
