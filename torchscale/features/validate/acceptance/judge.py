"""The figures of an acceptance: within their limit, low, unclear or flapping, each with its interval,
its levels and what that rests on."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from torchscale.analysis.stats.estimate import Estimate, from_log
from torchscale.features.validate.acceptance.causes import (
    CauseQuestion,
    Explanation,
    explain,
    known_splits,
)
from torchscale.features.validate.acceptance.estimates import (
    Mode,
    log_level,
    modes,
    slowest,
    split,
)
from torchscale.features.validate.acceptance.limits import (
    DISK,
    REFERENCES,
    Held,
    held_against,
    held_against_peers,
)
from torchscale.features.validate.acceptance.peers import FAMILY_ERROR
from torchscale.features.validate.acceptance.rounds import undisturbed, values_in, without_disturbed
from torchscale.schema.node.acceptance import (
    AcceptanceRun,
    Baseline,
    Cause,
    FigureStatus,
    JudgedFigure,
    Series,
)
from torchscale.schema.node.policy import MIN_ROUNDS, Policy
from torchscale.util.units import format_percent


def judge(
    run: AcceptanceRun,
    baseline: Baseline | None,
    power_limits: Mapping[str, float],
    policy: Policy | None = None,
) -> tuple[JudgedFigure, ...]:
    """Every figure of a run.

    Args:
        run: What was measured.
        baseline: An earlier acceptance, if it is held against one: its undisturbed rounds.
        power_limits: Watts of each GPU, by UUID.
        policy: From where on a figure is low or flaps; ``None``: the default.
    """
    rounds = undisturbed(run)
    if baseline is not None:
        baseline = baseline.model_copy(update={"run": without_disturbed(baseline.run)})
    values = {place: values_in(series, rounds) for place, series in enumerate(run.series)}
    judged = {place: known for place, known in values.items() if len(known) >= MIN_ROUNDS}
    case = _Case(run, baseline, power_limits, policy or Policy(), rounds, judged)
    held = case.held(judged)
    low = {place for place, limits in held.items() if any(each.surely_low for each in limits)}
    figures = []
    for place, series in enumerate(run.series):
        if place not in judged:
            figures.append(_too_few(series, values[place], run, rounds))
            continue
        alone = place in low and _is_alone(place, run.series, judged, low)
        figures.append(case.judge(place, held[place], alone=alone))
    return tuple(figures)


@dataclass(frozen=True)
class _Case:
    """A run, and what every figure of it is judged with.

    Attributes:
        run, baseline, power_limits, policy: As of :func:`judge`.
        rounds: Places of the undisturbed rounds.
        values: Those of these rounds, of each figure that has enough of them, by its place.
    """

    run: AcceptanceRun
    baseline: Baseline | None
    power_limits: Mapping[str, float]
    policy: Policy
    rounds: tuple[int, ...]
    values: Mapping[int, Sequence[float]]

    @property
    def tests(self) -> int:
        """How many figures share the false alarms."""
        return max(1, len(self.values)) * self.run.nodes

    def held(
        self, values: Mapping[int, Sequence[float]], share: float = 1.0
    ) -> dict[int, list[Held]]:
        """Values of figures, by place, against all limits that there are; of what they are held
        against the slowest ``share`` of the rounds."""
        levels = {place: log_level(slowest(self.values[place], share)) for place in self.values}
        levels |= {place: log_level(known) for place, known in values.items()}
        peers = held_against_peers(self.run.series, levels, self.tests)
        return {
            place: [
                *held_against(
                    self.run.series[place],
                    known,
                    self.baseline,
                    tests=self.tests,
                    world_size=self.run.world_size,
                    loss=self.policy.baseline_loss_percent / 100,
                    share=share,
                ),
                *([peers[place]] if place in peers else []),
            ]
            for place, known in values.items()
        }

    def judge(self, place: int, limits: Sequence[Held], *, alone: bool) -> JudgedFigure:
        """The figure at a place. ``alone``: others of its kind on the node are not low."""
        series, level = self.run.series[place], log_level(self.values[place])
        figure = self._by_limits(series, level, _deciding(limits), alone=alone)
        kept = [value if it in self.rounds else None for it, value in enumerate(series.values)]
        error = FAMILY_ERROR / self.tests
        for slow, found in known_splits(self.run, self.rounds):
            groups = split(kept, slow, error)
            if groups is not None:
                return self._with_levels(place, figure, groups, found)
        groups = modes(kept, error)
        if groups is None:
            return figure
        question = CauseQuestion(series, self.rounds, modes=groups)
        found = explain(question, self.run, self.baseline, self.power_limits)
        return self._with_levels(place, figure, groups, found)

    def _by_limits(
        self, series: Series, level: Estimate, deciding: Held | None, *, alone: bool
    ) -> JudgedFigure:
        """A figure by the mean of its rounds."""
        if deciding is None:
            because = "no limit to judge by"
            baseline = self.baseline
            if baseline is not None and baseline.run.world_size != self.run.world_size:
                because += f": the baseline is over {baseline.run.world_size} ranks"
            return _figure(series, level, FigureStatus.NO_LIMIT, because=because)
        if deciding.surely_low or deciding.seems_low:
            others = "the others of this node are" if alone else ""
            question = CauseQuestion(series, self.rounds, kind=deciding.limit.kind, others=others)
            found = explain(question, self.run, self.baseline, self.power_limits)
            if not deciding.surely_low:
                return _seeming(_figure(series, level, FigureStatus.UNCLEAR, deciding), found)
            figure = _figure(series, level, FigureStatus.LOW, deciding, found.because)
            return figure.model_copy(update={"cause": found.cause, "action": found.action})
        if deciding.surely_within:
            return _figure(series, level, FigureStatus.WITHIN, deciding)
        because = "its interval holds the limit"
        return _figure(series, level, FigureStatus.UNCLEAR, deciding, because)

    def _with_levels(
        self, place: int, figure: JudgedFigure, groups: tuple[Mode, Mode], found: Explanation
    ) -> JudgedFigure:
        """A figure with two levels. They are a fact, and a fault only where :meth:`_fault` says
        so; what is low anyway stays so."""
        sizes = tuple((mode.rate, len(mode.rounds)) for mode in groups)
        figure = figure.model_copy(update={"modes": sizes})
        if figure.status is FigureStatus.LOW:
            return figure
        because, held = self._fault(place, groups)
        explained = {"cause": found.cause, "action": found.action}
        if because:
            update: dict[str, object] = {
                "status": FigureStatus.FLAPPING,
                "seems_low": False,
                "because": f"{because}; {found.because}",
            }
            if held is not None:
                update["limit"] = held.limit
            return figure.model_copy(update=explained | update)
        if found.cause is not Cause.SETUP:
            return figure
        because = "; ".join(filter(None, (figure.because, found.because)))
        return figure.model_copy(update=explained | {"because": because})

    def _fault(self, place: int, groups: tuple[Mode, Mode]) -> tuple[str, Held | None]:
        """Why two levels are a fault, and the limit that the lower one misses; empty where they are
        none. Like is compared with like: the rounds of the lower level with as large a share of the
        slowest rounds of baseline and peers."""
        slow, fast = groups
        values = [value for it in slow.rounds if (value := self.run.series[place].values[it])]
        share = len(values) / len(self.values[place])
        for held in self.held({place: values}, share)[place]:
            if held.surely_low:
                below = format_percent(held.deficit)
                return f"its lower level is {below} below the {REFERENCES[held.limit.kind]}", held
        apart, allowed = 1 - slow.rate / fast.rate, self.policy.flap_percent / 100
        if apart > allowed and not self._is_shared(self.run.series[place]):
            return (
                f"its levels are {format_percent(apart)} apart, at most {format_percent(allowed, 0)} "
                "are allowed",
                None,
            )
        return "", None

    def _is_shared(self, series: Series) -> bool:
        """Whether others decide about a rate, too: limits alone judge it then. A disk is also whoever
        else's who uses it. The host of a virtual machine moves its cores: two cores of a sound one
        copied 22 GB/s each for minutes, and 37 GB/s each for others, with the same speed of
        products."""
        return self.run.virtual_cores or series.figure.startswith(DISK)


def _seeming(figure: JudgedFigure, found: Explanation) -> JudgedFigure:
    """A figure that may be low: it is accused of nothing, but a set-up that would explain it is to be
    mended first."""
    update: dict[str, object] = {"seems_low": True, "because": "its interval holds the limit"}
    if found.cause is Cause.SETUP:
        update |= {"because": found.because, "cause": found.cause, "action": found.action}
    return figure.model_copy(update=update)


def _deciding(limits: Sequence[Held]) -> Held | None:
    """The first limit that the figure misses, else the first that leaves it open, else the
    highest; ``None`` without any."""
    missed = [each for each in limits if each.surely_low]
    missed = missed or [each for each in limits if each.seems_low]
    left_open = [each for each in limits if not each.surely_within]
    if missed or left_open:
        return (missed or left_open)[0]
    return max(limits, key=lambda each: each.limit.rate, default=None)


def _figure(
    series: Series,
    level: Estimate,
    status: FigureStatus,
    held: Held | None = None,
    because: str = "",
) -> JudgedFigure:
    rate = level.through(from_log)
    limit, deficit = None, None
    if held is not None:
        limit, deficit = held.limit, held.deficit
    return JudgedFigure(
        figure=series.figure,
        part=series.part,
        unit=series.unit,
        uuids=series.uuids,
        status=status,
        rounds=rate.count,
        rate=rate.value,
        low=rate.low,
        high=rate.high,
        limit=limit,
        deficit=deficit,
        because=because,
    )


def _too_few(
    series: Series, values: Sequence[float], run: AcceptanceRun, rounds: Sequence[int]
) -> JudgedFigure:
    """A figure that cannot be judged, and why; its level is that of the disturbed rounds where no
    other was measured."""
    because = f"{len(values)} rounds, {MIN_ROUNDS} are needed"
    if len(rounds) < len(run.rounds):
        because = f"{len(values)} undisturbed rounds of {len(run.rounds)}, {MIN_ROUNDS} are needed"
    shown = list(values) or values_in(series, range(len(run.rounds)))
    figure = JudgedFigure(
        figure=series.figure,
        part=series.part,
        unit=series.unit,
        uuids=series.uuids,
        status=FigureStatus.UNCLEAR,
        rounds=len(values),
        because=because,
    )
    if not shown:
        return figure
    return figure.model_copy(update={"rate": from_log(log_level(shown).value)})


def _is_alone(place: int, series: Sequence[Series], judged: Collection[int], low: set[int]) -> bool:
    """Whether at least two parts of the same kind on this node are there, and most are not low."""
    kind = (series[place].figure, series[place].device)
    others = [
        other
        for other in judged
        if other != place and (series[other].figure, series[other].device) == kind
    ]
    return len(others) >= 2 and sum(other in low for other in others) * 3 <= len(others)


def is_suspected(figure: JudgedFigure) -> bool:
    """Whether something is wrong with a figure, or seems so."""
    return figure.seems_low or figure.status in (FigureStatus.LOW, FigureStatus.FLAPPING)
