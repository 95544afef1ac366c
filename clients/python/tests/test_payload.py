"""Bodies of facts: JSON, and packed ones."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from rondo.payload import MAGIC, payload

RECORDED = Path(__file__).parents[3] / "events" / "testdata"


def test_a_packed_turn_reads_as_its_json() -> None:
    want = json.loads((RECORDED / "turn.json").read_text())
    got = payload((RECORDED / "turn.packed").read_bytes())
    assert len(got["token_ids"]) == len(got["logprobs"]) == 60 and len(got["prompt_delta"]) == 40
    assert np.array_equal(np.float32(got.pop("logprobs")), np.float32(want.pop("logprobs")))
    assert got == want


def test_json_is_read_as_it_is() -> None:
    assert payload(b'{"turn":1,"token_ids":[1,2],"logprobs":[-0.5,0]}') == {"turn": 1, "token_ids": [1, 2], "logprobs": [-0.5, 0]}


def test_numbers_with_signs() -> None:
    """Three numbers: 0, -1.5 and 1."""
    low, middle, high = bytes(3), bytes(3), bytes([0, 0x80, 0])  # of the mantissas
    exponents = bytes([0, 127, 127])
    frame = pa.Codec("zstd").compress(low + middle + high + exponents + bytes([0b010]), asbytes=True)
    body = MAGIC + bytes([1, 2]) + b"{}" + bytes([1, 0, 0, 3, 1]) + frame
    assert payload(body) == {"logprobs": [0, -1.5, 1]}


def test_the_turns_of_a_fork() -> None:
    frame = pa.Codec("zstd").compress(bytes([1, 2, 3] + 9 * [0]), asbytes=True)
    body = MAGIC + bytes([1, 33]) + b'{"turns":[{"turn":0},{"turn":1}]}' + bytes([2, 1, 0, 0, 0, 2, 0, 0]) + frame
    assert payload(body)["turns"] == [{"turn": 0, "prompt_delta": [1]}, {"turn": 1, "token_ids": [2, 3]}]


@pytest.mark.parametrize("name", ["cut", "many", "turns", "bomb", "short", "rubbish", "list", "layout", "signs"])
def test_hostile_bodies_are_refused(name: str) -> None:
    def packed(document: bytes, lengths: bytes, content: bytes) -> bytes:
        frame = bytes(pa.Codec("zstd").compress(content, asbytes=True))
        return MAGIC + bytes([1, len(document)]) + document + lengths + frame

    two = bytes([1, 0, 2, 0, 0])
    assert payload(packed(b"{}", two, bytes(8))) == {"token_ids": [0, 0]}
    body = {
        "cut": MAGIC + b"\1\xff",
        "many": packed(b"{}", b"\1\0\xff\xff\xff\xff\x7f\0\0", bytes(8)),
        "turns": packed(b"{}", bytes([2, 0, 1, 0, 0, 1, 0, 0]), bytes(8)),
        "bomb": packed(b"{}", two, bytes(64 << 20)),
        "short": packed(b"{}", two, bytes(7)),
        "layout": MAGIC + b"\2\2{}" + two + bytes(8),
        "signs": MAGIC + b"\1\2{}" + two[:-1] + b"\2" + bytes(8),
        "rubbish": MAGIC + b"\1\2{}" + two + b"rubbish",
        "list": packed(b"[]", two, bytes(8)),
    }[name]
    with pytest.raises(ValueError, match="packed tokens"):
        payload(body)
