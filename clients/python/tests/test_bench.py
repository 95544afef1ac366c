"""The measurement of reading batches."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import rondo
from rondo import bench
from rondo.objects import open_store, put_blob

from . import handmade


def test_pull(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = open_store(str(tmp_path))
    refs = [put_blob(store, handmade.file(handmade.rows(), step=str(i))) for i in range(3)]
    files = tmp_path / "list.json"
    files.write_text(json.dumps([ref.told() for ref in refs]))
    assert bench.main(["pull", "--store", str(tmp_path), "--files", str(files)]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["tokens"] == 60 and told["seconds"] > 0
    store.put(refs[1].key, b"x" * refs[1].size)
    with pytest.raises(rondo.Damaged):
        bench.main(["pull", "--store", str(tmp_path), "--files", str(files)])
