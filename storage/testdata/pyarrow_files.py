"""Prints a trajectory, batch or Parquet file as JSON, by pyarrow; or runs a line; or writes a trajectory file as a foreign harness does."""

import json
import os
import sys

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet


def rows(table):
    table.validate(full=True)
    times = {"started_at": pa.int64(), "duration": pa.int64()}
    for i, name in enumerate(table.column_names):
        if name in times:
            table = table.set_column(i, name, table.column(name).cast(times[name]))
    return table.to_pylist()


def read(path):
    reader = pa.ipc.open_file(path)
    return {
        "metadata": {k.decode(): v.decode() for k, v in reader.schema.metadata.items()},
        "types": {field.name: str(field.type) for field in reader.schema},
        "batches": reader.num_record_batches,
        "rows": rows(reader.read_all()),
    }


def write(path, compression):
    def column(kind, *values):
        return pa.array(values, type=kind)

    text, number = pa.string(), pa.int32()
    names = ["r1", "g1", "g1-0", "shell-slugify"]
    spans = pa.struct(
        [pa.field(name, kind, nullable=False) for name, kind in (("start", number), ("length", number), ("version", pa.int64()))]
    )
    columns = {
        "run_id": column(text, names[0], names[0]),
        "group_id": column(text, names[1], names[1]),
        "rollout_id": column(text, names[2], names[2]),
        "task": column(text, names[3], names[3]),
        "index": column(number, 0, 1),
        "turn": column(number, 0, 0),
        "segment": column(number, 0, 0),
        "role": column(text, "user", "assistant"),
        "content": column(text, "Grüße", "done"),
        "name": column(text, "", ""),
        "tool_call_id": column(text, "", ""),
        "tool_calls": column(text, "", ""),
        "token_ids": column(pa.list_(number), [1, 2], [3, 4, 5]),
        "logprobs": column(pa.list_(pa.float32()), [0, 0], [-0.5, -1.5, -2.5]),
        "loss_mask": column(pa.list_(pa.bool_()), [False, False], [True, True, True]),
        "policy_version": column(pa.int64(), -1, 4),
        "finish_reason": column(text, "", "stop"),
        "workspace": column(text, "", ""),
        "started_at": column(pa.timestamp("ns", tz="UTC"), None, 1_700_000_000_123_456_789),
        "duration": column(pa.duration("ns"), 0, 5_000_000),
        "reasoning": column(text, "", ""),
        "version_spans": column(pa.list_(spans), [], []),
        "token_columns": column(text, "", ""),
        "constrained": column(pa.bool_(), False, False),
    }
    table = pa.table(columns).replace_schema_metadata(
        {
            "kind": "trajectory",
            "schema_version": "1",
            "run_id": names[0],
            "group_id": names[1],
            "rollout_id": names[2],
            "task": names[3],
            "stop_reason": "finished",
            "dispatch_version": "4",
            "text_only": "false",
        }
    )
    options = pa.ipc.IpcWriteOptions(compression=None if compression == "none" else compression)
    with pa.ipc.new_file(path, table.schema, options=options) as writer:
        writer.write_table(table)


if sys.argv[1] == "read":
    json.dump(read(sys.argv[2]), sys.stdout)
elif sys.argv[1] == "parquet":
    json.dump({"rows": rows(pyarrow.parquet.read_table(sys.argv[2]))}, sys.stdout)
elif sys.argv[1] == "run":
    os.chdir(sys.argv[2])
    exec(sys.argv[3])
else:
    write(sys.argv[2], sys.argv[3])
