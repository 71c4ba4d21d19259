"""The search for the largest batch that fits: a launch for each trial, running out of memory being an ordinary end."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

from torchscale.analysis.batch_search import largest_fitting, next_batch
from torchscale.launch.torchrun import StopRequest
from torchscale.launcher import Pending, open_launcher
from torchscale.plan import Plan
from torchscale.schema.config import Experiment
from torchscale.schema.experiment import ExperimentFile, PlannedCell
from torchscale.schema.memory import MemoryCell
from torchscale.schema.progress import Progress
from torchscale.schema.record import LaunchRecord, State
from torchscale.store import RunFolder


@dataclass(frozen=True)
class Trial:
    """One batch size and how it ended."""

    cell: MemoryCell
    record: LaunchRecord


@dataclass(frozen=True)
class Search:
    """What a search found.

    Attributes:
        batch_size: The largest that fits, as the cell counts it; ``None`` where none does, or the search was cut short.
        trials: In the order in which they ran.
        problem: Why it was cut short; empty where it came to its end.
    """

    batch_size: int | None
    trials: tuple[Trial, ...]
    problem: str = ""


def find_max_batch(
    experiment: Experiment,
    plan: Plan,
    file: ExperimentFile,
    folder: RunFolder,
    stop: StopRequest,
    *,
    cell: MemoryCell,
    largest: int,
    on_progress: Callable[[Progress], None],
    on_trial: Callable[[Trial], None],
) -> Search:
    """Search from the cell's own batch size, each trial in the folder as a cell of its own."""
    training = cell.training
    pieces = training.strategy.pieces(training.degrees)
    multiple = max(pieces, training.gradient_accumulation) if training.scaling == "weak" else training.world_size
    tried: dict[int, bool] = {}
    trials: list[Trial] = []
    with open_launcher(experiment, plan, folder, stop, on_progress) as launcher:
        while (batch := next_batch(tried, start=training.batch_size, multiple=multiple, largest=largest)) is not None:
            trial = cell.model_copy(update={"training": training.model_copy(update={"batch_size": batch})})
            RunFolder.join(folder.path, file.model_copy(update={"plan": (PlannedCell(cell=trial),)}))
            if folder.record(trial, 0) is not None:
                folder.set_aside(trial, 0, "replaced")
            record = launcher.run(Pending(trial, 0))
            trials.append(Trial(trial, record))
            on_trial(trials[-1])
            if record.state not in (State.OK, State.OOM):
                return Search(None, tuple(trials), f"batch {batch}: {record.state.value}: {record.reason}")
            tried[batch] = record.state is State.OK
    return Search(largest_fitting(tried), tuple(trials))


def search_json(search: Search) -> str:
    """The largest batch that fits, and every trial."""
    trials = [
        {
            "batch_size": trial.cell.training.batch_size,
            "cell_id": trial.cell.id,
            "state": trial.record.state.value,
            "reason": trial.record.reason,
            "peak_bytes": max((rank.peak_bytes for rank in trial.record.memory), default=None),
        }
        for trial in search.trials
    ]
    return json.dumps({"batch_size": search.batch_size, "problem": search.problem, "trials": trials}, indent=1)
