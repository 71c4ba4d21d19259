"""When commands that are launched by turns have been launched often enough. Pure.

Whoever looks after each launch, and stops once p < 0.05, calls more than 5 % of equal commands
different. So there are few looks, and all but the last ask for a much smaller p (Haybittle 1971, Peto
et al. 1976): the last one may then have the level of any comparison.
"""

from __future__ import annotations

from collections.abc import Sequence

from torchscale.config.choices import Metric
from torchscale.features.compare.analysis.change import MIN_LAUNCHES, ChangeVerdict
from torchscale.features.compare.analysis.pair import Pair

EARLY_LEVEL = 0.001
"""p of a difference below which a look before the last one ends it. With five looks 4.7 % of equal
commands are called different at a noise of 5 to 10 %, and fewer at less (docs/compare.md)."""
_GROWTH = 1.6
"""From one look to the next: 3, 5, 8, 12, 20, 32, …. Closer together they would tell little more."""


def is_look(launches: int, most: int) -> bool:
    """Whether the verdict is looked at after so many launches of each command, of ``most``."""
    look = float(MIN_LAUNCHES)
    while round(look) < launches:
        look *= _GROWTH
    return launches >= most or round(look) == launches


def is_clear(pairs: Sequence[Pair], metrics: Sequence[Metric] = ()) -> bool:
    """Whether nothing is left to be measured: what decides is the same in each pair, or differs
    with a p below :data:`EARLY_LEVEL`."""
    decisive = [change for pair in pairs for _, change in pair.decided_by(metrics)]
    return bool(decisive) and all(
        change.verdict is ChangeVerdict.SAME
        or (change.verdict.decided and (change.adjusted_p or 0.0) < EARLY_LEVEL)
        for change in decisive
    )
