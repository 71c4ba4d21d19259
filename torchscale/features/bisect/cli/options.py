"""Options of ``torchscale bisect``: what launches are judged by."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_args

from torchscale.cli.parameters import option
from torchscale.errors import UsageError

if TYPE_CHECKING:
    from torchscale.features.bisect.changes import ChangeRule
    from torchscale.features.bisect.launcher import LaunchMetric, MetricName
    from torchscale.features.bisect.printed import PrintedNumber

_METRICS: tuple[MetricName, ...] = ("step", "wall", "cpu")


@dataclass(frozen=True)
class MetricOptions:
    """What launches are judged by."""

    metric: Annotated[
        str | None,
        option(
            "--metric NAME",
            "step: mean step of torch.optim, seen from outside. wall: seconds of the command. "
            "cpu: its CPU seconds. loss: did the loss change that it prints last? Default: step",
        ),
    ] = None
    metric_regex: Annotated[
        str | None,
        option(
            "--metric-regex PATTERN",
            "The number that the command prints last: the first group of the pattern.",
        ),
    ] = None
    higher_is_better: Annotated[bool, option("--higher-is-better", "The number is a rate.")] = False
    metric_key: Annotated[
        str | None,
        option(
            "--metric-key KEY",
            "Did this number change? A key of the last JSON line printed; eval.loss for a nested one.",
        ),
    ] = None
    metric_file: Annotated[
        Path | None,
        option("--metric-file PATH", "Look for the key (default: loss) in this file of JSON."),
    ] = None
    changed: Annotated[
        str | None,
        option(
            "--changed HOW",
            "Ask whether the number changed, either way. exactly: launches repeat it. mean: they "
            "scatter. auto: as both ends show.",
        ),
    ] = None
    tolerance: Annotated[
        float | None,
        option("--tolerance T", "A change |a - b| up to T * max(1, |a|) is none.", min=0),
    ] = None

    @property
    def asks_for_change(self) -> bool:
        """Whether the question is if a number changed, and not what became slower."""
        options = (self.metric_key, self.metric_file, self.changed, self.tolerance)
        return self.metric == "loss" or any(value is not None for value in options)

    def checked(self) -> LaunchMetric:
        """The metric.

        Raises:
            UsageError: there is none of that name, or options contradict each other.
        """
        from torchscale.features.bisect.launcher import LaunchMetric  # noqa: PLC0415

        places = {
            "--metric-regex": self.metric_regex,
            "--metric-key": self.metric_key,
            "--metric-file": self.metric_file,
        }
        for option_name, value in places.items():
            if value is not None and self.metric not in (None, "loss"):
                raise UsageError(
                    f"--metric {self.metric} and {option_name}: name one",
                    hint="leave one of them out",
                )
        if self.asks_for_change:
            return LaunchMetric("change", source=self._source())
        if self.metric_regex is not None:
            return LaunchMetric("number", self.metric_regex, self.higher_is_better)
        if self.higher_is_better:
            raise UsageError("--higher-is-better is about the number of --metric-regex")
        for known in _METRICS:
            if (self.metric or "step") == known:
                return LaunchMetric(known)
        raise UsageError(f"--metric {self.metric}: expected one of {', '.join(_METRICS)}, loss")

    def _source(self) -> PrintedNumber:
        """Where the number is that may have changed."""
        from torchscale.features.bisect.printed import LOSS_KEY, PrintedNumber  # noqa: PLC0415

        if self.higher_is_better:
            raise UsageError("--higher-is-better: whether a number changed has no better side")
        is_json = self.metric_key is not None or self.metric_file is not None
        if is_json and self.metric_regex is not None:
            raise UsageError("--metric-regex and --metric-key: name one place of the number")
        if is_json:
            key = self.metric_key or LOSS_KEY
            return PrintedNumber(name=key, key=key, file=self.metric_file)
        if self.metric_regex is not None:
            return PrintedNumber(name="number", pattern=self.metric_regex)
        if self.metric != "loss":
            raise UsageError(
                "--changed and --tolerance are about a number that the command prints",
                hint="name it: --metric loss, --metric-key KEY or --metric-regex PATTERN",
            )
        return PrintedNumber()

    def rule(self) -> ChangeRule:
        """How numbers are compared.

        Raises:
            UsageError: there is no such rule.
        """
        from torchscale.features.bisect.changes import ChangeRule, ChangeRuleName  # noqa: PLC0415

        for known in get_args(ChangeRuleName):
            if (self.changed or "auto") == known:
                return ChangeRule(known, self.tolerance or 0.0)
        raise UsageError(
            f"--changed {self.changed}: expected one of {', '.join(get_args(ChangeRuleName))}"
        )
