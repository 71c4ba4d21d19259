"""How often ``torchscale bisect`` is right, and how many launches it takes, on made-up launches.

::

    python benchmarks/bisect_power.py                        # all cases, 100 games each
    python benchmarks/bisect_power.py --games 20 --noise 0.03
    python benchmarks/bisect_power.py --folder results/bisect-job-1a2b3c4d   # noise that was measured

Twelve versions, of which one adds 5, 10 or 30 %; none; a further one with two states, anywhere and
beside it; the slow ones with two states; two factors of which one, both together, either or each
decides. Noise is normal, with heavy tails (Student's t with three degrees of freedom, scaled to the
same size), with a level that drifts by a third of the noise from launch to launch, or drawn from
what the launches of a folder differ from the means of their environments, in runs of eight as they
followed each other.

Beside it stands the textbook's halving: a question for the difference and one for each of four
halvings, each with an equal share of the same error, as many alternating launches of two
environments as the known noise and a difference of known size ask for, decided halfway. Once for
the true cost, which nobody knows beforehand, once for the smallest cost that matters (3 %).
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

from torchscale.features.bisect.hypotheses import AnswerKind, Hypothesis, factorial, steps  # noqa: E402
from torchscale.features.bisect.search import BisectionEnding, BisectionSearch, Limits  # noqa: E402

VERSIONS = 12
COSTS = (0.05, 0.1, 0.3)
NOISES = (0.01, 0.03, 0.06)
_RUN = 8
"""Residuals of a folder are drawn in runs of so many, so that what lasts stays together."""
_TAIL_DEGREES = 3

Noise = Callable[[np.random.Generator], Iterator[float]]
"""Gives the deviations of one launch after the other."""


@dataclass(frozen=True)
class Case:
    """What is searched.

    Attributes:
        name: In the table.
        answers: The answers that are possible.
        costs: Game → the cost of each environment (a share), its two states (probability and cost),
            and the answer that is right; ``None`` for no difference.
        limits: What is looked for.
    """

    name: str
    answers: tuple[Hypothesis, ...]
    costs: Callable[[int], tuple[list[float], dict[int, tuple[float, float]], Hypothesis | None]]
    limits: Limits = field(default_factory=Limits)


def normal(size: float) -> Noise:
    """Independent normal noise."""

    def deviations(random: np.random.Generator) -> Iterator[float]:
        while True:
            yield size * float(random.standard_normal())

    return deviations


def heavy(size: float) -> Noise:
    """Independent noise with heavy tails."""
    scale = size / math.sqrt(_TAIL_DEGREES / (_TAIL_DEGREES - 2))

    def deviations(random: np.random.Generator) -> Iterator[float]:
        while True:
            yield scale * float(random.standard_t(_TAIL_DEGREES))

    return deviations


def drifting(size: float) -> Noise:
    """Normal noise around a level that walks by a third of it from launch to launch."""

    def deviations(random: np.random.Generator) -> Iterator[float]:
        level = 0.0
        while True:
            level += size / 3 * float(random.standard_normal())
            yield level + size * float(random.standard_normal())

    return deviations


def measured(folders: Sequence[Path]) -> tuple[Noise, float]:
    """The noise of launches in folders, and its standard deviation."""
    residuals = [value for folder in folders for value in _residuals(folder)]

    def deviations(random: np.random.Generator) -> Iterator[float]:
        while True:
            start = int(random.integers(len(residuals)))
            for place in range(start, start + _RUN):
                yield residuals[place % len(residuals)]

    return deviations, statistics.stdev(residuals)


def _residuals(folder: Path) -> list[float]:
    launches = [
        (entry["environment"], math.log(entry["value"]))
        for entry in json.loads((folder / "bisect.json").read_text())["launches"]
        if entry["state"] == "ok" and not entry["is_warmup"]
    ]
    of: dict[int, list[float]] = {}
    for environment, log in launches:
        of.setdefault(environment, []).append(log)
    # What a mean takes of the spread of few launches is given back.
    return [
        (log - statistics.fmean(of[environment])) * math.sqrt(count / (count - 1))
        for environment, log in launches
        if (count := len(of[environment])) > 2
    ]


def version_case(cost: float) -> Case:
    """One of twelve versions adds ``cost``; in each game another."""
    answers = steps(VERSIONS)

    def costs(
        game: int,
    ) -> tuple[list[float], dict[int, tuple[float, float]], Hypothesis | None]:
        truth = answers[game % len(answers)]
        return (
            [cost * truth.is_slow(place) for place in range(VERSIONS)],
            {},
            truth if cost else None,
        )

    return Case(f"one of twelve adds {cost:.0%}", answers, costs)


def other_state_case(cost: float) -> Case:
    """One of twelve adds ``cost``; another one has a second state that costs as much."""
    answers = steps(VERSIONS)

    def costs(
        game: int,
    ) -> tuple[list[float], dict[int, tuple[float, float]], Hypothesis | None]:
        truth = answers[game % len(answers)]
        middle = [place for place in range(1, VERSIONS - 1) if place != truth.members[0]]
        return *_beside_two_states(truth, middle[(game * 7) % len(middle)], cost), truth

    return Case(f"adds {cost:.0%}; another has two states", answers, costs)


def neighbor_state_case(cost: float) -> Case:
    """One of twelve adds ``cost``; the one before it (of the second: after it) has a second state
    that costs as much."""
    answers = steps(VERSIONS)

    def costs(
        game: int,
    ) -> tuple[list[float], dict[int, tuple[float, float]], Hypothesis | None]:
        truth = answers[game % len(answers)]
        first = truth.members[0]
        return *_beside_two_states(truth, first - 1 if first > 1 else first + 1, cost), truth

    return Case(f"adds {cost:.0%}; its neighbor has two states", answers, costs)


def _beside_two_states(
    truth: Hypothesis, place: int, cost: float
) -> tuple[list[float], dict[int, tuple[float, float]]]:
    """Costs by an answer, and the environment whose launches are at both levels."""
    sign = 1 if place < truth.members[0] else -1
    levels = [cost * truth.is_slow(version) for version in range(VERSIONS)]
    return levels, {place: (0.5, (1 + cost) ** sign - 1)}


def slow_states_case(cost: float) -> Case:
    """From one of twelve on, half of the launches take ``cost`` longer."""
    answers = steps(VERSIONS)

    def costs(
        game: int,
    ) -> tuple[list[float], dict[int, tuple[float, float]], Hypothesis | None]:
        truth = answers[game % len(answers)]
        slow = [place for place in range(VERSIONS) if truth.is_slow(place)]
        return [0.0] * VERSIONS, dict.fromkeys(slow, (0.5, cost)), truth

    return Case(f"two states from one of twelve on, {cost:.0%} apart", answers, costs)


def factor_case(kind: AnswerKind, cost: float) -> Case:
    """Two factors that changed together."""
    answers = factorial(2)
    truths = [one for one in answers if one.kind is kind]

    def costs(
        game: int,
    ) -> tuple[list[float], dict[int, tuple[float, float]], Hypothesis | None]:
        truth = truths[game % len(truths)]
        factors = [
            math.prod(1 + cost * effect[place] for effect in truth.effects) for place in range(4)
        ]
        return [factor - 1 for factor in factors], {}, truth

    return Case(f"two factors, {kind.value}, {cost:.0%}", answers, costs)


def cases() -> list[Case]:
    """All that are played."""
    return [
        version_case(0.0),
        *map(version_case, COSTS),
        other_state_case(0.3),
        neighbor_state_case(0.3),
        slow_states_case(0.3),
        *(factor_case(kind, 0.1) for kind in AnswerKind if kind is not AnswerKind.STEP),
    ]


def play(case: Case, noise: Noise, game: int) -> tuple[str, int]:
    """``right``, ``named among several``, ``wrong`` or how else it ended; and the launches.
    Where the version before the answer has two states, it is to be named, as one with two states or
    as unsteady, for it to be right, and the answer may then be one of both."""
    random = np.random.default_rng(game)
    costs, states, truth = case.costs(game)
    search = BisectionSearch(case.answers, len(costs), case.limits)
    deviations = noise(random)
    while asked := search.next_round():
        for place in asked:
            if search.ending is not None:
                break
            log = math.log1p(costs[place]) + next(deviations)
            probability, cost = states.get(place, (0.0, 0.0))
            if random.random() < probability:
                log += math.log1p(cost)
            search.add(place, math.exp(log))
    outcome = _judged(search, truth)
    if truth is None or list(states) != [truth.members[0] - 1]:
        return outcome, len(search.launches)
    if outcome == "right":
        outcome = "two states not named"
    first_slow = truth.members[0]
    named = {*search.modes, *search.unsteady}
    if outcome == "named among several" and named == {first_slow - 1}:
        answers = {one.members[0] for one in search.answer}
        outcome = "right" if answers == {first_slow - 1, first_slow} else outcome
    return outcome, len(search.launches)


def _judged(search: BisectionSearch, truth: Hypothesis | None) -> str:
    if search.ending is BisectionEnding.NO_DIFFERENCE:
        return "right" if truth is None else "wrong"
    if search.ending is not BisectionEnding.FOUND:
        assert search.ending is not None
        return str(search.ending.value)
    if truth not in search.answer:
        return "wrong"
    return "right" if len(search.answer) == 1 else "named among several"


def textbook_launches(noise: float, cost: float, *, questions: int, alpha: float) -> int:
    """Launches of a halving with as many alternating launches a question as it takes."""
    quantile = statistics.NormalDist().inv_cdf(1 - alpha / questions)
    each = math.ceil(8 * (quantile * noise / math.log1p(cost)) ** 2)
    return 2 * questions * max(1, each)


def table(games: int, noises: Sequence[tuple[str, Noise, float]]) -> Iterator[str]:
    """A line for each case and noise."""
    questions = 1 + math.ceil(math.log2(VERSIONS - 1))
    yield "| case | noise | right | else | launches: median, 90 % | halving: true cost, 3 % |"
    yield "|---|---|---|---|---|---|"
    for case in cases():
        for name, noise, size in noises:
            played = [play(case, noise, game) for game in range(games)]
            outcomes = Counter(outcome for outcome, _ in played)
            counts = [launches for _, launches in played]
            others = ", ".join(
                f"{count} {what}" for what, count in outcomes.items() if what != "right"
            )
            halving, cost = "–", _cost_of(case)
            if cost is not None:
                known, unknown = (
                    textbook_launches(size, value, questions=questions, alpha=case.limits.alpha)
                    for value in (cost, case.limits.at_least)
                )
                halving = f"{known}, {unknown}"
            yield (
                f"| {case.name} | {name} | {outcomes['right']} of {games} | {others or '–'} | "
                f"{statistics.median(counts):.0f}, {np.quantile(counts, 0.9):.0f} | {halving} |"
            )


def _cost_of(case: Case) -> float | None:
    """Of the cases that a halving can answer."""
    costs, states, truth = case.costs(0)
    if truth is None or states or truth.kind is not AnswerKind.STEP:
        return None
    return max(costs)


def main() -> None:
    """Play and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--games", type=int, default=100)
    parser.add_argument("--noise", type=float, nargs="*", default=NOISES)
    parser.add_argument("--folder", type=Path, nargs="*", default=[])
    options = parser.parse_args()
    noises: list[tuple[str, Noise, float]] = []
    if options.folder:
        drawn, size = measured(options.folder)
        noises.append((f"measured, {size:.1%}", drawn, size))
    else:
        noises += [(f"normal {size:.0%}", normal(size), size) for size in options.noise]
        middle = sorted(options.noise)[len(options.noise) // 2]
        noises.append((f"heavy tails {middle:.0%}", heavy(middle), middle))
        noises.append((f"drifting {middle:.0%}", drifting(middle), middle))
    for line in table(options.games, noises):
        print(line, flush=True)


if __name__ == "__main__":
    main()
