"""What a tracker has of a run, read by the tracker's own means."""

from __future__ import annotations

import os
import sys
from pathlib import Path

Rows = list[tuple[int, dict[str, float]]]


def tensorboard(folder: Path, run: str) -> Rows:
    """As TensorBoard's own reader finds them, file by file."""
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    rows = []
    for file in sorted((folder / "runs" / "demo-1" / "trainer").glob("events.*")):
        for event in EventFileLoader(str(file)).Load():
            if event.HasField("summary"):
                rows.append(
                    (
                        event.step,
                        {
                            value.tag: value.tensor.float_val[0] if value.HasField("tensor") else value.simple_value
                            for value in event.summary.value
                        },
                    )
                )
    return rows


def mlflow(folder: Path, run: str) -> Rows:
    """From the store, metric by metric."""
    from mlflow.tracking import MlflowClient

    client = MlflowClient()
    experiment = client.get_experiment_by_name("rondo")
    found = client.search_runs([experiment.experiment_id])
    assert len(found) == 1, [one.info.run_id for one in found]
    rows: dict[int, dict[str, float]] = {}
    for name in found[0].data.metrics:
        history = client.get_metric_history(found[0].info.run_id, name)
        assert len({one.step for one in history}) == len(history), f"{name}: a step is there twice"
        if name == "step":
            assert all(one.value == one.step for one in history)
            continue
        for one in history:
            rows.setdefault(one.step, {})[name] = one.value
    return sorted(rows.items())


def wandb(folder: Path, run: str) -> Rows:
    """From the files that `wandb sync` uploads, in the order of the processes."""
    import json

    from wandb.proto.wandb_internal_pb2 import Record

    from rondo.track.wandb import records

    rows = []
    for file in sorted((folder / "wandb").glob("offline-run-*/run-*.wandb"), key=lambda file: file.stat().st_mtime_ns):
        for record in map(Record.FromString, records(file.read_bytes())):
            if record.HasField("history"):
                items = {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
                rows.append((record.history.step.num, {name: value for name, value in items.items() if not name.startswith("_")}))
    return rows


def trackio(folder: Path, run: str) -> Rows:
    """From trackio's own store."""
    from trackio.sqlite_storage import SQLiteStorage

    return [
        (log["step"], {name: value for name, value in log.items() if name not in ("step", "timestamp")})
        for log in SQLiteStorage.get_logs("rondo", run)
    ]


if __name__ == "__main__":
    import json

    print(json.dumps(globals()[os.environ["RONDO_TRACKER"]](Path(sys.argv[1]), sys.argv[2])))
