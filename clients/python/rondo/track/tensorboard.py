"""TensorBoard: event files in a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .rows import Row, Run
from .tracker import Unavailable

__all__ = ["TensorBoard"]


class TensorBoard:
    """A folder of event files. Each row is one record, so it is there whole or not at all; each process writes a file of its own."""

    def __init__(self, run: Run, folder: Path) -> None:
        try:
            from tensorboard.compat.proto import event_pb2, summary_pb2
            from tensorboard.summary.writer.event_file_writer import EventFileWriter
        except ImportError as error:
            raise Unavailable(f"TensorBoard cannot be imported ({error}): pip install tensorboard") from None
        self.place = str(folder / run.name / run.feed)
        self._event, self._summary, self._writer_of = event_pb2.Event, summary_pb2.Summary, EventFileWriter
        self._writer: Any = None

    def last(self) -> int:
        """The last step in the folder's files. A record that was being written when its process died ends its file."""
        from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

        steps = [0]
        for file in sorted(Path(self.place).glob("events.out.tfevents.*")):
            steps += [event.step for event in EventFileLoader(str(file)).Load() if event.HasField("summary")]
        return max(steps)

    def write(self, row: Row) -> None:
        """Write a row, and give it to the kernel."""
        if self._writer is None:
            self._writer = self._writer_of(self.place)
        values = [self._summary.Value(tag=name, simple_value=value) for name, value in row.figures.items()]
        self._writer.add_event(self._event(wall_time=row.time, step=row.step, summary=self._summary(value=values)))
        self._writer.flush()

    def close(self, complete: bool) -> None:
        """Close the file."""
        if self._writer is not None:
            self._writer.close()
