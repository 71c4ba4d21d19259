"""What a bisection is asked for, and how far it came."""

from __future__ import annotations

import hashlib
import json
from dataclasses import astuple, dataclass, field
from pathlib import Path

from torchscale.errors import ExitCode
from torchscale.features.bisect.change_export import describe_change
from torchscale.features.bisect.changes import ChangeRule, ChangeSearch
from torchscale.features.bisect.environments.builder import BUILD_SECONDS
from torchscale.features.bisect.environments.installer import Sources
from torchscale.features.bisect.export_schema import BisectionExport
from torchscale.features.bisect.launcher import LAUNCH_SECONDS, TIMEOUT_SECONDS, LaunchMetric
from torchscale.features.bisect.question import Question
from torchscale.features.bisect.search import BisectionEnding, BisectionSearch, Limits
from torchscale.features.bisect.state import BisectState, LaunchEntry, read_state
from torchscale.features.bisect.verdict import describe
from torchscale.store.locations import RESULTS, cache_directory
from torchscale.util.redaction import redact_arguments, redact_model
from torchscale.util.text import program_name, shown_bytes


def default_cache() -> Path:
    """``$XDG_CACHE_HOME/torchscale/bisect``, by default below ``~/.cache``."""
    return cache_directory() / "bisect"


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
        rule: How numbers are compared where the question is whether one changed.
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
    rule: ChangeRule = field(default_factory=ChangeRule)
    budget_seconds: float | None = None
    timeout_seconds: float = TIMEOUT_SECONDS
    launch_seconds: float = LAUNCH_SECONDS
    build_seconds: float = BUILD_SECONDS

    @property
    def digest(self) -> str:
        """Of everything that decides what a launch says, and what follows from it."""
        environments = [one.environment.digest for one in self.question.candidates]
        metric = [self.metric.name, self.metric.pattern, self.metric.higher_is_better]
        if self.metric.name == "change":
            source = self.metric.source
            metric += [source.pattern, source.key, str(source.file), *astuple(self.rule)]
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
    search: BisectionSearch | ChangeSearch
    state: BisectState
    interrupted: bool = False

    def export(self, command: str) -> BisectionExport:
        """Everything that is known, without secrets. ``command``: the line that gives this again."""
        if isinstance(self.search, ChangeSearch):
            return redact_model(
                describe_change(
                    self.request.question,
                    self.search,
                    self.request.metric.source,
                    interrupted=self.interrupted,
                    launches=self.state.launches,
                    command=command,
                )
            )
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
    search: BisectionSearch | ChangeSearch
    if request.metric.name == "change":
        search = ChangeSearch(request.question.hypotheses, count, request.limits, request.rule)
    else:
        search = BisectionSearch(request.question.hypotheses, count, request.limits)
    for entry in state.launches:
        if entry.state == "ok":
            take_launch(search, entry, request.metric)
    return BisectOutcome(request, search, state)


def _new_state(request: BisectRequest) -> BisectState:
    return BisectState(
        question=request.digest,
        command=tuple(redact_arguments([shown_bytes(word) for word in request.command])),
        environments=tuple(one.label for one in request.question.candidates),
    )


def take_launch(
    search: BisectionSearch | ChangeSearch, entry: LaunchEntry, metric: LaunchMetric
) -> None:
    """Give a launch to the search."""
    if isinstance(search, ChangeSearch) and entry.number is not None:
        search.add(entry.environment, float(entry.number))
    elif entry.value is None or isinstance(search, ChangeSearch):
        search.add_failure(entry.environment, f"{entry.state}: {entry.reason}")
    elif not entry.is_warmup:
        value = 1 / entry.value if metric.higher_is_better else entry.value
        search.add(entry.environment, value)
