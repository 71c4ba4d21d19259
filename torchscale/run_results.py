"""Result folders as typed records, tidy frames and figures.

Nothing here imports torch; pandas and plotly are imported when a frame or a figure is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from torchscale.analysis.summary.cost import cost_of
from torchscale.analysis.summary.result_set import result_set
from torchscale.analysis.summary.run import RunSummary
from torchscale.analysis.training.summary import TrainingSummary
from torchscale.errors import UsageError
from torchscale.results.reader import read_summary
from torchscale.schema.launch.record import LaunchRecord, payload
from torchscale.schema.launch.training import TrainingResult
from torchscale.schema.profiles.finding import Finding
from torchscale.schema.run.result_set import ResultSet
from torchscale.store.run_folder import RunFolder
from torchscale.util.extras import require

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

    from torchscale.features.decide.forecast.page import PredictionReport
    from torchscale.report.charts import AnyChart


def load_results(*sources: str | Path) -> Results:
    """Results directories, or directories of such; damaged files are left out and named in
    ``problems``.

    Raises:
        UsageError: nothing that ``torchscale benchmark`` wrote is there.
        StoreError: a directory's ``experiment.json`` cannot be read.
    """
    found: dict[str, Path] = {}
    for source in sources:
        path = Path(source)
        if (path / "experiment.json").is_file():
            here = [path]
        else:
            here = [one.parent for one in path.glob("*/experiment.json")]
        if not here:
            raise UsageError(
                f"{path} holds no results",
                hint="name a directory that `torchscale benchmark` wrote",
            )
        for directory in sorted(here):
            name = directory.resolve().name
            found[name if name not in found else str(directory)] = directory
    if not found:
        raise UsageError("no results named", hint='load_results("results")')
    return Results(found)


class Results:
    """Some runs. Frames are made when first asked for; ``run`` is a column of each, a directory's
    name.

    A value that was not measured is missing (NaN or ``None``), never 0.
    """

    def __init__(self, directories: Mapping[str, Path]) -> None:
        self.directories = dict(directories)
        self.runs: dict[str, RunSummary] = {
            name: read_summary(path) for name, path in self.directories.items()
        }

    def __repr__(self) -> str:
        summaries = ", ".join(
            f"{name}: {sum(cell.state.has_figures for cell in run.in_plan_order)} of "
            f"{len(run.in_plan_order)} cells"
            for name, run in self.runs.items()
        )
        return f"Results({summaries})"

    def _repr_html_(self) -> str:
        """What a notebook shows: of each run its headline and a short table."""
        from torchscale.report.formats.notebook import runs_html  # noqa: PLC0415 - light, but rarely asked for

        return runs_html(self.runs)

    @property
    def problems(self) -> list[str]:
        """What could not be read and was left out."""
        return [problem for run in self.runs.values() for problem in run.problems]

    def records(self, run: str, cell_id: str) -> tuple[LaunchRecord, ...]:
        """The launches of a cell, as they were written.

        Raises:
            UsageError: there is no such run or cell.
        """
        if run not in self.runs:
            raise UsageError(f"no run {run!r}; there: {', '.join(self.runs)}")
        folder = RunFolder.open(self.directories[run])
        for entry in folder.experiment.plan:
            if entry.cell.id == cell_id:
                return folder.load_cell(entry)[0].launches
        raise UsageError(f"run {run} has no cell {cell_id!r}")

    @cached_property
    def cells(self) -> pd.DataFrame:
        """One row a cell of training: what it is, how it ended, its figures.

        Times are in seconds unless the name ends in ``_ms``, sizes in bytes, rates per second and
        of all devices; ``efficiency_low`` and ``_high`` are the 95 % interval from launch to
        launch.
        """
        from torchscale.report.formats.frames import frame, training_row  # noqa: PLC0415 - light, and only frames need it

        return frame(training_row(name, cell) for name, cell in self._trained())

    @cached_property
    def collectives(self) -> pd.DataFrame:
        """One row for each operation, dtype and size of every collectives cell: mean and p95 in
        seconds, algorithm and bus bandwidth in bytes per second, wrong elements, and the share of
        the link's rated bandwidth where that is known."""
        from torchscale.report.formats.frames import COLLECTIVE_COLUMNS, collective_rows, frame  # noqa: PLC0415 - as above

        rows = [row for name, run in self.runs.items() for row in collective_rows(name, run)]
        return frame(rows, COLLECTIVE_COLUMNS)

    @cached_property
    def launches(self) -> pd.DataFrame:
        """One row a launch with figures, of cells of any kind: what comparisons rest on. Launches
        of failed cells have none."""
        from torchscale.report.formats.frames import frame, launch_rows  # noqa: PLC0415 - as above

        return frame([row for name, run in self.runs.items() for row in launch_rows(name, run)])

    @cached_property
    def steps(self) -> pd.DataFrame:
        """One row a step and rank: every measured step of every launch that kept them
        (``benchmark.log_step_times``).

        ``seconds`` is from the end of the step before; the phases add up to it.
        """
        from torchscale.report.formats.frames import frame  # noqa: PLC0415 - as above

        rows = []
        for name, folder, cell, launch, record in self._launches():
            for rank in payload(record, TrainingResult).ranks:
                where = {"run": name, "cell_id": cell.cell.id, "launch": launch, "rank": rank.rank}
                rows += [
                    {**where, **step.model_dump()}
                    for step in folder.steps(cell.cell, launch, rank.rank)
                ]
        return frame(rows, ["run", "cell_id", "launch", "rank", "step", "seconds"])

    @cached_property
    def telemetry(self) -> pd.DataFrame:
        """One row a reading and GPU (``gpu`` is missing where there is none); ``seconds`` counts
        from the first measured step."""
        from torchscale.report.formats.frames import frame  # noqa: PLC0415 - as above

        rows: list[dict[str, object]] = []
        for name, folder, cell, launch, record in self._launches():
            ranks = payload(record, TrainingResult).ranks
            start = None
            if ranks:
                start = ranks[0].measured_from
            for reading in folder.readings(cell.cell, launch):
                host = reading.model_dump(exclude={"gpus"})
                where = {"run": name, "cell_id": cell.cell.id, "launch": launch}
                zero = {"seconds": None if start is None else reading.time - start}
                gpus = [
                    {"gpu": gpu.uuid, **gpu.model_dump(exclude={"uuid"})} for gpu in reading.gpus
                ]
                rows += [{**where, **zero, **host, **gpu} for gpu in gpus or [{"gpu": None}]]
        return frame(rows, ["run", "cell_id", "launch", "seconds", "time", "gpu"])

    def efficiency(self) -> pd.DataFrame:
        """Throughput and efficiency by device count, of every series that has two counts."""
        from torchscale.report.formats.frames import efficiency_frame  # noqa: PLC0415 - as above

        return efficiency_frame(self.cells)

    def findings(self) -> list[tuple[str, TrainingSummary, Finding]]:
        """What holds training back: run, cell and finding, the costliest first."""
        found = [
            (name, cell, finding)
            for name, cell in self._trained()
            if cell.diagnosis is not None
            for finding in cell.diagnosis.findings
        ]
        return sorted(found, key=lambda item: -item[2].cost_percent)

    def cost(self, dollars_per_device_hour: float) -> pd.DataFrame:
        """Samples and tokens per dollar, dollars per million samples, energy, of every measured
        cell."""
        from torchscale.report.formats.frames import frame  # noqa: PLC0415 - as above

        rows = [
            {"run": name, "cell_id": cell.cell.id, **vars(cost)}
            for name, cell in self._trained()
            if (cost := cost_of(cell, dollars_per_device_hour)) is not None
        ]
        return frame(rows)

    def predict(
        self,
        gpus: Sequence[int],
        *,
        gpus_per_node: int | None = None,
        link: str | None = None,
        cost: float | None = None,
    ) -> PredictionReport:
        """Throughput, efficiency, time and cost at counts of GPUs that were not measured, of every
        series of every run.

        Args:
            gpus: Counts to predict.
            gpus_per_node: GPUs of a full node; by default as many as the fullest measured node has.
            link: Catalogue name of the network between nodes.
            cost: Price of a GPU and hour.

        Returns:
            ``predictions`` with 90 % intervals, and ``refused``: why some counts have none, and
            what to measure.

        Raises:
            UsageError: an argument is wrong, or no training cell has figures.
        """
        from torchscale.features.decide.forecast.run import PredictOptions, predict_summaries  # noqa: PLC0415 - only predictions need it

        return predict_summaries(self.runs, PredictOptions(tuple(gpus), gpus_per_node, link, cost))

    def result_set(self, run: str) -> ResultSet:
        """A run as a side of :func:`compare_results`."""
        return result_set(self.runs[run], run)

    def throughput_figures(self) -> dict[str, go.Figure]:
        """Throughput against device count: a plotly figure for each model and setting, by title."""
        from torchscale.report.sections.charts import throughput_charts  # noqa: PLC0415

        return self._figures(
            [chart for run in self.runs.values() for chart in throughput_charts(run)]
        )

    def efficiency_figures(self) -> dict[str, go.Figure]:
        """Efficiency against device count: a plotly figure for each model and setting, by title."""
        from torchscale.report.sections.charts import efficiency_charts  # noqa: PLC0415

        return self._figures(
            [chart for run in self.runs.values() for chart in efficiency_charts(run)]
        )

    def step_time_figures(self) -> dict[str, go.Figure]:
        """Cumulative distributions of step times, a line a device count."""
        from torchscale.report.sections.charts import distribution_charts  # noqa: PLC0415

        return self._figures(
            [chart for run in self.runs.values() for chart in distribution_charts(run)]
        )

    def lost_time_figures(self) -> dict[str, go.Figure]:
        """Where the time of a step goes at each count, stacked."""
        from torchscale.report.document import ChartGrid  # noqa: PLC0415
        from torchscale.report.sections.lost_time import lost_time_section  # noqa: PLC0415

        blocks = [block for run in self.runs.values() for block in lost_time_section(run).blocks]
        return self._figures(
            [chart for block in blocks if isinstance(block, ChartGrid) for chart in block.charts]
        )

    def _figures(self, charts: Sequence[AnyChart]) -> dict[str, go.Figure]:
        require("plotly", "a figure")
        import plotly.graph_objects as go  # noqa: PLC0415 - 0.3 s, and only figures need it

        from torchscale.report.formats.charts.chart_plotly import chart_figure  # noqa: PLC0415

        found: dict[str, go.Figure] = {}
        for chart in charts:
            if chart.title not in found:
                title = chart.title
            else:
                title = f"{chart.title} ({len(found)})"
            found[title] = go.Figure(chart_figure(chart))
        return found

    def _trained(self) -> Iterator[tuple[str, TrainingSummary]]:
        for name, run in self.runs.items():
            for cell in run.cells:
                yield name, cell

    def _launches(self) -> Iterator[tuple[str, RunFolder, TrainingSummary, int, LaunchRecord]]:
        for name, run in self.runs.items():
            folder = RunFolder.open(self.directories[name])
            entries = {entry.cell.id: entry for entry in folder.experiment.plan}
            for cell in run.cells:
                for record in folder.load_cell(entries[cell.cell.id])[0].launches:
                    yield name, folder, cell, record.launch, record
