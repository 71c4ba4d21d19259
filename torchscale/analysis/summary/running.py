"""The summary of a run that is being measured, kept up to date launch by launch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from torchscale.analysis.kinds import AnySummary
from torchscale.analysis.summary.run import RunSummary, assemble, summarize_any
from torchscale.analysis.training.summary import TrainingSummary
from torchscale.schema.cells.collectives import CollectivesCell
from torchscale.schema.cells.hardware import HardwareCell
from torchscale.schema.cells.kinds import as_kind
from torchscale.schema.cells.training import TrainingCell, model_key
from torchscale.schema.launch.rank import FlopCount
from torchscale.schema.run.content import CellRun, Run
from torchscale.schema.run.experiment_file import ExperimentFile


@dataclass(frozen=True)
class SeparateCells:
    """The cells of a run, each summarized without the others.

    Attributes:
        summaries: Summaries in plan order.
        machine_runs: Cells that measured the machine, with their records: they are judged together.
        problems: What could not be read, one line each.
    """

    summaries: tuple[AnySummary, ...]
    machine_runs: tuple[CellRun, ...] = ()
    problems: tuple[str, ...] = ()


class RunningSummary:
    """Equal to :func:`~torchscale.analysis.summary.run.summarize` of all launches so far, without
    summarizing them all again: :meth:`update` costs one cell and what its new launch can change in
    others.

    A launch of a training cell changes the efficiencies and decompositions of its series and, where
    it is the one that counted the model's operations, the compute figures of that model's cells. A
    launch of a hardware cell changes the compute figures of all training cells; one that logs
    NCCL's choices, the verdicts on the same collectives.
    """

    def __init__(self, name: str, experiment: ExperimentFile, cells: SeparateCells) -> None:
        self._name, self._experiment, self._problems = name, experiment, cells.problems
        plan = experiment.plan
        self._repeats = experiment.config.benchmark.repeats
        self._separate = list(cells.summaries)
        self._machine_runs = {run.planned.cell.id: run for run in cells.machine_runs}
        self._places = {entry.cell.id: place for place, entry in enumerate(plan)}
        self._series: dict[str, list[int]] = {}
        self._models: dict[str, list[int]] = {}
        self._model_of: dict[int, str] = {}
        for place, entry in enumerate(plan):
            cell = as_kind(entry.cell, TrainingCell)
            if cell is not None:
                self._model_of[place] = model_key(cell)
                self._series.setdefault(cell.series, []).append(place)
                self._models.setdefault(self._model_of[place], []).append(place)
        self._hardware = [
            place for place, entry in enumerate(plan) if as_kind(entry.cell, HardwareCell)
        ]
        self._counted: dict[str, _Count] = {}
        self._find_counts(self._model_of)
        self._assembled = list(assemble(name, experiment, self._separate).in_plan_order)

    @property
    def summary(self) -> RunSummary:
        """The whole run as of the last update."""
        return RunSummary(self._name, self._experiment, tuple(self._assembled), self._problems)

    def update(self, cell_run: CellRun) -> AnySummary:
        """Take in a cell whose launches or profile have changed.

        Args:
            cell_run: The cell with all its launches, those of earlier updates included.

        Returns:
            The cell by itself.

        Raises:
            KeyError: the cell is not in the run's plan.
        """
        cell = cell_run.planned.cell
        place = self._places[cell.id]
        if cell.id in self._machine_runs:
            self._machine_runs[cell.id] = cell_run
        repeats = None
        if as_kind(cell, TrainingCell) is not None:
            repeats = self._repeats
        self._separate[place] = summary = summarize_any(cell_run, repeats, self._machine_run)
        self._assemble(self._changed_by(place))
        return summary

    @property
    def _machine_run(self) -> Run:
        """The part of the run by which cells that measure the machine are judged."""
        return Run(self._name, self._experiment, tuple(self._machine_runs.values()))

    def _changed_by(self, place: int) -> set[int]:
        """Places in the plan whose figures the new summary at ``place`` may change."""
        cell = self._separate[place].cell
        if (training := as_kind(cell, TrainingCell)) is not None:
            return {
                place,
                *self._measured({*self._series[training.series], *self._changed_count(place)}),
            }
        if as_kind(cell, HardwareCell) is not None:
            return {place, *self._measured(self._model_of)}
        collectives = as_kind(cell, CollectivesCell)
        if collectives is None or not collectives.logs_choices:
            return {place}
        self._judge_again(collectives)
        return {
            other
            for other, one in enumerate(self._separate)
            if as_kind(one.cell, CollectivesCell) is not None
        }

    def _measured(self, places: Iterable[int]) -> Iterator[int]:
        """Places of training cells with figures: nothing changes in others."""
        for place in places:
            summary = as_kind(self._separate[place], TrainingSummary)
            if summary is not None and summary.figures is not None:
                yield place

    def _judge_again(self, logging: CollectivesCell) -> None:
        """Summarize the collectives again that ran as NCCL's choices were logged."""
        wanted = (logging.world_size, logging.algorithm, logging.protocol)
        for cell_id, cell_run in self._machine_runs.items():
            cell = as_kind(cell_run.planned.cell, CollectivesCell)
            if cell is None or cell.logs_choices:
                continue
            if (cell.world_size, cell.algorithm, cell.protocol) == wanted:
                place = self._places[cell_id]
                self._separate[place] = summarize_any(cell_run, self._repeats, self._machine_run)

    def _changed_count(self, place: int) -> Sequence[int]:
        """The places of a model's cells, if the summary at ``place`` changes the count of the
        model's operations.

        As :func:`~torchscale.analysis.summary.run.assemble` has it, the count of the last cell in
        the plan holds.
        """
        model, count = self._model_of[place], _counted(self._separate[place])
        known = self._counted.get(model)
        if count is not None and (known is None or place >= known.place):
            self._counted[model] = _Count(place, count)
        elif (
            known is not None and known.place == place
        ):  # measured again, and not counted this time
            del self._counted[model]
            self._find_counts(self._models[model])
        now = self._counted.get(model)
        if _flops(known) == _flops(now):
            return ()
        return self._models[model]

    def _find_counts(self, places: Iterable[int]) -> None:
        for place in places:
            count = _counted(self._separate[place])
            if count is not None:
                self._counted[self._model_of[place]] = _Count(place, count)

    def _assemble(self, changed: set[int]) -> None:
        """Give the cells at these places the figures that they have only beside others. ``changed``
        holds the measured cells of every series whole or not at all."""
        models = {self._model_of[place] for place in changed if place in self._model_of}
        counts = {self._counted[model].place for model in models if model in self._counted}
        places = sorted({*changed, *counts, *self._hardware})
        assembled = assemble(
            self._name, self._experiment, [self._separate[place] for place in places]
        )
        for place, summary in zip(places, assembled.in_plan_order, strict=True):
            if (
                place in changed and summary != self._assembled[place]
            ):  # an equal one stays the same object
                self._assembled[place] = summary


@dataclass(frozen=True)
class _Count:
    """A model's operations, and the place in the plan of the cell that counted them."""

    place: int
    flops: FlopCount


def _counted(summary: AnySummary) -> FlopCount | None:
    training = as_kind(summary, TrainingSummary)
    if training is None:
        return None
    return training.counted


def _flops(count: _Count | None) -> FlopCount | None:
    if count is None:
        return None
    return count.flops
