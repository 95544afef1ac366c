"""Rows of training steps on their way into a tracker; tests/trackers has the real ones."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from rondo.errors import RondoError
from rondo.track import Ended, Row, Run, read, track
from rondo.track.__main__ import main

RUN = {"kind": "run", "run": "demo-1", "feed": "trainer", "policy": "small", "opened": "2026-11-26T10:00:00Z", "config": {"seed": 1}}
END = {"kind": "end", "complete": True}


def step(number: int, time: str = "1970-01-01T00:01:00Z") -> dict[str, Any]:
    return {"kind": "step", "step": number, "time": time, "sequence": 9, "figures": {"reward/mean": 0.5}}


def lines(*values: dict[str, Any]) -> list[str]:
    return [json.dumps(value) + "\n" for value in values]


class Memory:
    """A tracker that keeps its rows, and has some already."""

    place = "memory"

    def __init__(self, had: int = 0) -> None:
        self.had, self.rows, self.closed = had, list[Row](), list[bool]()

    def last(self) -> int:
        return self.had

    def write(self, row: Row) -> None:
        self.rows.append(row)

    def close(self, complete: bool) -> None:
        self.closed.append(complete)


def test_lines_become_values() -> None:
    run, row, end = read(lines(RUN, step(1, "1970-01-01T00:01:00.123456789Z"), END))
    assert isinstance(run, Run) and run.id.startswith("demo-1-trainer-")
    assert isinstance(row, Row) and row.time == pytest.approx(60.123456789) and row.figures == {"reward/mean": 0.5}
    assert end == Ended(True)


def test_a_run_of_the_same_name_on_another_plane_is_another_one() -> None:
    first, second = (next(read(lines({**RUN, "opened": opened}))) for opened in ("2026-11-26T10:00:00Z", "2026-11-26T10:00:01Z"))
    assert isinstance(first, Run) and isinstance(second, Run) and first.id != second.id


@pytest.mark.parametrize("line", ["", "[]", "{}", '{"kind": "step", "step": "x"}', '{"kind": "run"}', "none of it"])
def test_a_line_that_is_none_is_refused(line: str) -> None:
    with pytest.raises(RondoError, match="no line of"):
        list(read([line + "\n"]))


def test_only_what_the_tracker_lacks_is_written() -> None:
    memory, told = Memory(had=2), list[int]()
    counts = track(lines(RUN, step(1), step(2), step(3), step(4), END), "demo-1", lambda run: memory, lambda row: told.append(row.step))
    assert [row.step for row in memory.rows] == told == [3, 4]
    assert (counts.written, counts.skipped, counts.last, counts.complete) == (2, 2, 4, True)
    assert memory.closed == [True]


def test_a_step_that_comes_twice_or_late_is_written_once() -> None:
    memory = Memory()
    track(lines(RUN, step(1), step(3), step(2), step(3), END), "demo-1", lambda run: memory)
    assert [row.step for row in memory.rows] == [1, 3]


def test_rows_that_break_off_leave_the_run_open() -> None:
    memory = Memory()
    with pytest.raises(RondoError, match="broke off"):
        track(lines(RUN, step(1)), "demo-1", lambda run: memory)
    assert [row.step for row in memory.rows] == [1] and memory.closed == [False]


@pytest.mark.parametrize(("first", "want"), [(step(1), "do not begin"), ({**RUN, "run": "other"}, "not of 'demo-1'")])
def test_rows_of_something_else_are_refused(first: dict[str, Any], want: str) -> None:
    with pytest.raises(RondoError, match=want):
        track(lines(first, END), "demo-1", lambda run: Memory())


def test_the_command_says_what_is_wrong(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("nonsense\n"))
    assert main(["demo-1", "--to", "tensorboard"]) == 1
    assert "rondo.track: this is no line of" in capsys.readouterr().err
