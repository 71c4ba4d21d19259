"""A bisection over environments: they are built when they are asked for, launched by turns, and
every launch is kept before the next."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path

from torchscale.errors import ExitCode, MachineError, UsageError
from torchscale.features.bisect.environment import Candidate
from torchscale.features.bisect.environments.builder import BUILD_SECONDS, Builder
from torchscale.features.bisect.environments.installer import Sources
from torchscale.features.bisect.environments.variables import foreign_python, variables_of
from torchscale.features.bisect.export_schema import BisectionExport
from torchscale.features.bisect.launcher import (
    LAUNCH_SECONDS,
    TIMEOUT_SECONDS,
    CommandLauncher,
    Launch,
    LaunchMetric,
)
from torchscale.features.bisect.question import Question
from torchscale.features.bisect.search import BisectionEnding, BisectionSearch, Limits
from torchscale.features.bisect.state import MOST_REASON, BisectState, LaunchEntry, read_state
from torchscale.features.bisect.verdict import NOT_BUILT, describe, format_cost
from torchscale.launch.control import StopRequest
from torchscale.measure.context import measuring
from torchscale.observer import SILENT, Observer
from torchscale.store.locations import RESULTS
from torchscale.util.redaction import redact_arguments, redact_model
from torchscale.util.text import program_name, shown_bytes
from torchscale.util.units import format_percent

WARMED_UP = ("wall", "cpu")
"""Metrics of a whole command: the first launch of an environment reads its files from disk and
compiles Python, and does not count. Steps are warmed up within a launch."""


def default_cache() -> Path:
    """``$XDG_CACHE_HOME/torchscale/bisect``, by default below ``~/.cache``."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "torchscale" / "bisect"


@dataclass(frozen=True)
class BisectRequest:
    """A bisection.

    Attributes:
        question: Its environments and answers.
        command: argv.
        metric: What a launch is judged by.
        sources: Where packages come from.
        cache: Below which environments are built.
        directory: Of the launches; ``None`` for one named after the question.
        limits: What is looked for, and how surely.
        budget_seconds: Wall time of new launches; ``None`` for as long as it takes.
        timeout_seconds: Longest launch.
        launch_seconds: For how long steps are measured in a launch.
        build_seconds: Longest build, or checkout of a commit.
    """

    question: Question
    command: tuple[str, ...]
    metric: LaunchMetric
    sources: Sources = field(default_factory=Sources)
    cache: Path = field(default_factory=default_cache)
    directory: Path | None = None
    limits: Limits = field(default_factory=Limits)
    budget_seconds: float | None = None
    timeout_seconds: float = TIMEOUT_SECONDS
    launch_seconds: float = LAUNCH_SECONDS
    build_seconds: float = BUILD_SECONDS

    @property
    def digest(self) -> str:
        """Of everything that decides what a launch says, and what follows from it."""
        environments = [one.environment.digest for one in self.question.candidates]
        metric = [self.metric.name, self.metric.pattern, self.metric.higher_is_better]
        content = [
            environments,
            self.command,
            metric,
            self.sources.common,
            self.launch_seconds,
            self.limits.alpha,
            self.limits.at_least,
        ]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:8]

    @property
    def folder(self) -> Path:
        """Where its launches are kept."""
        if self.directory is not None:
            return self.directory
        name = program_name([shown_bytes(word) for word in self.command]).removesuffix(".py")
        return RESULTS / f"bisect-{name}-{self.digest}"

    @property
    def builds(self) -> bool:
        """Whether there is an environment to build."""
        return any(one.environment.requirements for one in self.question.candidates) or bool(
            self.sources.common
        )


@dataclass(frozen=True)
class BisectOutcome:
    """How far a bisection came.

    Attributes:
        request: What was asked.
        search: The launches and what they say.
        state: What is kept.
        interrupted: Whether Ctrl-C or TERM ended it.
    """

    request: BisectRequest
    search: BisectionSearch
    state: BisectState
    interrupted: bool = False

    def export(self, command: str) -> BisectionExport:
        """Everything that is known, without secrets. ``command``: the line that gives this again."""
        return redact_model(
            describe(
                self.request.question,
                self.search,
                self.request.metric,
                interrupted=self.interrupted,
                launches=self.state.launches,
                command=command,
            )
        )

    @property
    def exit_code(self) -> ExitCode:
        """130 interrupted, 1 where an end cannot be measured, 3 without an answer, else 0: "no
        difference" is an answer."""
        if self.interrupted:
            return ExitCode.INTERRUPTED
        if self.search.ending is BisectionEnding.UNUSABLE:
            return ExitCode.FAILED
        if self.search.ending in (BisectionEnding.FOUND, BisectionEnding.NO_DIFFERENCE):
            return ExitCode.OK
        return ExitCode.UNABLE


def recorded(request: BisectRequest) -> BisectOutcome:
    """What the folder already says. Launches that failed are tried again.

    Raises:
        StoreError: the folder is of another question, or damaged.
    """
    count = len(request.question.candidates)
    state = read_state(request.folder, request.digest, count) or _new_state(request)
    search = BisectionSearch(request.question.hypotheses, count, request.limits)
    for entry in state.launches:
        if entry.state == "ok":
            _take(search, entry, request.metric)
    return BisectOutcome(request, search, state)


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
        self._told.tell(search, self._request.question.candidates, lambda _: None)
        while (asked := search.next_round()) and not self._is_over():
            for environment in asked:
                if search.ending is not None or self._is_over():
                    break
                if environment not in search.unusable and self._prepare(environment):
                    self._launch(environment)
                self._told.tell(search, self._request.question.candidates, self._on_line)
        if search.ending is None and not self._stop.asked:
            search.ending = BisectionEnding.UNDECIDED
        return BisectOutcome(self._request, search, self._state, interrupted=self._stop.asked)

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
        entry = LaunchEntry(
            environment=environment,
            state=launch.state,
            value=launch.value,
            reason=launch.reason[:MOST_REASON],
            seconds=launch.seconds,
            started_at=started_at,
            is_warmup=is_warmup,
        )
        self._state = self._state.with_launch(entry)
        self._state.write(self._request.folder)
        _take(self._search, entry, self._request.metric)
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
            low, high = search.difference.interval
            on_line(
                f"{candidates[-1].label} is slower than {candidates[0].label}: "
                f"{format_cost(search.difference.ratio, low, high)}"
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
            on_line(f"{self.left} of {len(search.hypotheses)} answers are left")


def _new_state(request: BisectRequest) -> BisectState:
    return BisectState(
        question=request.digest,
        command=tuple(redact_arguments([shown_bytes(word) for word in request.command])),
        environments=tuple(one.label for one in request.question.candidates),
    )


def _take(search: BisectionSearch, entry: LaunchEntry, metric: LaunchMetric) -> None:
    """Give a launch to the search."""
    if entry.value is None:
        search.add_failure(entry.environment, f"{entry.state}: {entry.reason}")
    elif not entry.is_warmup:
        value = 1 / entry.value if metric.higher_is_better else entry.value
        search.add(entry.environment, value)


def _line(
    number: int, candidate: Candidate, launch: Launch, metric: LaunchMetric, *, is_warmup: bool
) -> str:
    said = f"{launch.state}: {launch.reason}"
    if launch.value is not None:
        said = metric.shown(launch.value)
    return f"launch {number + 1}: {candidate.label}: {said}{' (warm-up)' * is_warmup}"
