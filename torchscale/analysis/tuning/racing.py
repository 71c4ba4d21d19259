"""Races of settings: each is measured once a round, and those that are surely slower leave the race. Pure.

As F-race (Birattari and others 2002) does with ranks, this does with logarithms of throughput: differences are paired
by round, so that what slows the machine for a while falls on all alike. Their noise is estimated from all settings
together, since two or three rounds of one setting say little about it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

from torchscale.analysis.stats.series import student_t_quantile

S = TypeVar("S", bound=Hashable)

ERROR = 0.05
"""Chance that a race drops the fastest setting of a group, over all its settings and rounds."""
MARGIN = math.log(1.01)
"""A setting that surely gains less than 1 % is not measured longer: few launches on a quiet machine differ by less."""


class Verdict(str, Enum):
    """What a race says of a setting so far."""

    OPEN = "open"
    SLOWER = "slower"
    """Than another one of its group, or than the reference."""
    NO_GAIN = "no gain"
    """It surely gains less than :data:`MARGIN` over the reference."""
    FASTER = "faster"
    """Than the reference, and no other one of its group is left."""


@dataclass(frozen=True)
class Noise:
    """Of a single launch's logarithm within a round.

    Attributes:
        variance: Pooled over all settings.
        degrees: Of freedom.
    """

    variance: float
    degrees: int


@dataclass(frozen=True)
class Gain:
    """The logarithm of a ratio of throughputs, from rounds that measured both.

    Attributes:
        log: The mean over rounds.
        error: Standard error.
        degrees: Of freedom of the noise behind it.
        rounds: That measured both.
    """

    log: float
    error: float
    degrees: float
    rounds: int

    def bound(self, probability: float) -> float:
        """The value below which the true logarithm lies with this probability."""
        return self.log + student_t_quantile(probability, self.degrees) * self.error if self.error else self.log

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """The ratio's interval (not its logarithm's)."""
        tail = (1 - confidence) / 2
        return math.exp(self.bound(tail)), math.exp(self.bound(1 - tail))

    @property
    def ratio(self) -> float:
        """The ratio itself."""
        return math.exp(self.log)


class Race(Generic[S]):
    """Logarithms of throughput by setting and round. A setting that left has values of the first rounds alone.

    Attributes:
        reference: What gains are held against; it never leaves.
        logs: Setting → a value a round.
    """

    def __init__(self, reference: S, logs: Mapping[S, Sequence[float]]) -> None:
        self.reference, self.logs = reference, {setting: list(values) for setting, values in logs.items()}

    def noise(self) -> Noise | None:
        """From what settings and rounds do not explain (two-way layout), over settings of equally many rounds;
        ``None`` where nothing is left to estimate it from."""
        squares, degrees = 0.0, 0
        for rows in self._blocks():
            squares += sum(value**2 for row in _residuals(rows) for value in row)
            degrees += (len(rows) - 1) * (len(rows[0]) - 1)
        return Noise(squares / degrees, degrees) if degrees else None

    def gain(self, setting: S, over: S | None = None) -> Gain | None:
        """Of ``setting`` over another (the reference by default); ``None`` without a common round or any noise known.

        A setting that varies more than the others counts with its own variance.
        """
        over = self.reference if over is None else over
        pairs = list(zip(self.logs.get(setting, ()), self.logs.get(over, ()), strict=False))
        noise = self.noise()
        if not pairs or noise is None:
            return None
        differences = [mine - theirs for mine, theirs in pairs]
        own = statistics.variance(differences) if len(differences) > 1 else 0.0
        variance = max(2 * noise.variance, own)
        return Gain(statistics.fmean(differences), math.sqrt(variance / len(pairs)), noise.degrees, len(pairs))

    def verdicts(self, groups: Mapping[S, str], *, looks: int, error: float = ERROR) -> dict[S, Verdict]:
        """What is known of each setting but the reference.

        Args:
            groups: Setting → its group: settings compete within it, and each with the reference.
            looks: How often the race is judged at most; the error is shared out over looks and settings (Bonferroni).
            error: Chance of a wrong verdict in the whole race.
        """
        level = 1 - error / (max(1, len(groups)) * max(1, looks))
        verdicts = {}
        for setting, group in groups.items():
            rivals = [other for other in groups if groups[other] == group and other != setting]
            verdicts[setting] = self._verdict(setting, rivals, level)
        for setting, group in groups.items():
            rivals = [other for other in groups if groups[other] == group and other != setting]
            if verdicts[setting] is Verdict.FASTER and any(
                verdicts[other] in (Verdict.OPEN, Verdict.FASTER) for other in rivals
            ):
                verdicts[setting] = Verdict.OPEN
        return verdicts

    def _verdict(self, setting: S, rivals: Iterable[S], level: float) -> Verdict:
        gain = self.gain(setting)
        if gain is None:
            return Verdict.OPEN
        against = [gain, *(pair for other in rivals if (pair := self.gain(setting, other)) is not None)]
        if any(pair.bound(level) < 0 for pair in against):
            return Verdict.SLOWER
        if gain.bound(level) < MARGIN:
            return Verdict.NO_GAIN
        return Verdict.FASTER if gain.bound(1 - level) > 0 else Verdict.OPEN

    def _blocks(self) -> list[list[list[float]]]:
        """Settings of equally many rounds (at least two), at least two in a block."""
        by_rounds: dict[int, list[list[float]]] = {}
        for values in self.logs.values():
            by_rounds.setdefault(len(values), []).append(values)
        return [rows for rounds, rows in by_rounds.items() if rounds > 1 and len(rows) > 1]


def _residuals(rows: Sequence[Sequence[float]]) -> list[list[float]]:
    """Of a table with a row a setting and a column a round, once the means of both are taken off."""
    grand = statistics.fmean(value for row in rows for value in row)
    columns = [statistics.fmean(column) for column in zip(*rows, strict=True)]
    means = [statistics.fmean(row) for row in rows]
    return [
        [value - mean - column + grand for value, column in zip(row, columns, strict=True)]
        for row, mean in zip(rows, means, strict=True)
    ]


def paired_gain(pairs: Sequence[tuple[float, float]]) -> Gain | None:
    """Of logarithms ``(mine, theirs)`` of launches one after the other; ``None`` for fewer than two pairs. Its noise is
    that of the pairs alone."""
    if len(pairs) < 2:
        return None
    differences = [mine - theirs for mine, theirs in pairs]
    error = statistics.stdev(differences) / math.sqrt(len(pairs))
    return Gain(statistics.fmean(differences), error, len(pairs) - 1, len(pairs))


def smallest_visible(error: float, degrees: float, *, power: float = 0.8, confidence: float = 0.95) -> float:
    """The smallest gain (as a share) whose interval would have excluded none with this probability."""
    quantiles = student_t_quantile(0.5 + confidence / 2, degrees) + student_t_quantile(power, degrees)
    return math.expm1(quantiles * error)
