"""``summary.csv``, true of all that a run folder holds while it is measured."""

from __future__ import annotations

from dataclasses import replace

from torchscale.analysis.kinds import AnySummary
from torchscale.analysis.summary.run import RunSummary
from torchscale.analysis.summary.running import RunningSummary
from torchscale.errors import OutputError
from torchscale.report.formats.export import SummaryCsv
from torchscale.results.reader import read_cells
from torchscale.schema.run.content import CellRun
from torchscale.store.run_folder import RunFolder
from torchscale.util.files import atomic_write_text


class SummaryFile:
    """Reads the folder once; :meth:`write` and :meth:`update` write ``summary.csv``.

    Each write replaces the whole file by a renamed one: a new launch changes rows in its middle,
    and whoever reads it, or finds it after the process was killed, has either the rows before the
    launch or those after. Only changed rows are formatted, so that a write costs what copying the
    file costs: 0.5 MB at 2,000 cells. The records in the folder are the data; this file can be made
    from them at any time (``torchscale report --format csv``).
    """

    def __init__(self, folder: RunFolder) -> None:
        self._path = folder.path / "summary.csv"
        self._running = RunningSummary(
            folder.path.resolve().name, folder.experiment, read_cells(folder)
        )
        self._csv = SummaryCsv()
        self._problem: str | None = None

    @property
    def summary(self) -> RunSummary:
        """The run as of the last update; ``problems`` hold why the last write failed, if it did."""
        summary = self._running.summary
        if self._problem is None:
            return summary
        return replace(summary, problems=(*summary.problems, self._problem))

    def update(self, cell_run: CellRun) -> AnySummary:
        """Take in a cell whose launches or profile have changed, as the folder has it by now
        (writes).

        Returns:
            The cell by itself.
        """
        summary = self._running.update(cell_run)
        self.write()
        return summary

    def write(self) -> None:
        """Replace the file (writes). A failure is kept for :attr:`summary`, and the next launch
        tries again: a table that can be made anew must not end a sweep whose launches are safe in
        their own files."""
        try:
            atomic_write_text(self._path, self._csv.text(self._running.summary), durable=False)
            self._problem = None
        except OutputError as error:
            self._problem = error.message


def write_summary_file(folder: RunFolder) -> None:
    """Make ``summary.csv`` anew (writes)."""
    SummaryFile(folder).write()
