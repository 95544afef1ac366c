"""MLflow: a run of a tracking server or a local store."""

from __future__ import annotations

from typing import Any

from .rows import Row, Run
from .tracker import Unavailable

__all__ = ["MLflow"]

#: The tag by which the run is found again, and the metric that is written last of a row.
ID, STEP = "rondo.id", "step"


class MLflow:
    """A run of an experiment, where MLFLOW_TRACKING_URI says. A row is one request, which a database takes whole."""

    def __init__(self, run: Run, experiment: str) -> None:
        try:
            from mlflow.entities import Metric, Param, RunTag
            from mlflow.tracking import MlflowClient
        except ImportError as error:
            raise Unavailable(f"MLflow cannot be imported ({error}): pip install mlflow") from None
        self._metric = Metric
        self._client: Any = MlflowClient()
        found = self._client.get_experiment_by_name(experiment)
        number = found.experiment_id if found else self._client.create_experiment(experiment)
        runs = self._client.search_runs([number], f"tags.`{ID}` = '{run.id}'", max_results=1)
        if runs:
            self._run = runs[0].info.run_id
        else:
            self._run = self._client.create_run(
                number, tags={ID: run.id, "rondo.run": run.name, "rondo.feed": run.feed}, run_name=run.name
            ).info.run_id
            params = [Param(name, str(value)) for name, value in run.config.items()]
            self._client.log_batch(self._run, params=params, tags=[RunTag("rondo.opened", run.opened)])
        self.place = f"experiment {experiment}, run {self._run}"
        self._first = True

    def last(self) -> int:
        """The last step of the metric that is written last of each row."""
        return self._last(STEP)

    def _last(self, name: str) -> int:
        return max((metric.step for metric in self._client.get_metric_history(self._run, name)), default=0)

    def write(self, row: Row) -> None:
        """Write a row. A store of files takes it metric by metric, so of the first row that is written some may be there."""
        figures = row.figures
        if self._first:
            figures = {name: value for name, value in figures.items() if self._last(name) < row.step}
            self._client.update_run(self._run, status="RUNNING")
            self._first = False
        at = int(1000 * row.time)
        metrics = [self._metric(name, value, at, row.step) for name, value in figures.items()]
        self._client.log_batch(self._run, metrics=[*metrics, self._metric(STEP, float(row.step), at, row.step)])

    def close(self, complete: bool) -> None:
        """Say that the run has ended, if it has."""
        if complete:
            self._client.set_terminated(self._run, "FINISHED")
