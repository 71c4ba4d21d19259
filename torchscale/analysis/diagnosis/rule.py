"""How a diagnosis rule is declared and called.

A rule is a function from signals to a :data:`Judgement`. The decorator names its cause and what it
is given beside the signals, in this order::

    @rule(FindingKind.SLOW_LINK, PROBE, LINK_RATE, TRANSFER, where=(several_ranks,))
    def slow_link(
        signals: Signals, probe: LinkProbe, rated: float, transfer: SignalSeries
    ) -> Judgement: ...

:meth:`DiagnosisRule.judge` calls it. Where one of them was not measured it abstains and names what
is missing, so the function gets values and never ``None``. The order of the rules is in
:mod:`torchscale.analysis.diagnosis.diagnose`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar, overload

from torchscale.analysis.diagnosis.signals import (
    MIN_COMPARED,
    CopyUse,
    DeviceUse,
    ExpertLoad,
    FetchedMemory,
    LengthLoad,
    LinkProbe,
    Matrix,
    MicroBatchLengths,
    Pauses,
    SignalOrigin,
    Signals,
    SignalSeries,
    SlowPeriod,
    Windows,
)
from torchscale.schema.profiles.finding import Finding, FindingKind

Judgement = Finding | str | None
"""A finding; why the rule does not judge; or nothing found."""
Earlier = tuple[Finding, ...]
"""The findings of the rules before, so that no cost is counted twice."""
Condition = Callable[[Signals], bool]

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
Value_co = TypeVar("Value_co", covariant=True)


@dataclass(frozen=True)
class RuleInput(Generic[Value_co]):
    """Something that rules are given.

    Attributes:
        what: Was not measured, where it is missing.
        read: The value, from the signals and the findings of the rules before; ``None`` where it
            was not measured.
    """

    what: str
    read: Callable[[Signals, Earlier], Value_co | None]


@dataclass(frozen=True)
class DiagnosisRule:
    """One rule.

    Attributes:
        kind: What it finds.
        needs: What the function is given after the signals.
        function: Judges from signals and the values of ``needs``.
        where: What holds of the signals that the rule is about; it is not asked about others.
        also: What must be measured as well, though only what the function calls looks at it.
    """

    kind: FindingKind
    needs: tuple[RuleInput[object], ...]
    function: Callable[..., Judgement]
    where: tuple[Condition, ...] = ()
    also: tuple[RuleInput[object], ...] = ()

    def applies_to(self, signals: Signals) -> bool:
        """Whether the rule is about such signals."""
        return not self.where or all(holds(signals) for holds in self.where)

    def lacks_others(self, signals: Signals) -> bool:
        """Whether the rule is about several ranks, of which one is here."""
        rest = (holds(signals) for holds in self.where if holds is not several_ranks)
        return several_ranks in self.where and signals.is_alone and all(rest)

    def judge(self, signals: Signals, earlier: Earlier) -> Judgement:
        """What the rule says of signals that it applies to, given the findings before."""
        asked = self.needs + self.also
        values = [need.read(signals, earlier) for need in asked]
        missing = [need.what for need, value in zip(asked, values, strict=True) if value is None]
        if missing:
            return f"not measured: {', '.join(missing)}"
        return self.function(signals, *values[: len(self.needs)])


@overload
def rule(
    kind: FindingKind,
    first: RuleInput[A],
    /,
    *,
    where: tuple[Condition, ...] = ...,
    also: tuple[RuleInput[object], ...] = ...,
) -> Callable[[Callable[[Signals, A], Judgement]], DiagnosisRule]: ...
@overload
def rule(
    kind: FindingKind,
    first: RuleInput[A],
    second: RuleInput[B],
    /,
    *,
    where: tuple[Condition, ...] = ...,
) -> Callable[[Callable[[Signals, A, B], Judgement]], DiagnosisRule]: ...
@overload
def rule(
    kind: FindingKind,
    first: RuleInput[A],
    second: RuleInput[B],
    third: RuleInput[C],
    /,
    *,
    where: tuple[Condition, ...] = ...,
) -> Callable[[Callable[[Signals, A, B, C], Judgement]], DiagnosisRule]: ...
@overload
def rule(
    kind: FindingKind,
    first: RuleInput[A],
    second: RuleInput[B],
    third: RuleInput[C],
    fourth: RuleInput[D],
    /,
    *,
    where: tuple[Condition, ...] = ...,
) -> Callable[[Callable[[Signals, A, B, C, D], Judgement]], DiagnosisRule]: ...
def rule(
    kind: FindingKind,
    *needs: RuleInput[object],
    where: tuple[Condition, ...] = (),
    also: tuple[RuleInput[object], ...] = (),
) -> Callable[[Callable[..., Judgement]], DiagnosisRule]:
    """Makes a rule of a function; the arguments are the attributes of :class:`DiagnosisRule`."""

    def declare(function: Callable[..., Judgement]) -> DiagnosisRule:
        return DiagnosisRule(kind, needs, function, where, also)

    return declare


def several_ranks(signals: Signals) -> bool:
    """Whether there are several ranks: for rules about ranks that wait for one another."""
    return len(signals.ranks) > 1


def unsplit(signals: Signals) -> bool:
    """Whether ranks communicate, and waiting and transfer cannot be told apart."""
    return signals.exposed is not None


def staged(signals: Signals) -> bool:
    """Whether the ranks are stages of a pipeline: for rules about pipelines."""
    return signals.staged


def not_staged(signals: Signals) -> bool:
    """Whether the ranks are no stages of a pipeline: for rules about ranks of equal work."""
    return not signals.staged


def has_spread_experts(signals: Signals) -> bool:
    """Whether experts are spread over ranks, which send each other the tokens."""
    return signals.experts is not None


def has_lengths(signals: Signals) -> bool:
    """Whether samples have different lengths, and it is known how long each rank's are."""
    return signals.lengths is not None


def in_host_memory(signals: Signals) -> bool:
    """Whether a launch held its tensors in host memory: for rules about the host's allocator, which
    a recording does not know of."""
    return not signals.on_device and signals.origin is SignalOrigin.LAUNCH


def is_read(signals: Signals) -> bool:
    """Whether there are devices of which only their driver says how busy they are; a recording has
    every kernel."""
    return signals.on_device and signals.origin is not SignalOrigin.TRACE


def _exposed_quantiles(signals: Signals) -> tuple[float, float] | None:
    if signals.exposed_p50 is None or signals.exposed_p95 is None:
        return None
    return signals.exposed_p50, signals.exposed_p95


def _memory_counts(signals: Signals) -> tuple[int | None, float | None] | None:
    if signals.allocation_retries is None and signals.page_faults is None:
        return None
    return signals.allocation_retries, signals.page_faults


EARLIER: RuleInput[Earlier] = RuleInput("findings", lambda _, earlier: earlier)
COMPUTE: RuleInput[Matrix] = RuleInput(
    "each rank's compute time per step", lambda it, _: it.compute
)
WAIT: RuleInput[Matrix] = RuleInput(
    "waits at collectives, compared over ranks", lambda it, _: it.wait
)
BLAME: RuleInput[SignalSeries] = RuleInput("which rank arrives last", lambda it, _: it.blame)
DATA_WAIT: RuleInput[Matrix] = RuleInput("waits for data", lambda it, _: it.data_wait)
PAUSES: RuleInput[Pauses] = RuleInput(
    f"at least {MIN_COMPARED} steps, one by one", lambda it, _: it.pauses
)
WINDOWS: RuleInput[Windows] = RuleInput(
    f"each rank's compute time over at least {MIN_COMPARED} steps, one by one",
    lambda it, _: it.windows,
)
PERIODS: RuleInput[tuple[SlowPeriod, ...]] = RuleInput(
    "what comes back every so many steps", lambda it, _: it.periods
)
BUCKET_BYTES: RuleInput[tuple[int, ...]] = RuleInput("bucket sizes", lambda it, _: it.bucket_bytes)
PROBE: RuleInput[LinkProbe] = RuleInput(
    "all-reduces timed with nothing else running", lambda it, _: it.probe
)
TRANSFER: RuleInput[SignalSeries] = RuleInput("exposed communication", lambda it, _: it.transfer)
EXPOSED: RuleInput[SignalSeries] = RuleInput("exposed communication", lambda it, _: it.exposed)
LINK_RATE: RuleInput[float] = RuleInput(
    "the link's rated bandwidth", lambda it, _: it.link_bytes_per_second
)
EXPOSED_QUANTILES: RuleInput[tuple[float, float]] = RuleInput(
    f"exposed communication of at least {MIN_COMPARED} steps",
    lambda it, _: _exposed_quantiles(it),
)
"""Median and 95 % quantile."""
HOST_BOUND: RuleInput[SignalSeries] = RuleInput(
    "when work was handed to the device", lambda it, _: it.host_bound
)
READBACKS: RuleInput[float] = RuleInput(
    "values read back from the device", lambda it, _: it.readbacks
)
READBACK_WAIT: RuleInput[float] = RuleInput(
    "the host's waits for the device", lambda it, _: it.readback_wait
)
PAGEABLE: RuleInput[float] = RuleInput(
    "the memory that copies go from and to", lambda it, _: it.pageable
)
COPIES: RuleInput[tuple[CopyUse, ...]] = RuleInput("copies by the device", lambda it, _: it.copies)
THROTTLED: RuleInput[tuple[tuple[str, ...], ...]] = RuleInput(
    "reasons for lowered clocks", lambda it, _: it.throttled
)
MICRO_BATCHES: RuleInput[MicroBatchLengths] = RuleInput(
    "the compute of each micro-batch, between sends and receives whose partners are known",
    lambda it, _: it.micro_batch_lengths,
)
MEMORY_COUNTS: RuleInput[tuple[int | None, float | None]] = RuleInput(
    "allocation retries, page faults", lambda it, _: _memory_counts(it)
)
"""One of them may be missing."""
EXPERTS: RuleInput[ExpertLoad] = RuleInput(
    "tokens of each rank's experts", lambda it, _: it.experts
)
LENGTHS: RuleInput[LengthLoad] = RuleInput(
    "lengths of each rank's samples", lambda it, _: it.lengths
)
FETCHED_MEMORY: RuleInput[FetchedMemory] = RuleInput(
    "minor page faults", lambda it, _: it.fetched_memory
)
DEVICE_USE: RuleInput[DeviceUse] = RuleInput(
    "how busy each rank's device is", lambda it, _: it.device_use
)
