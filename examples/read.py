"""Reads trajectory and batch files: python3 examples/read.py FILE..."""

import sys

import pyarrow as pa

for path in sys.argv[1:]:
    with pa.memory_map(path) as file:
        table = pa.ipc.open_file(file).read_all()
    kind = table.schema.metadata[b"kind"].decode()
    if kind == "trajectory":
        last = table.column("content")[-1].as_py().strip()
        print(f"{path}: {table.num_rows} messages, the last one: {last.splitlines()[-1] if last else ''}")
    else:
        rewards = table.column("reward").to_pylist()
        print(f"{path}: {table.num_rows} samples, mean reward {sum(rewards) / len(rewards):.3f}")
