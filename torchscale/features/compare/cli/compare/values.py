"""What values of options of ``torchscale compare`` mean."""

from __future__ import annotations

from pathlib import Path

from torchscale.cli.parsing import is_price, listed, members, number
from torchscale.config.choices import Accept, FailOn, MatchKey
from torchscale.errors import UsageError
from torchscale.features.compare.rate import AlarmRate

_DAYS = {"day": 1.0, "week": 7.0, "month": 365 / 12, "year": 365.0}
_MOST_A_DAY = 1e6
_RAREST, _MOST_OFTEN = 1e-6, 0.2
"""Chances of a false alarm in a run. A rarer one is far beyond what tens of runs can promise; with
every fifth run nobody looks at an alarm any more."""


def parse_accepted(texts: list[str] | None) -> list[Accept]:
    """What ``--accept`` lets pass.

    Raises:
        UsageError: a value is none of :class:`Accept`; of an earlier word the hint is the word of
            today.
    """
    if "undecided" in listed(texts):
        raise UsageError("--accept undecided: the word is unclear", hint="write --accept unclear")
    return members("--accept", texts, Accept)


def chosen_fail_on(fail_on: FailOn | None, *, with_prices: bool) -> FailOn:
    """When ``compare`` fails: as ``fail_on`` says, by default on a regression; never with prices,
    since which machine to buy is a question, not a gate."""
    if fail_on is not None:
        return fail_on
    if with_prices:
        return FailOn.NEVER
    return FailOn.REGRESSION


def sources_and_prices(arguments: list[str], costs: list[str]) -> tuple[list[str], list[float]]:
    """Paths and prices; ``--cost 3.00 5.50`` leaves what follows its first number among the
    sources."""
    paths = [
        argument for argument in arguments if Path(argument).exists() or number(argument) is None
    ]
    texts: list[str] = []
    if costs:
        texts = [*costs, *(argument for argument in arguments if argument not in paths)]
    else:
        paths = arguments
    prices = []
    for text in texts:
        price = number(text)
        if price is None or not is_price(price):
            raise UsageError(
                f"--cost {text}: expected a price above 0 of a device and hour, such as 2.50"
            )
        prices.append(price)
    if not paths:
        raise UsageError(
            "only prices of --cost were given, and no source",
            hint="torchscale compare before after --cost 3.00",
        )
    return paths, prices


def parse_rate(text: str, runs_per_day: float) -> AlarmRate:
    """``1/year`` or ``2/month`` of ``runs_per_day``, or ``1/20``: one in twenty runs.

    Raises:
        UsageError: it is none of these, or as much as every fifth run.
    """
    if not 0 < runs_per_day <= _MOST_A_DAY:
        raise UsageError(f"--runs-per-day {runs_per_day:g}: expected a number above 0, such as 10")
    count, _, period = text.partition("/")
    alarms, runs = number(count), number(period)
    if period in _DAYS:
        runs = _DAYS[period] * runs_per_day
    if alarms is None or runs is None or alarms <= 0 or runs <= 0:
        raise UsageError(
            f"--false-alarms {text}: expected a number and a period, such as 1/year, 1/month, "
            "1/week, or 1/20 for one in 20 runs"
        )
    chance = alarms / runs
    if not _RAREST <= chance <= _MOST_OFTEN:
        raise UsageError(
            f"--false-alarms {text}: {chance:.2g} of the runs; expected {_RAREST:g} to "
            f"{_MOST_OFTEN:g}",
            hint="--runs-per-day says of how many runs",
        )
    return AlarmRate(text, runs_per_day, chance)


def parse_match_keys(texts: list[str] | None) -> tuple[MatchKey, ...]:
    """``gpus`` is another word for ``devices``, and a dash is as good as an underscore."""
    keys = []
    for text in listed(texts):
        name = {"gpus": MatchKey.DEVICES.value}.get(text, text.replace("-", "_"))
        if name not in {key.value for key in MatchKey}:
            raise UsageError(
                f"--match {text}: expected some of {', '.join(key.value for key in MatchKey)}"
            )
        keys.append(MatchKey(name))
    return tuple(dict.fromkeys(keys))
