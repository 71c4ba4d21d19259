"""What values of options of ``torchscale compare`` mean."""

from __future__ import annotations

from pathlib import Path

from torchscale.cli.parsing import is_price, listed, members, number
from torchscale.config.choices import Accept, FailOn, MatchKey
from torchscale.errors import UsageError


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
