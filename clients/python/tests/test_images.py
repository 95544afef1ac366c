"""Images of a batch's samples: their bytes, and what refuses to train without them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import rondo
from rondo.adapters.openrlhf import to_openrlhf
from rondo.adapters.trl import to_trl
from rondo.objects import Store, open_store, put_blob

from . import handmade

DATA = b"\x89PNG\r\n\x1a\n of some kind"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(str(tmp_path))


def told(store: Store, **change: Any) -> dict[str, Any]:
    return {**put_blob(store, DATA).told(), "media_type": "image/png", "width": 3, "height": 2, "at": 7} | change


def pictured(store: Store | None, image: object) -> rondo.Batch:
    """The handmade batch, whose first sample shows an image twice."""
    rows = handmade.rows()
    for i, row in enumerate(rows):
        row["images"] = "" if i else json.dumps([image, image])
    return rondo.open_batch(handmade.file(rows, handmade.SCHEMA.append(pa.field("images", pa.string())), images="2"), store=store)


def test_bytes_of_images(store: Store) -> None:
    batch = pictured(store, told(store))
    assert [len(row) for row in batch.images] == [2] + [0] * (len(batch) - 1)
    image = batch.images[0][0]
    assert (image.media_type, image.width, image.height, image.ref.size) == ("image/png", 3, 2, len(DATA))
    assert batch.image_bytes() == {image.ref.sha256: DATA}
    with pytest.raises(rondo.RondoError, match="open the batch with a feed"):
        pictured(None, told(store)).image_bytes()
    plain = rondo.open_batch(handmade.file(handmade.rows()))
    assert plain.images == [[]] * len(plain) and plain.image_bytes() == {}


@pytest.mark.parametrize(
    "change",
    [{"media_type": "image/svg+xml"}, {"ref": "runs/r/trajectories/a.arrow"}, {"size": 11 << 20}, {"width": "wide"}, {"sha256": "x"}],
    ids=str,
)
def test_what_is_no_image_is_damaged(store: Store, change: dict[str, Any]) -> None:
    with pytest.raises(rondo.Damaged):
        _ = pictured(store, told(store, **change)).images


def test_a_file_without_its_column_is_damaged() -> None:
    with pytest.raises(rondo.Damaged, match="column images"):
        rondo.open_batch(handmade.file(handmade.rows(), images="1"))


def test_adapters_refuse_what_they_would_lose(store: Store) -> None:
    batch = pictured(store, told(store))
    for adapt in (to_trl, to_openrlhf):
        with pytest.raises(ValueError, match="images"):
            adapt(batch)


def test_a_trainer_says_that_it_takes_images(tmp_path: Path) -> None:
    for vision, images, observe, taken in (
        (True, False, False, False),
        (True, True, False, True),
        (True, False, True, True),
        (False, False, False, True),
    ):
        feed = rondo.AsyncFeed("r", "trainer", dir=tmp_path, images=images, observe=observe)
        feed._config = {"feeds": [{"name": "trainer"}], "vision": vision}
        if taken:
            feed._check_place()
        else:
            with pytest.raises(rondo.RondoError, match="vision: true"):
                feed._check_place()
