"""What a bisection would launch, and how often: it is played on made-up noise."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

import numpy as np

from torchscale.features.bisect.changes import ChangeSearch
from torchscale.features.bisect.export_schema import BisectionPlanExport, ExpectedExport
from torchscale.features.bisect.hypotheses import Hypothesis
from torchscale.features.bisect.outcome import BisectRequest, recorded
from torchscale.features.bisect.run import environments_ready
from torchscale.features.bisect.search import BisectionEnding, BisectionSearch, Limits

ASSUMED_NOISE = 0.03
"""Standard deviation of a launch where none was measured yet: of short launches on a shared
machine. Quiet machines have less."""
SHOWN_COSTS = (0.05, 0.1, 0.3)
_GAMES = 12


def plan_of(request: BisectRequest) -> BisectionPlanExport:
    """What would be launched. Nothing is built and nothing launched.

    Raises:
        StoreError: the folder is of another question, or damaged.
    """
    outcome = recorded(request)
    if request.metric.name == "change":
        return _plan_of_change(request)
    measured = outcome.search.noise
    times = [entry.seconds for entry in outcome.state.launches if entry.state == "ok"]
    seconds = statistics.fmean(times) if times else None
    noise = ASSUMED_NOISE if measured is None else measured
    question = request.question
    return BisectionPlanExport(
        changes=tuple(factor.change for factor in question.factors),
        environments=tuple(candidate.label for candidate in question.candidates),
        built=environments_ready(request),
        noise=noise,
        noise_measured=measured is not None,
        most_launches=request.limits.most_launches,
        expected=tuple(
            expected_launches(
                question.hypotheses,
                len(question.candidates),
                request.limits,
                noise,
                cost,
                launch_seconds=seconds,
            )
            for cost in SHOWN_COSTS
        ),
    )


def _plan_of_change(request: BisectRequest) -> BisectionPlanExport:
    question = request.question
    return BisectionPlanExport(
        changes=tuple(factor.change for factor in question.factors),
        environments=tuple(candidate.label for candidate in question.candidates),
        built=environments_ready(request),
        noise=None,
        noise_measured=False,
        most_launches=request.limits.most_launches,
        expected=(),
        exact_launches=_exact_launches(question.hypotheses, len(question.candidates)),
    )


def _exact_launches(hypotheses: Sequence[Hypothesis], environments: int) -> int:
    counts = []
    for truth in hypotheses:
        search = ChangeSearch(tuple(hypotheses), environments)
        while asked := search.next_round():
            for environment in asked:
                level = sum(2**place for place, one in enumerate(truth.effects) if one[environment])
                search.add(environment, float(level))
        counts.append(len(search.launches))
    return round(statistics.median(counts))


def expected_launches(
    hypotheses: Sequence[Hypothesis],
    environments: int,
    limits: Limits,
    noise: float,
    cost: float,
    *,
    launch_seconds: float | None = None,
) -> ExpectedExport:
    """Of a slowdown of ``cost`` (a share) that comes from any of the answers, with launches of this
    noise (standard deviation, a share) that take ``launch_seconds`` of wall time each."""
    counts, answered = [], 0
    for game in range(_GAMES):
        random = np.random.default_rng(game)
        truth = hypotheses[int(random.integers(len(hypotheses)))]
        search = BisectionSearch(tuple(hypotheses), environments, limits)
        while asked := search.next_round():
            for environment in asked:
                if search.ending is None:
                    log = math.log1p(cost) * truth.is_slow(environment)
                    search.add(environment, math.exp(log + noise * random.standard_normal()))
        counts.append(len(search.launches))
        answered += search.ending is BisectionEnding.FOUND
    launches = round(statistics.median(counts))
    return ExpectedExport(
        cost=cost,
        launches=launches,
        most=round(float(np.quantile(counts, 0.9))),
        answered=answered / _GAMES,
        seconds=None if launch_seconds is None else launches * launch_seconds,
    )
