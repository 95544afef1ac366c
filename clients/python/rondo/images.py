"""Images in the messages of a batch's samples."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .errors import Damaged, RondoError
from .objects import Ref, Store, fetch

__all__ = ["Image", "parse_images", "read_images"]

#: Kinds of images, and the bytes of the largest one.
MEDIA_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp")
MAX_IMAGE = 10 << 20


@dataclass(frozen=True)
class Image:
    """An image that the model saw: a blob of the object store, and what its header says."""

    ref: Ref
    media_type: str
    width: int
    height: int

    @classmethod
    def parse(cls, told: dict[str, Any]) -> Image:
        """Read an image as files and facts carry it. One that is no blob, or of another kind, is Damaged."""
        try:
            image = cls(Ref.parse(told), str(told["media_type"]), int(told["width"]), int(told["height"]))
        except (KeyError, TypeError, ValueError) as error:
            raise Damaged(f"image {str(told)[:200]}: {error!r}") from None
        blob = f"blobs/sha256/{image.ref.sha256[:2]}/{image.ref.sha256}"
        if image.ref.key != blob or image.media_type not in MEDIA_TYPES or not 0 < image.ref.size <= MAX_IMAGE:
            raise Damaged(f"image {str(told)[:200]}: no blob of {MAX_IMAGE} bytes at most, of one of {', '.join(MEDIA_TYPES)}")
        return image


def parse_images(texts: Sequence[str]) -> list[list[Image]]:
    """The images of each sample, of which a file has the JSON."""
    try:
        return [[Image.parse(told) for told in json.loads(text or "[]")] for text in texts]
    except (ValueError, TypeError) as error:
        raise Damaged(f"images: {error!r}") from None


def read_images(images: Sequence[Image], store: Store | None) -> dict[str, bytes]:
    """The bytes of images by their SHA-256, each of which is checked. Blocks."""
    if store is None and images:
        raise RondoError("images are in the object store: open the batch with a feed, or with open_batch(file, store=...)")
    return {image.ref.sha256: fetch(store, image.ref) for image in dict.fromkeys(images)} if store else {}
