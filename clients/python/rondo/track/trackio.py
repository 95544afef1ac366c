"""trackio, local or on a server."""

from __future__ import annotations

from typing import Any

from .rows import Row, Run
from .tracker import Unavailable

__all__ = ["Trackio"]


class Trackio:
    """A run of a project. TRACKIO_DIR, TRACKIO_SPACE_ID and TRACKIO_SERVER_URL count as they always do.

    A thread of trackio's writes rows a moment later, in transactions. Rows that were not written when the process dies come again.
    """

    def __init__(self, run: Run, project: str) -> None:
        try:
            import trackio
        except ImportError as error:
            raise Unavailable(f"trackio cannot be imported ({error}): pip install trackio") from None
        self._run: Any = trackio.init(
            project, name=run.id, group=run.policy, config=run.config, resume="allow", embed=False, auto_log_gpu=False, auto_log_cpu=False
        )
        # It counts from 0 what has no step; ours begin at 1.
        self._last = max(0, int(self._run._next_step) - 1)
        self.place = f"project {project}, run {run.id}"

    def last(self) -> int:
        """The last step that trackio found when it took the run up."""
        return self._last

    def write(self, row: Row) -> None:
        """Hand a row to trackio's thread."""
        self._run.log(row.figures, step=row.step)

    def close(self, complete: bool) -> None:
        """Wait until all is written."""
        self._run.finish()
