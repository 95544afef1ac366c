"""Weights as files, and their way to a published version."""

from __future__ import annotations

import json
import queue
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import deserialize
from safetensors.numpy import load, save_file

import rondo
from rondo import weights

from .conftest import Plane


def written(tensors: dict[str, Any], shard: int = weights.SHARD, **metadata: str) -> dict[str, bytes]:
    return {file.name: file.data for file in weights.files(tensors, metadata, shard) if isinstance(file.data, bytes)}


def test_arrays_of_all_kinds_come_back() -> None:
    rng = np.random.default_rng(0)
    tensors: dict[str, Any] = {
        "float": rng.random((3, 4), np.float32),
        "half": rng.random(5).astype(np.float16),
        "transposed": rng.random((3, 4)).T,
        "big-endian": rng.random(3).astype(">f4"),
        "integers": np.arange(4),
        "bytes": np.arange(3, dtype=np.uint8),
        "bools": np.array([True, False]),
        "scalar": np.float32(2.5),
        "empty": np.zeros((0, 3), np.float32),
    }
    [(name, data)] = written(tensors, format="pt").items()
    assert name == "model.safetensors"
    back = load(data)
    assert back.keys() == tensors.keys()
    for key, value in tensors.items():
        assert back[key].shape == np.shape(value) and np.array_equal(back[key], value)
    assert data == written(dict(reversed(tensors.items())), format="pt")[name]  # the same tensors are the same bytes
    assert b'"__metadata__":{"format":"pt"}' in data[:400]


def test_a_state_dict_comes_back() -> None:
    torch = pytest.importorskip("torch")
    model = torch.nn.Linear(3, 2).to(torch.bfloat16)
    state = {
        **model.state_dict(),
        "other": torch.arange(6, dtype=torch.float32).reshape(2, 3).t(),
        "trained": torch.nn.Parameter(torch.ones(2)),
    }
    told = dict(deserialize(written(state)["model.safetensors"]))  # type: ignore[no-untyped-call]
    assert told["weight"]["dtype"] == "BF16" and told["weight"]["shape"] == [2, 3]
    assert bytes(told["weight"]["data"]) == state["weight"].contiguous().view(torch.int16).numpy().tobytes()
    assert told["other"]["shape"] == [3, 2]
    assert bytes(told["other"]["data"]) == state["other"].contiguous().numpy().tobytes()
    assert bytes(told["trained"]["data"]) == np.ones(2, np.float32).tobytes()


def test_tensors_whose_memory_is_not_theirs_are_refused_by_name() -> None:
    torch = pytest.importorskip("torch")
    given_up = torch.ones(3000)
    (given_up.untyped_storage() if hasattr(given_up, "untyped_storage") else given_up.storage()).resize_(0)
    spread_by_deepspeed = torch.nn.Parameter(torch.ones(0))
    spread_by_deepspeed.ds_id = 7

    class Packed(torch.Tensor):  # type: ignore[misc, name-defined]
        pass

    for tensor, why in (
        (torch.ones(2, device="meta"), "device meta"),
        (torch.eye(3).to_sparse(), "layout is torch.sparse_coo"),
        (torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.quint8), "quantised"),
        (given_up, "memory was given up"),
        (spread_by_deepspeed, "DeepSpeed"),
        (torch.nn.parameter.UninitializedParameter(), "UninitializedParameter"),
        (torch.ones(2).as_subclass(Packed), "Packed"),
    ):
        with pytest.raises(ValueError, match=f"tensor b: .*{why}"):
            written({"a": torch.ones(2), "b": tensor})
    lazy = torch.view_as_complex(torch.tensor([[1.0, 2.0]])).conj().imag  # its memory holds the number without its sign
    assert load(written({"w": lazy})["model.safetensors"])["w"].tolist() == [-2.0]
    assert load(written({"w": torch.ones(4)[1:].expand(2, 3)})["model.safetensors"])["w"].shape == (2, 3)


def test_large_weights_go_into_several_files() -> None:
    tensors = {f"layer{i:02}": np.full(100, i, np.float32) for i in range(7)}
    told = written({**tensors, "wide": np.zeros(300, np.float32)}, shard=1000)
    index = json.loads(told.pop("model.safetensors.index.json"))
    assert list(told) == [f"model-{i:05}-of-00005.safetensors" for i in range(1, 6)]
    assert index["metadata"]["total_size"] == 4000
    for name, file in index["weight_map"].items():
        assert name in load(told[file])
    assert {name: value.tolist() for data in told.values() for name, value in load(data).items() if name != "wide"} == {
        name: value.tolist() for name, value in tensors.items()
    }
    assert all(len(load(data)) <= 2 for data in told.values())


def test_what_cannot_be_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="there are no weights"):
        written({})
    with pytest.raises(ValueError, match="tensor words of type"):
        written({"words": np.array(["a"])})
    with pytest.raises(ValueError, match="no file ends in .safetensors"):
        list(weights.files(tmp_path, {}))
    (tmp_path / "a b.safetensors").write_bytes(b"x")
    with pytest.raises(ValueError, match="letters, digits and ._-"):
        list(weights.files(tmp_path, {}))
    monkeypatch.setattr(weights, "MAX_OBJECT", (1 << 20) + 100)
    with pytest.raises(ValueError, match="tensor w: 400 bytes do not fit"):
        written({"w": np.zeros(100, np.float32)})
    monkeypatch.setattr(weights, "MAX_STREAM", 1 << 20)
    (tmp_path / "m.safetensors").write_bytes(b"x" * ((1 << 20) + 1))
    with pytest.raises(ValueError, match="write it in shards"):
        list(weights.files(tmp_path / "m.safetensors", {}))


def test_versions_only_grow(client: rondo.Client, plane: Plane) -> None:
    run = plane.open_run(client)

    def publish(value: float, version: int | None, *allow: str) -> int | None:
        tensors = {"w": np.full(3, value)}
        return client.publish_weights(f"policy-{run}", tensors, run=run, version=version, through_step=0, allow=allow, timeout=60)

    assert publish(1, 1) == 1
    assert publish(1, 1) == 1  # the same again
    with pytest.raises(rondo.WeightsRejected, match="version 3: the last one is 1, and 0 steps were trained since"):
        publish(3, 3)
    assert publish(3, 3, "gap") == 3
    assert publish(1, 1) == 1  # a trainer that trains again what it had published
    assert publish(4, None) == 4
    with pytest.raises(rondo.WeightsRejected, match="version 3 has other content, and version 4 is published already"):
        publish(2, 3)
    with pytest.raises(rondo.WeightsRejected, match="version 2 was left out, and version 4 is published already"):
        publish(2, 2)


def test_files_of_a_folder_are_published_as_they_are(client: rondo.Client, plane: Plane, tmp_path: Path) -> None:
    run = plane.open_run(client)
    save_file({"w": np.ones(2, np.float32)}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "STABLE").touch()  # says that the folder is complete
    assert client.publish_weights(f"policy-{run}", tmp_path, run=run, through_step=0) == 1
    manifest = json.loads((plane.dir / f"objects/weights/policy-{run}/v000001/manifest.json").read_text())
    assert [f["name"] for f in manifest["files"]] == ["config.json", "model.safetensors"]
    for f in manifest["files"]:
        assert (plane.dir / "objects" / f["ref"]).read_bytes() == (tmp_path / f["name"]).read_bytes()


def test_a_file_of_a_folder_without_an_extension_is_refused(tmp_path: Path) -> None:
    save_file({"w": np.ones(2, np.float32)}, tmp_path / "model.safetensors")
    (tmp_path / "STABLE").write_text("7")
    with pytest.raises(ValueError, match="STABLE: want a name"):
        list(weights.files(tmp_path, {}))


def test_of_a_version_with_a_base_only_a_delta_is_uploaded(client: rondo.Client, plane: Plane, tmp_path: Path) -> None:
    pytest.importorskip("xxhash")
    run, rng = plane.open_run(client), np.random.default_rng(0)
    policy = f"policy-{run}"
    tensors = {f"layer{i}": rng.standard_normal(1 << 18).astype(np.float32) for i in range(2)}
    objects = plane.dir / "objects"

    def publish(base: Path | None) -> rondo.Version:
        for tensor in tensors.values():
            tensor[:: rng.integers(50, 100)] += np.float32(1e-6)
        client.publish_weights(policy, tensors, run=run, through_step=0, base=base, timeout=60)
        version = client.published(policy)
        assert version is not None
        assert all(np.array_equal(value, tensors[name]) for name, value in version.load().items())
        return version

    def uploaded() -> list[int]:
        return sorted(path.stat().st_size for path in (objects / f"weights/{policy}/files").iterdir())

    first = publish(None).download(tmp_path / "first")
    second = publish(first).download(tmp_path / "second")
    whole = (first / "model.safetensors").stat().st_size
    small, *files = uploaded()
    assert files == [whole, whole] and small < whole / 20  # two versions, the second made of a delta
    described = json.loads((objects / f"weights/{policy}/v000002/delta.json").read_text())
    assert described["base"] == 1 and described["size"] == small  # it is also what replicas read
    publish(first)  # another base than the last version: the publisher refuses the delta, and the files go up
    assert uploaded().count(whole) == 3
    assert second != first


def test_what_the_publisher_finds_wrong(client: rondo.Client, plane: Plane, tmp_path: Path) -> None:
    run = plane.open_run(client)
    (tmp_path / "model.safetensors").write_bytes(b"not at all")
    with pytest.raises(rondo.WeightsRejected, match="safetensors"):
        client.publish_weights(f"policy-{run}", tmp_path / "model.safetensors", run=run, through_step=0, timeout=60)


def test_the_trainer_is_told_which_tensor_is_wrong(client: rondo.Client, plane: Plane) -> None:
    run = plane.open_run(client)
    weights = {"a": np.ones(2, np.float32), "b": np.array([1, np.nan], np.float32)}
    with pytest.raises(rondo.WeightsRejected, match='tensor "b": element 1 is NaN'):
        client.publish_weights(f"policy-{run}", weights, run=run, through_step=0, timeout=60)
    assert client.publish_weights(f"policy-{run}", weights, run=run, through_step=0, allow=["not_finite"], timeout=60) == 1
    with pytest.raises(rondo.WeightsRejected, match='tensor "b" is missing'):
        client.publish_weights(f"policy-{run}", {"a": weights["a"]}, run=run, through_step=0, timeout=60)
    with pytest.raises(rondo.IntakeError, match='there is no run "nobody"'):
        client.publish_weights(f"policy-{run}", weights, run="nobody", through_step=0, timeout=60)
    with pytest.raises(rondo.IntakeError, match="through_step 7"):
        client.publish_weights(f"policy-{run}", weights, run=run, through_step=7, timeout=60)


def test_an_inference_server_takes_up_what_is_published(client: rondo.Client, plane: Plane, tmp_path: Path) -> None:
    run = plane.open_run(client)
    policy = f"policy-{run}"

    def publish(value: int) -> None:
        client.publish_weights(policy, {"w": np.full(2, value)}, run=run, version=value, through_step=0, timeout=60)

    assert client.published(policy) is None
    publish(1)
    publish(2)
    taken: queue.Queue[rondo.Version] = queue.Queue()
    go_on = threading.Semaphore(0)

    def serve() -> None:
        for version in client.versions(policy):
            taken.put(version)
            client.activated(policy, version.version, "replica")
            if version.version == 5:
                return
            go_on.acquire()

    server = threading.Thread(target=serve, daemon=True)
    server.start()
    second = taken.get(timeout=60)
    assert (second.version, second.run, second.through_step, list(second.files)) == (2, run, 0, ["model.safetensors"])
    for value in (3, 4):
        publish(value)
    go_on.release(10)
    assert taken.get(timeout=60).version == 4  # 3 was replaced meanwhile
    publish(5)
    fifth = taken.get(timeout=60)
    server.join(60)
    assert fifth == client.published(policy)
    assert fifth.load()["w"].tolist() == [5, 5]
    assert load((fifth.download(tmp_path / "five") / "model.safetensors").read_bytes())["w"].tolist() == [5, 5]
    with pytest.raises(rondo.NotFound, match="no file 'tokenizer.json', but model.safetensors"):
        fifth.read("tokenizer.json")


def test_a_download_goes_on_and_is_verified(client: rondo.Client, plane: Plane, tmp_path: Path) -> None:
    run = plane.open_run(client)
    for name in ("a", "b"):
        (tmp_path / f"{name}.safetensors").write_bytes(written({name: np.arange(3)})["model.safetensors"])
    client.publish_weights(f"policy-{run}", tmp_path, run=run, through_step=0)
    version = client.published(f"policy-{run}")
    assert version is not None and sorted(version.load()) == ["a", "b"]
    folder = version.download(tmp_path / "here")
    (folder / "b.safetensors").unlink()
    stored = plane.dir / "objects" / version.files["a.safetensors"].key
    whole = stored.read_bytes()
    stored.chmod(0o600)
    stored.write_bytes(bytes([whole[0] ^ 1]) + whole[1:])
    assert (version.download(folder) / "b.safetensors").exists()  # a was there already
    with pytest.raises(rondo.Damaged, match="sha256"):
        version.download(tmp_path / "there")
    assert not (tmp_path / "there" / "a.safetensors").exists()
