"""Launches commands by turns until their comparison is clear. Each side is a run folder, and what is
compared is what ``compare A B`` compares."""

from __future__ import annotations

import random
import shutil
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from torchscale.analysis.training.throughput import mean_step_seconds
from torchscale.config.choices import MatchKey
from torchscale.door import Slot
from torchscale.errors import MachineError, StoreError, TorchscaleError
from torchscale.features.compare.analysis.change import MIN_LAUNCHES
from torchscale.features.compare.commands.sides import CommandSide
from torchscale.features.compare.commands.stopping import is_clear, is_look
from torchscale.features.compare.compare import Rules, compare_sources
from torchscale.features.compare.sections.document import ComparisonReport
from torchscale.observer import Observer
from torchscale.schema.cells.kinds import as_kind
from torchscale.schema.cells.training import TrainingCell
from torchscale.schema.launch.record import LaunchRecord, payload
from torchscale.schema.launch.training import TrainingResult
from torchscale.schema.state import State
from torchscale.store.run_folder import load_run
from torchscale.util.redaction import redact_arguments
from torchscale.util.units import format_coarse_seconds, format_seconds
from torchscale.util.words import listed, plural

_MATCH = (MatchKey.DATA,)
"""Each side has one cell, whose data are its own: they match, whatever else differs."""
_MOST_FAILURES = 2
"""Of a command: a launch may fail for a reason of its own, as a port that is taken."""


class LaunchesCommands(Protocol):
    """What launches commands."""

    @property
    def is_stopped(self) -> bool:
        """Whether the user wants to stop."""

    def launch(self, command: Sequence[str], folder: Path) -> LaunchRecord:
        """Launch a command once, and add what was measured to a run folder."""


class _OpensLaunches(Protocol):
    def __call__(
        self, directory: Path, *, launch_seconds: float, timeout_seconds: float, observer: Observer
    ) -> AbstractContextManager[LaunchesCommands]: ...


_LAUNCHES: Slot[_OpensLaunches] = Slot("launches of commands")


@dataclass(frozen=True)
class CommandComparison:
    """Commands to compare.

    Attributes:
        sides: The commands; every other one is compared with the first.
        directory: Of their run folders.
        rules: How they are compared.
        most_launches: Of each command.
        budget_seconds: No round begins after so long; ``None`` for as long as it takes.
        launch_seconds: For how long steps are measured in a launch.
        timeout_seconds: Longest launch.
    """

    sides: tuple[CommandSide, ...]
    directory: Path
    rules: Rules
    most_launches: int
    budget_seconds: float | None
    launch_seconds: float
    timeout_seconds: float

    @property
    def folders(self) -> list[Path]:
        """The run folder of each side."""
        return [self.directory / side.name for side in self.sides]

    def plan(self) -> list[str]:
        """Lines on what will be done."""
        steps_only = MIN_LAUNCHES * len(self.sides) * self.launch_seconds
        return [
            *(side.shown for side in self.sides),
            f"By turns, {MIN_LAUNCHES} to {self.most_launches} launches of each until the answer is clear. "
            f"A launch ends {self.launch_seconds:g} s after its warm-up: "
            f"{format_coarse_seconds(steps_only)} of steps at least, and the starts.",
        ]


def compare_commands(
    request: CommandComparison, observer: Observer, on_line: Callable[[str], None]
) -> ComparisonReport | None:
    """Launch until the comparison is clear or the limits are reached. The same call goes on with
    what the folder has.

    Args:
        request: What is compared.
        observer: Shows what is done.
        on_line: Called with a line on each launch.

    Returns:
        The comparison; ``None`` where the user stopped.

    Raises:
        TorchscaleError: a launch failed twice, or no step of it could be measured.
        MachineError: a command cannot be started.
        StoreError: the folder is in use, or of other commands.
        OutputError: it cannot be written.
    """
    done = [
        measured_launches(folder, side.command, request.launch_seconds)
        for folder, side in zip(request.folders, request.sides, strict=True)
    ]
    for side in request.sides:
        if shutil.which(side.command[0]) is None:
            raise MachineError(f"{side.name}: cannot start {side.command[0]}: no such program")
    _refuse_apart(request, done)
    opened = _LAUNCHES["watch"](
        request.directory,
        launch_seconds=request.launch_seconds,
        timeout_seconds=request.timeout_seconds,
        observer=observer,
    )
    with opened as launches:
        return _Rounds(request, done, launches, observer, on_line).run()


def _refuse_apart(request: CommandComparison, done: Sequence[int]) -> None:
    """By turns all have as many launches, or one less where it was interrupted."""
    if max(done) - min(done) <= 1:
        return
    counts = zip(done, request.sides, strict=True)
    told = listed([f"{count} of {side.name}" for count, side in counts])
    raise StoreError(
        f"{request.directory} has launches from another time: {told}; what the machine did meanwhile "
        "would be a difference between them",
        hint="name another folder with --output-dir",
    )


class _Rounds:
    """One session of a comparison."""

    def __init__(
        self,
        request: CommandComparison,
        done: list[int],
        launches: LaunchesCommands,
        observer: Observer,
        on_line: Callable[[str], None],
    ) -> None:
        self._request, self._done, self._launches = request, done, launches
        self._observer, self._on_line = observer, on_line
        self._failed: Counter[int] = Counter()
        self._began = time.monotonic()

    def run(self) -> ComparisonReport | None:
        request = self._request
        if any(self._done):
            counts = [
                f"{count} of {side.name}"
                for count, side in zip(self._done, request.sides, strict=True)
            ]
            self._on_line(f"Launches that are there already: {', '.join(counts)}.")
        has_told = False
        while not self._is_over():
            before, there = time.monotonic(), sum(self._done)
            self._round()
            if self._launches.is_stopped:
                return None
            if not has_told and sum(self._done) - there == len(self._done):
                has_told = True
                self._tell_length(time.monotonic() - before)
        return self._compared()

    def _is_over(self) -> bool:
        """Whether no further round is to begin."""
        request, least = self._request, min(self._done)
        if not least:
            return False
        spent = time.monotonic() - self._began
        if request.budget_seconds is not None and spent >= request.budget_seconds:
            return True
        if least >= request.most_launches:
            return True
        is_even = least == max(self._done)
        if not (is_even and is_look(least, request.most_launches)):
            return False
        return is_clear(self._compared(why=False).pairs)

    def _round(self) -> None:
        """A launch of each side that has no more than another one, in random order: what slowly
        changes on the machine is no difference between them."""
        target = min(self._done) + 1
        asked = [place for place, count in enumerate(self._done) if count < target]
        random.shuffle(asked)
        for place in asked:
            while self._done[place] < target and not self._launches.is_stopped:
                self._launch(place, target)

    def _launch(self, place: int, number: int) -> None:
        side, folder = self._request.sides[place], self._request.folders[place]
        with self._observer.status(f"Launch {number} of {side.name}"):
            record = self._launches.launch(side.command, folder)
        if record.state is State.INTERRUPTED:
            return
        if record.state is State.OK:
            self._done[place] += 1
            self._failed[place] = 0
            step = mean_step_seconds(payload(record, TrainingResult))
            self._on_line(f"launch {number} of {side.name}: {format_seconds(step, 4)} a step")
            return
        self._failed[place] += 1
        if record.state is State.INVALID:
            raise TorchscaleError(
                f"{side.name} cannot be compared by its steps: {record.reason}",
                hint="a launch needs steps of a torch optimizer for its warm-up and "
                f"{self._request.launch_seconds:g} s; hyperfine, or torchscale bisect --metric "
                "wall, times whole commands",
            )
        if self._failed[place] >= _MOST_FAILURES:
            raise TorchscaleError(
                f"{side.name} failed twice: {record.reason}",
                hint=f"what it printed: {folder}/launch.log",
            )
        self._on_line(f"launch {number} of {side.name}: {record.state.value}: {record.reason}")

    def _tell_length(self, round_seconds: float) -> None:
        least, most = (
            max(0, limit - min(self._done)) * round_seconds
            for limit in (MIN_LAUNCHES, self._request.most_launches)
        )
        if most:
            self._on_line(
                f"A round of {plural(len(self._done), 'launch')} takes "
                f"{format_coarse_seconds(round_seconds)}: {format_coarse_seconds(least)} to "
                f"{format_coarse_seconds(most)} are left."
            )

    def _compared(self, *, why: bool = True) -> ComparisonReport:
        rules = replace(self._request.rules, match=_MATCH)
        if not why:
            rules = replace(rules, why=False)
        return compare_sources(list(map(str, self._request.folders)), rules)


def measured_launches(folder: Path, command: Sequence[str], launch_seconds: float) -> int:
    """How many launches of a command an earlier session has left in its run folder.

    Raises:
        StoreError: it is damaged, or holds something else.
    """
    if not (folder / "experiment.json").exists():
        return 0
    run = load_run(folder)
    is_same = run.experiment.environment.command == tuple(redact_arguments(command))
    for one in run.cells:
        cell = as_kind(one.planned.cell, TrainingCell)
        is_same &= cell is not None and cell.measurement.measure_seconds == launch_seconds
    if not is_same:
        raise StoreError(
            f"{folder} holds launches of another command, or of other --launch-seconds",
            hint="name another folder with --output-dir",
        )
    return sum(len(one.launches) for one in run.cells)
