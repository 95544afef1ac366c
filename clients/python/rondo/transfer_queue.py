"""TransferQueue's fields in Rondo's store: they outlive every process of the trainer. Needs TransferQueue 0.1.11.

    import rondo.transfer_queue  # in each process, before tq.init; for verl's: VERL_USE_EXTERNAL_MODULES=rondo.transfer_queue
    tq.init(OmegaConf.create({"backend": {"storage_backend": "Rondo", "Rondo": {"dir": "/srv/rondo"}}}))

dir: of a plane; store: an object store, as for rondo.Client; else RONDO_STORE or RONDO_DIR say where it is.

What is put at once is one object, named by its digest. Which object holds a field is in TransferQueue's controller, so its checkpoint
(tq.save_checkpoint) has no field in it, and a controller that loads it has them all, cleared ones too: what is cleared is forgotten, and
`rondo gc` deletes it with all else of its age that no event names. So load no checkpoint that is older than what `rondo gc` spares.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from transfer_queue.storage.bootstrap import StorageBootstrapProvider
from transfer_queue.storage.clients.base import StorageClientFactory, StorageKVClient
from transfer_queue.storage.managers.base import KVStorageManager, StorageManagerFactory
from transfer_queue.utils.serial_utils import calc_packed_size, decode, encode, pack_into, unpack_from

from . import variables
from .endpoint import find
from .errors import NotFound
from .objects import Ref, fetch, open_store, put_blob

__all__ = ["Fields", "Manager"]

#: The backend's name in TransferQueue's configuration.
NAME = "Rondo"

#: Bytes from which an object of several fields is closed, and how many objects are read at once.
LARGE, READERS = 64 << 20, 8


@StorageClientFactory.register(NAME)
class Fields(StorageKVClient):  # type: ignore[misc]
    """Values by key. A value's place is its object (key, SHA-256, bytes) and the bytes of it that it takes (first, number)."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__(config)
        self._store = open_store(location(config))

    def put(self, keys: list[str], values: list[Any]) -> list[Any]:
        """Store values; their places, once all of them are durable."""
        places = []
        for packed in _objects(values):
            ref = put_blob(self._store, b"".join(packed))
            first = 0
            for value in packed:
                places.append([ref.key, ref.sha256, ref.size, first, len(value)])
                first += len(value)
        return places

    def get(self, keys: list[str], shapes: Any = None, dtypes: Any = None, custom_backend_meta: Sequence[Any] | None = None) -> list[Any]:
        """Read values from their places. NotFound where there is nothing, as after `rondo gc`; Damaged where the bytes are others."""
        places = list(custom_backend_meta or [None] * len(keys))
        if lacking := [key for key, place in zip(keys, places, strict=True) if place is None]:
            raise NotFound(f"{lacking[0]} and {len(lacking) - 1} more fields of TransferQueue were not put into Rondo's store")
        refs = list({Ref(*place[:3]) for place in places})
        with ThreadPoolExecutor(READERS) as readers:
            # A bytearray: trainers write into tensors that lie in it.
            objects = dict(zip(refs, readers.map(lambda ref: memoryview(bytearray(fetch(self._store, ref))), refs), strict=True))
        return [decode(unpack_from(objects[Ref(*place[:3])][place[3] : place[3] + place[4]])) for place in places]

    def clear(self, keys: list[str], custom_backend_meta: Any = None) -> None:
        """Nothing: see Manager.clear_data."""


@StorageManagerFactory.register(NAME)
class Manager(KVStorageManager):  # type: ignore[misc]
    """TransferQueue's storage manager `Rondo`."""

    def __init__(self, controller_info: Any, config: Mapping[str, Any], zmq_context: Any = None) -> None:
        super().__init__(controller_info, {**config, "client_name": NAME}, zmq_context=zmq_context)

    async def clear_data(self, metadata: Any) -> None:
        """Nothing: a checkpoint may name the objects, so they go by age. verl clears rows that have no field, too."""

    async def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Nothing: the fields are durable, and the controller's checkpoint says where."""

    async def load_checkpoint(self, checkpoint_dir: str) -> None:
        """Nothing: see save_checkpoint."""


# There is no server to start; TransferQueue calls it an error where a backend does not say so.
StorageBootstrapProvider.register_provider(NAME)(lambda config: {})


def location(config: Mapping[str, Any]) -> str:
    """Where the store is that a configuration or the environment names."""
    variables.check()
    if config.get("dir") is None and (store := config.get("store") or os.environ.get("RONDO_STORE")):
        return str(store)
    return find(config.get("dir") or os.environ.get("RONDO_DIR") or ".rondo").store


def _objects(values: list[Any]) -> Iterator[list[bytearray]]:
    """Values as TransferQueue itself encodes them, in as few objects as they fit into."""
    packed: list[bytearray] = []
    size = 0
    for value in values:
        parts = encode(value)
        buffer = bytearray(calc_packed_size(parts))
        pack_into(buffer, parts)
        if packed and size + len(buffer) > LARGE:
            yield packed
            packed, size = [], 0
        packed.append(buffer)
        size += len(buffer)
    if packed:
        yield packed
