"""A training batch: the file that a feed gives one rank for one step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .columns import Array, Ragged, Spans, dense, ragged, spans
from .errors import Damaged
from .gap import LogprobGap, logprob_gap
from .hints import HintSpan
from .hints import mask as hint_mask
from .hints import read as read_hints
from .images import Image, parse_images, read_images
from .objects import Store
from .token_columns import SamplingMask, TokenColumn, read_column, read_mask

if TYPE_CHECKING:
    from .tensors import Tensors

__all__ = ["Batch", "open_batch"]

#: The version of the file's columns that this package reads.
SCHEMA_VERSION = "1"

_TOKEN_COLUMNS = {"tokens": pa.int32(), "loss_mask": pa.bool_(), "sampler_logprobs": pa.float32(), "advantages": pa.float32()}


class Batch:
    """B samples with N tokens in all. A sample is one row; entry i of a per-token column belongs to token i.

    `column(name)` gives any column of the file (schemas/arrow.md describes them) as numpy arrays; the attributes below name
    the ones that training needs. Arrays are views of the file's memory, and read-only.
    """

    def __init__(self, record: pa.RecordBatch, metadata: Mapping[str, str], ready: Mapping[str, Any], store: Store | None = None) -> None:
        self._record = record
        self._store = store
        self._columns: dict[str, Any] = {}
        #: The file's metadata.
        self.metadata = metadata
        #: The fact `batch.ready`: groups, masked rollouts with their reasons, counts over all ranks. Empty for a file opened by hand.
        self.ready = ready
        #: Run and feed that the batch belongs to, and its number in the feed, from 1.
        self.run: str = metadata.get("run_id", "")
        self.feed: str = metadata.get("feed", "")
        self.step = int(metadata.get("step", 0))
        #: Data-parallel rank that the file is for, and how many there are.
        self.rank = int(metadata.get("rank", 0))
        self.ranks = int(metadata.get("ranks", 1))

    def __len__(self) -> int:
        """Samples: B."""
        return int(self._record.num_rows)

    def __repr__(self) -> str:
        return (
            f"<Batch {self.run}/{self.feed}/{self.step} rank {self.rank} of {self.ranks}: {len(self)} samples, {self.token_count} tokens>"
        )

    @cached_property
    def table(self) -> pa.Table:
        """The whole batch as an Arrow table."""
        return pa.Table.from_batches([self._record])

    @property
    def names(self) -> list[str]:
        """Names of the file's columns."""
        return list(self._record.schema.names)

    def column(self, name: str) -> Any:
        """A column: an array [B]; for lists Ragged (values [N], offsets [B + 1]); for lists of spans Spans."""
        if name not in self._columns:
            try:
                column = self._record.column(name)
            except KeyError:
                raise KeyError(f"the batch has no column {name!r}") from None
            self._columns[name] = _arrays(column)
        return self._columns[name]

    __getitem__ = column

    @property
    def tokens(self) -> Ragged:
        """Token ids: int32."""
        return self._ragged("tokens")

    @property
    def loss_mask(self) -> Ragged:
        """True where the model sampled the token: bool."""
        return self._ragged("loss_mask")

    @property
    def sampler_logprobs(self) -> Ragged:
        """Natural log-probability under the policy that sampled the token, 0 where not sampled: float32."""
        return self._ragged("sampler_logprobs")

    @property
    def advantages(self) -> Ragged:
        """Advantage of each token, 0 where not sampled: float32."""
        return self._ragged("advantages")

    @property
    def constrained(self) -> Ragged:
        """True where the model sampled the token from another distribution than the policy's, as under a grammar: bool.

        Such tokens are not in `loss_mask`, unless the run trains on them (`filters.train_constrained`).
        """
        if "constrained" in self.names:
            return self._ragged("constrained")
        return Ragged(np.zeros(self.token_count, np.bool_), self.offsets)

    @property
    def roles(self) -> list[str]:
        """Role of each sample's rollout in its episode, "" where episodes have one rollout."""
        found: list[str] = self._record.column("role").to_pylist() if "roles" in self.metadata else [""] * len(self)
        return found

    @property
    def teachers(self) -> list[str]:
        """Names of the teachers, or reference models, whose log-probabilities the feed demands; empty for most."""
        return [name for name in self.metadata.get("teachers", "").split(",") if name]

    def teacher_logprobs(self, teacher: str) -> Ragged:
        """Natural log-probability of each token under a teacher, at temperature 1, sampled or not; 0 for the first of each sample: float32.

        KeyError for a teacher that the feed does not demand, and for one that takes hints.
        """
        whole = [name for name in self.teachers if name not in self.hinted_teachers]
        if teacher not in whole:
            raise KeyError(f"the batch has log-probabilities of the teachers {whole}, not of {teacher!r}")
        return self._ragged(f"logprobs_{teacher}")

    @property
    def hinter(self) -> str:
        """Who has stated the hints, empty where the feed takes none."""
        return self.metadata.get("hints", "")

    @cached_property
    def hints(self) -> list[list[HintSpan]]:
        """The hints of each sample, in the order of their spans."""
        texts: list[str] = self._record.column("hints").to_pylist() if self.hinter else [""] * len(self)
        return read_hints(texts, self.offsets)

    @cached_property
    def hint_mask(self) -> Ragged:
        """True where a hint is about the token: bool."""
        return hint_mask(self.hints, self.offsets)

    @property
    def hinted_teachers(self) -> list[str]:
        """Names of the teachers that take the hints."""
        return [name for name in self.metadata.get("hinted", "").split(",") if name]

    def hinted_logprobs(self, teacher: str) -> Ragged:
        """Natural log-probability of each token under a teacher with the hint in its context, at temperature 1: float32.

        NaN for all tokens that no hint is about, and where the teacher has said nothing. KeyError for a teacher that takes no hints.
        """
        if teacher not in self.hinted_teachers:
            raise KeyError(f"the teachers {self.hinted_teachers} of the batch take hints, not {teacher!r}")
        return self._ragged(f"logprobs_{teacher}")

    @property
    def token_columns(self) -> list[str]:
        """Names of what the run asked its servers for beside tokens and log-probabilities, and some tokens have; empty for most."""
        return [name for name in self.metadata.get("token_columns", "").split(",") if name]

    def routed_experts(self) -> TokenColumn:
        """The experts that a mixture's routers chose for each token: uint8 or uint16 [N, layers, top_k], 0 where not known.

        Each call reads from the object store and blocks: on asyncio call it in a thread. Layers and top_k are 0 where no token has any.
        """
        return read_column(self._told(), self.offsets, "routed_experts", self._store)

    def top_logprobs(self) -> TokenColumn:
        """The likeliest tokens in the place of each sampled one: [N, k] of id int32 and logprob float32, -1 and -inf where there are fewer.

        Read from the object store at each call, which blocks.
        """
        return read_column(self._told(), self.offsets, "top_logprobs", self._store)

    def sampling_mask(self) -> SamplingMask:
        """The tokens that the sampler's bounds (top_k, top_p, min_p) left in the place of each sampled one.

        Read from the object store at each call, which blocks.
        """
        return read_mask(self._told(), self.offsets, self._store)

    @cached_property
    def images(self) -> list[list[Image]]:
        """The images that the prompts of each sample show, in their order, one for each run of tokens that stand for one."""
        texts: list[str] = self._record.column("images").to_pylist() if "images" in self.metadata else [""] * len(self)
        return parse_images(texts)

    def image_bytes(self) -> dict[str, bytes]:
        """The bytes of the batch's images, by their SHA-256 (`Image.ref`). Read from the object store at each call, which blocks."""
        return read_images([image for row in self.images for image in row], self._store)

    def _told(self) -> list[str]:
        if "token_columns" not in self.names:
            return [""] * len(self)
        texts: list[str] = self._record.column("token_columns").to_pylist()
        return texts

    def _ragged(self, name: str) -> Ragged:
        found: Ragged = self.column(name)
        return found

    @property
    def rewards(self) -> npt.NDArray[np.float32]:
        """Reward of each sample's rollout: float32 [B]."""
        found: npt.NDArray[np.float32] = self.column("reward")
        return found

    @property
    def offsets(self) -> npt.NDArray[np.int32]:
        """Where each sample's tokens begin in the per-token values: int32 [B + 1]."""
        return self.tokens.offsets

    @property
    def lengths(self) -> npt.NDArray[np.int32]:
        """Tokens of each sample: int32 [B]."""
        return self.tokens.lengths

    @property
    def token_count(self) -> int:
        """Tokens in all: N."""
        return len(self.tokens.values)

    @cached_property
    def groups(self) -> npt.NDArray[np.int64]:
        """Number of each sample's group within the batch, in order of appearance: int64 [B]."""
        return _numbered(self._record.column("group_id"))

    @cached_property
    def rollouts(self) -> npt.NDArray[np.int64]:
        """Number of each sample's rollout within the batch, in order of appearance: int64 [B]."""
        return _numbered(self._record.column("rollout_id"))

    @cached_property
    def token_versions(self) -> Ragged:
        """Policy version that sampled each token, -1 where not sampled or not reported: int64."""
        found: Spans = self.column("policy_versions")
        return found.per_token("version", self.offsets)

    @cached_property
    def token_turns(self) -> Ragged:
        """Model generation, from 0, that each token was sampled in, -1 where not sampled: int32."""
        found: Spans = self.column("turns")
        return found.per_token("turn", self.offsets)

    @cached_property
    def rollout_sampled(self) -> npt.NDArray[np.int32]:
        """Sampled tokens of each sample's rollout over all of its samples, the normaliser of one that split: int32 [B]."""
        found: npt.NDArray[np.int32] = self.column("rollout_sampled")
        return found

    def stale(self, version: int, limit: int) -> list[str]:
        """Ids of the rollouts that were dispatched more than `limit` versions before `version`, for `Feed.consumed`.

        A trainer that drops samples by their age does the same: TRL's `max_staleness` by `model_version`, for one.
        """
        old = self.column("dispatch_version") < version - limit
        ids: list[str] = self._record.column("rollout_id").filter(pa.array(old)).unique().to_pylist()
        return ids

    def logprob_gap(self, logprobs: Any, *, version: int, shifted: bool = False) -> LogprobGap | None:
        """How far the trainer's log-probabilities are from the sampler's; give it to `Feed.consumed`. Computed in float64.

        Compared are the sampled tokens whose policy version is `version`, that of the weights that computed `logprobs`: of other
        versions both would rightly differ. None when the batch has no such token.

        logprobs: natural log-probabilities of the batch's tokens before this step's update, with the run's temperature: a numpy array
        or torch tensor, flat [N] or padded on the right [B, S], or a list of B rows. shifted: each row, or the flat array, lacks its
        first token, as `logits[:, :-1]` gives them. ValueError when the shape is another, or a value is no log-probability.
        """
        return logprob_gap(
            self.sampler_logprobs, self.loss_mask.values & (self.token_versions.values == version), logprobs, shifted=shifted
        )

    @property
    def micro_batch_count(self) -> int:
        """Micro-batches, as many on every rank; 0 when the feed leaves packing to the trainer."""
        return int(self.metadata.get("micro_batches", 0))

    def micro_batches(self) -> Iterator[Batch]:
        """The micro-batches that the feed packed, in order; some may be empty, so that all ranks have as many.

        A batch that the feed did not pack is one micro-batch.
        """
        if self.micro_batch_count == 0:
            yield self
            return
        numbers = self.column("micro_batch")
        for number in range(self.micro_batch_count):
            yield self.select(np.flatnonzero(numbers == number))

    def select(self, rows: npt.NDArray[np.intp]) -> Batch:
        """A batch of some rows, given by their numbers; neighbours are not copied."""
        if len(rows) == 0:
            return Batch(self._record.slice(0, 0), self.metadata, self.ready, self._store)
        if np.all(np.diff(rows) == 1):
            return Batch(self._record.slice(int(rows[0]), len(rows)), self.metadata, self.ready, self._store)
        return Batch(self._record.take(pa.array(rows)), self.metadata, self.ready, self._store)

    def to_torch(self, packed: bool = False, *, device: Any = None, pad_id: int = 0, width: int | None = None) -> Tensors:
        """The batch as torch tensors, by name and as attributes.

        Padded (on the right, S tokens wide): input_ids int64, attention_mask int64, position_ids int64, loss_mask bool,
        sampler_logprobs float32, advantages float32, all [B, S]. Packed: the samples one after the other, input_ids,
        position_ids, loss_mask, sampler_logprobs, advantages, all [N], with cu_seqlens int32 [B + 1] and max_seqlen (int).
        Both: rewards float32, lengths, prompt_lengths, groups, samples_in_rollout int64, all [B].

        pad_id: token id of the padding. width: S, where it should be larger than the longest sample.
        """
        from .tensors import packed as to_packed
        from .tensors import padded as to_padded

        return to_packed(self, device) if packed else to_padded(self, device, pad_id, width)


def _arrays(column: pa.Array) -> Array | Ragged | Spans:
    if not pa.types.is_list(column.type):
        return dense(column)
    return spans(column) if pa.types.is_struct(column.type.value_type) else ragged(column)


def _numbered(column: pa.Array) -> npt.NDArray[np.int64]:
    numbers: npt.NDArray[np.int64] = column.dictionary_encode().indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return numbers


def open_batch(data: bytes, ready: Mapping[str, Any] | None = None, *, store: Store | None = None) -> Batch:
    """Open the bytes of a batch file. Damaged when they are none, or one whose columns disagree.

    store: where the objects of its token columns lie (`open_store`), if these are wanted.
    """
    try:
        reader = pa.ipc.open_file(pa.py_buffer(data))
        metadata = {k.decode(): v.decode() for k, v in (reader.schema.metadata or {}).items()}
        if metadata.get("kind") != "batch":
            raise Damaged(f"a file of kind {metadata.get('kind')!r}, want a batch")
        if metadata.get("schema_version") != SCHEMA_VERSION:
            raise Damaged(f"a batch of schema version {metadata.get('schema_version')!r}; this package reads {SCHEMA_VERSION}")
        if reader.num_record_batches != 1:
            raise Damaged(f"{reader.num_record_batches} record batches, want 1")
        record = reader.get_batch(0)
        teachers = [name for name in metadata.get("teachers", "").split(",") if name]
        if "token_columns" in metadata and "token_columns" not in record.schema.names:
            raise Damaged("column token_columns is missing")
        for name in ("hints", "images"):
            if metadata.get(name) and name not in record.schema.names:
                raise Damaged(f"column {name} is missing")
        marks = {"constrained": pa.bool_()} if "constrained" in metadata else {}
        _check(record, {**_TOKEN_COLUMNS, **marks, **{f"logprobs_{name}": pa.float32() for name in teachers}})
        return Batch(record, metadata, ready or {}, store)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError, ValueError) as error:
        raise Damaged(f"not a batch file: {error}") from None


def _check(record: pa.RecordBatch, columns: Mapping[str, pa.DataType]) -> None:
    """What training relies on: the per-token columns are there, have their types, and are equally long in every row."""
    record.validate(full=False)
    offsets = None
    for name, kind in columns.items():
        index = record.schema.get_field_index(name)
        if index < 0 or record.schema.field(index).type != pa.list_(record.schema.field(index).type.value_field.with_type(kind)):
            raise Damaged(f"column {name} is missing or not a list of {kind}")
        column = record.column(index)
        if column.null_count or column.values.null_count:
            raise Damaged(f"column {name} has nulls")
        if offsets is None:
            offsets = column.offsets
        elif not offsets.equals(column.offsets):
            raise Damaged(f"columns tokens and {name} are not equally long in every row")
