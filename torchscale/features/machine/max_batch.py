"""The search for the largest batch that fits: one launch per trial; running out of memory is an
ordinary end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from torchscale.config.experiment import Experiment
from torchscale.errors import ExitCode, MachineError, UsageError
from torchscale.features.machine.batch_search import largest_fitting, next_batch
from torchscale.features.machine.measure import plan_machine
from torchscale.launch.control import StopRequest
from torchscale.measure.context import PlannedRun, measuring, timestamped
from torchscale.measure.launcher import Pending, open_launcher
from torchscale.observer import SILENT, Observer
from torchscale.schema.cells.kinds import of_kind
from torchscale.schema.cells.memory import MemoryCell, MemoryResult
from torchscale.schema.exports.search import SearchExport
from torchscale.schema.launch.record import LaunchRecord, payload
from torchscale.schema.run.experiment_file import PlannedCell
from torchscale.schema.state import State
from torchscale.store.derived_files import write_derived_files
from torchscale.store.run_folder import RunFolder

LARGEST = 65536
"""No batch above this is tried: beyond it a step's time says more than its memory."""


@dataclass(frozen=True)
class BatchTrial:
    """One batch size and how its launch ended."""

    cell: MemoryCell
    record: LaunchRecord

    @property
    def batch_size(self) -> int:
        """Batch size per device under weak scaling, global under strong scaling."""
        return self.cell.training.batch_size or 0

    @property
    def peak_bytes(self) -> int | None:
        """Peak memory of the fullest device; ``None`` where the launch left no figure."""
        return max(
            (rank.peak_bytes for rank in payload(self.record, MemoryResult).ranks), default=None
        )

    @property
    def fits(self) -> bool:
        """Whether the step completed within the memory."""
        return self.record.state is State.OK


@dataclass(frozen=True)
class MaxBatchOutcome:
    """What a search gave.

    Attributes:
        directory: The run folder with every trial.
        model: Name of the model.
        batch_size: The largest that fits, counted as the cell counts it; ``None`` where none fits
            or the search ended early.
        trials: Trials in the order in which they ran.
        problem: Why the search ended early; empty where it is complete.
        largest: The upper end of the search.
        interrupted: Whether Ctrl-C or TERM ended it.
    """

    directory: Path
    model: str
    batch_size: int | None
    trials: tuple[BatchTrial, ...]
    problem: str
    largest: int
    interrupted: bool

    @property
    def exit_code(self) -> ExitCode:
        """130 interrupted, 0 where a batch fits, else 1."""
        if self.interrupted:
            return ExitCode.INTERRUPTED
        if self.batch_size is not None:
            return ExitCode.OK
        return ExitCode.FAILED

    def to_json(self) -> str:
        """The largest batch that fits, and every trial."""
        return SearchExport.model_validate(self).model_dump_json(indent=1)


def find_max_batch(
    experiment: Experiment,
    *,
    output_dir: Path | None = None,
    largest: int = LARGEST,
    observer: Observer = SILENT,
    on_trial: Callable[[BatchTrial], None] = lambda _: None,
) -> MaxBatchOutcome:
    """Find the largest batch size of one setting that fits: double until a launch runs out of
    memory, then bisect.

    Args:
        experiment: Experiment with ``measure: [memory]`` and one setting; its batch size is where
            the search starts.
        output_dir: A run folder, new or to be joined; ``results/memory-<time>`` by default.
        largest: No batch above this is tried.
        observer: Shows messages.
        on_trial: Called after each trial.

    Raises:
        UsageError: the experiment describes several settings.
        MachineError: this machine cannot run it, or it runs on a CPU without ``memory.limit``.
        StoreError: ``output_dir`` cannot be read, or was measured on another machine.
        OutputError: it cannot be written.
    """
    directory = output_dir or timestamped("memory")
    planned = plan_machine(experiment, observer, directory)
    cells = of_kind(planned.plan.to_run, MemoryCell)
    if len(cells) > 1:
        raise UsageError(
            f"--find-max-batch takes one setting, not {len(cells)}",
            hint="give one --model, --precision, --optimizer …",
        )
    if planned.plan.device == "cpu" and experiment.memory.limit is None:
        raise MachineError(
            "--find-max-batch on a CPU needs a --limit: a host that runs out of memory ends other "
            "processes too",
            hint="for example --limit 4GiB",
        )
    with measuring(directory) as stop, observer.status("Trying batch sizes"):
        trials, batch_size, problem = _search(
            planned,
            directory,
            cells[0],
            largest=largest,
            stop=stop,
            on_trial=on_trial,
            observer=observer,
        )
        write_derived_files(RunFolder.open(directory))
        return MaxBatchOutcome(
            directory,
            cells[0].training.model,
            batch_size,
            trials,
            problem,
            largest,
            interrupted=stop.asked,
        )


def _search(
    planned: PlannedRun,
    directory: Path,
    cell: MemoryCell,
    *,
    largest: int,
    stop: StopRequest,
    on_trial: Callable[[BatchTrial], None],
    observer: Observer,
) -> tuple[tuple[BatchTrial, ...], int | None, str]:
    """Every trial, the largest batch that fits, and why the search ended early; each trial is a
    cell of the folder."""
    file = planned.experiment_file()
    folder = RunFolder.join(directory, file.model_copy(update={"plan": ()}))
    training = cell.training
    pieces = training.strategy.pieces(training.degrees)
    multiple = training.world_size
    if training.scaling == "weak":
        multiple = max(pieces, training.gradient_accumulation)
    tried: dict[int, bool] = {}
    trials: list[BatchTrial] = []
    with open_launcher(planned.experiment, planned.plan, folder, stop, lambda _: None) as launcher:
        while (
            batch := next_batch(
                tried, start=training.batch_size or multiple, multiple=multiple, largest=largest
            )
        ) is not None:
            tested = cell.model_copy(
                update={"training": training.model_copy(update={"batch_size": batch})}
            )
            RunFolder.join(directory, file.model_copy(update={"plan": (PlannedCell(cell=tested),)}))
            if folder.record(tested, 0) is not None:
                folder.set_aside(tested, 0, "replaced")
            while folder.set_aside_notes:
                observer.note(f"warning: {folder.set_aside_notes.pop(0)}")
            trial = BatchTrial(tested, launcher.run(Pending(tested, 0)))
            trials.append(trial)
            on_trial(trial)
            if trial.record.state not in (State.OK, State.OOM):
                return (
                    tuple(trials),
                    None,
                    f"batch {batch}: {trial.record.state.value}: {trial.record.reason}",
                )
            tried[batch] = trial.fits
    return tuple(trials), largest_fitting(tried), ""
