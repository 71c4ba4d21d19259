"""A bisection over environments: they are built when they are asked for, launched by turns, and
every launch is kept before the next."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path

from torchscale.errors import MachineError, UsageError
from torchscale.features.bisect.change_verdict import ChangeSentences
from torchscale.features.bisect.changes import ChangeSearch
from torchscale.features.bisect.environment import Candidate
from torchscale.features.bisect.environments.builder import Builder
from torchscale.features.bisect.environments.variables import foreign_python, variables_of
from torchscale.features.bisect.launcher import CommandLauncher, Launch, LaunchMetric
from torchscale.features.bisect.outcome import BisectOutcome, BisectRequest, recorded, take_launch
from torchscale.features.bisect.search import BisectionEnding, BisectionSearch
from torchscale.features.bisect.state import MOST_REASON, LaunchEntry
from torchscale.features.bisect.verdict import NOT_BUILT
from torchscale.launch.control import StopRequest
from torchscale.measure.context import measuring
from torchscale.observer import SILENT, Observer
from torchscale.util.units import format_change, format_percent

WARMED_UP = ("wall", "cpu")
"""Metrics of a whole command: the first launch of an environment reads its files from disk and
compiles Python, and does not count. Steps are warmed up within a launch."""


def environments_ready(request: BisectRequest) -> tuple[bool, ...]:
    """For each environment, whether it can be launched without a build."""
    candidates = request.question.candidates
    if not request.builds:
        return (True,) * len(candidates)
    builder = Builder(request.cache, request.sources)
    return tuple(builder.is_built(candidate.environment) for candidate in candidates)


def bisect(
    request: BisectRequest,
    *,
    observer: Observer = SILENT,
    on_line: Callable[[str], None] = lambda _: None,
) -> BisectOutcome:
    """Launch until there is an answer, or the limits are reached. The same call goes on with what
    the folder has.

    Args:
        request: What is asked.
        observer: Shows what is done.
        on_line: Called with a line on each launch and each thing that is known from then on.

    Raises:
        UsageError: packages are to be installed from nowhere.
        MachineError: the command or a program for building cannot be started.
        StoreError: the folder or the cache is in use, or of another question.
        OutputError: the folder or the cache cannot be written.
    """
    if request.builds and not request.sources.wheels and request.sources.index is None:
        raise UsageError(
            "nothing says where packages come from",
            hint="--wheels DIR for a directory of wheels, or --index default for the index that "
            "pip is set up for",
        )
    with measuring(request.folder) as stop, observer.status("Preparing") as say:
        return _Bisection(request, stop, on_line, say).run()


class _Bisection:
    """One session of a bisection."""

    def __init__(
        self,
        request: BisectRequest,
        stop: StopRequest,
        on_line: Callable[[str], None],
        say: Callable[[str], None],
    ) -> None:
        before = recorded(request)
        self._request, self._search, self._state = request, before.search, before.state
        self._stop, self._on_line, self._say = stop, on_line, say
        self._builder = Builder(
            request.cache, request.sources, timeout_seconds=request.build_seconds
        )
        self._launcher = CommandLauncher(
            request.command,
            request.metric,
            request.folder / "launches",
            request.timeout_seconds,
            stop,
            request.launch_seconds,
        )
        self._places: dict[int, _Place] = {}
        self._spent = 0.0
        self._told = _Told()

    def run(self) -> BisectOutcome:
        """To the answer, the end of the budget, or a stop."""
        search = self._search
        if self._state.launches:
            self._on_line(f"{len(self._state.launches)} launches are there already.")
        self._tell(lambda _: None)
        while (asked := search.next_round()) and not self._is_over():
            for environment in asked:
                if search.ending is not None or self._is_over():
                    break
                if environment not in search.unusable and self._prepare(environment):
                    self._launch(environment)
                self._tell(self._on_line)
        if search.ending is None and not self._stop.asked:
            search.ending = BisectionEnding.UNDECIDED
        return BisectOutcome(self._request, search, self._state, interrupted=self._stop.asked)

    def _tell(self, on_line: Callable[[str], None]) -> None:
        """Tell what is new."""
        question, search = self._request.question, self._search
        if not isinstance(search, ChangeSearch):
            self._told.tell(search, question.candidates, on_line)
            return
        for line in ChangeSentences(question, search, self._request.metric.source.subject).known():
            if line not in self._told.lines:
                self._told.lines.append(line)
                on_line(line)

    def _is_over(self) -> bool:
        budget = self._request.budget_seconds
        return self._stop.asked or (budget is not None and self._spent >= budget)

    def _prepare(self, environment: int) -> bool:
        """Build what an environment needs, once a session. Whether it can be launched."""
        if environment in self._places:
            return True
        candidate = self._request.question.candidates[environment]
        directory = tree = None
        if self._request.builds:
            self._say(f"Building {candidate.label}")
            built = self._builder.build(candidate.environment, lambda: self._stop.asked)
            if self._stop.asked:
                return False
            if built.directory is None:
                problem = f"{NOT_BUILT}: {built.problem}"
                self._on_line(f"{candidate.label} {problem}")
                self._search.set_unusable(environment, problem)
                return False
            if built.note:
                self._on_line(f"{candidate.label}: {built.note}")
            if built.seconds:
                self._on_line(f"built {candidate.label} in {built.seconds:.1f} s")
            directory = built.directory
            foreign = foreign_python(self._request.command[0], directory)
            if foreign:
                self._search.set_unusable(environment, foreign)
                return False
        repository = self._request.question.repository
        if repository is not None:
            try:
                found = repository.checked_out(
                    candidate.environment.revision,
                    self._request.cache,
                    lambda: self._stop.asked,
                    timeout_seconds=self._request.build_seconds,
                )
            except MachineError as error:
                if not self._stop.asked:
                    self._search.set_unusable(environment, error.message)
                return False
            tree = found.directory
            if found.note:
                self._on_line(f"{candidate.label}: {found.note}")
        variables = variables_of(
            directory, candidate.environment.variables, in_clone=tree is not None
        )
        self._places[environment] = _Place(variables, tree)
        return True

    def _launch(self, environment: int) -> None:
        candidate = self._request.question.candidates[environment]
        is_warmup = self._request.metric.name in WARMED_UP and not any(
            entry.environment == environment and entry.state == "ok"
            for entry in self._state.launches
        )
        if is_warmup:
            self._one(environment, candidate, is_warmup=True)
        if not self._is_over() and environment not in self._search.unusable:
            self._one(environment, candidate, is_warmup=False)

    def _one(self, environment: int, candidate: Candidate, *, is_warmup: bool) -> None:
        number = len(self._state.launches)
        self._say(f"Launch {number + 1}: {candidate.label}")
        place = self._places[environment]
        started_at = datetime.now(timezone.utc).isoformat(timespec="seconds")
        clock = time.monotonic()
        launch = self._launcher.run(number, place.variables, place.tree)
        self._spent += time.monotonic() - clock
        if launch.state == "interrupted":
            return
        is_change = self._request.metric.name == "change"
        entry = LaunchEntry(
            environment=environment,
            state=launch.state,
            value=None if is_change else launch.value,
            number=repr(launch.value) if is_change and launch.value is not None else None,
            reason=launch.reason[:MOST_REASON],
            seconds=launch.seconds,
            started_at=started_at,
            is_warmup=is_warmup,
        )
        self._state = self._state.with_launch(entry)
        self._state.write(self._request.folder)
        take_launch(self._search, entry, self._request.metric)
        self._on_line(_line(number, candidate, launch, self._request.metric, is_warmup=is_warmup))


@dataclass(frozen=True)
class _Place:
    """Where an environment is launched."""

    variables: dict[str, str]
    tree: Path | None


@dataclass
class _Told:
    """What a user was told already."""

    confirmed: bool = False
    modes: set[int] = field(default_factory=set)
    unsteady: set[int] = field(default_factory=set)
    left: int = 0
    lines: list[str] = field(default_factory=list)

    def tell(
        self,
        search: BisectionSearch,
        candidates: tuple[Candidate, ...],
        on_line: Callable[[str], None],
    ) -> None:
        """Tell what is new."""
        if search.confirmed and not self.confirmed:
            self.confirmed = True
            self.left = len(search.groups)
            on_line(
                f"{candidates[-1].label} is slower than {candidates[0].label}: "
                f"{search.difference.text(format_change)}"
            )
        for environment in search.modes.keys() - self.modes:
            self.modes.add(environment)
            modes = search.modes[environment]
            on_line(
                f"{candidates[environment].label} has two states: {modes.slow} of "
                f"{modes.launches} launches take {format_percent(modes.ratio)} longer"
            )
        for environment in search.unsteady - self.unsteady:
            self.unsteady.add(environment)
            on_line(
                f"{candidates[environment].label}: launches scatter more than those of the others"
            )
        if search.confirmed and len(search.groups) < self.left:
            self.left = len(search.groups)
            on_line(f"answers left: {self.left} of {len(search.hypotheses)}")


def _line(
    number: int, candidate: Candidate, launch: Launch, metric: LaunchMetric, *, is_warmup: bool
) -> str:
    said = f"{launch.state}: {launch.reason}"
    if launch.value is not None:
        said = metric.shown(launch.value)
    return f"launch {number + 1}: {candidate.label}: {said}{' (warm-up)' * is_warmup}"
