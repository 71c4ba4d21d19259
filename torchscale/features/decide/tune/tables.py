"""What a search for the fastest setting found, for the terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.console import Console

from torchscale.config.choices import TuningAxis
from torchscale.features.decide.tune import strategy_table
from torchscale.features.decide.tune.export_schema import (
    ChangeExport,
    TuningExport,
    TuningTrialExport,
)
from torchscale.features.decide.tune.labels import format_gain, setting_label
from torchscale.report.document import Block, Document, Paragraph, Section
from torchscale.report.formats.console import print_document
from torchscale.report.table import Column, Table
from torchscale.report.values import TableValue, optional_text, optional_value, text_value
from torchscale.util.units import format_change, format_percent, format_rate, format_seconds

_BUDGET_MINUTES = (1, 2, 3, 5, 10, 15, 20, 30, 45, 60, 90, 120, 180, 240, 360, 480, 720)
"""Budgets that are suggested."""
_LAUNCHES_TO_SPARE = 1.5
"""A suggested budget over the least that gives an answer: some settings are launched more than
once."""
_VERDICTS = {"open": "", "slower": "slower", "no gain": "gains less than 1 %", "faster": "faster"}


def print_tuning(result: TuningExport, title: str, console: Console) -> None:
    """The table of what was tried, what each change gave, and the answer."""
    blocks: list[Block] = []
    if result.strategies:
        blocks.append(strategy_table.strategies_table(result))
        blocks += map(Paragraph, strategy_table.left_out_lines(result))
    if not result.strategies or _searched_more(result):
        blocks.append(_trials_table(result))
    blocks += map(Paragraph, (*_notes(result), *_answer(result)))
    sections = (Section("", "tuning", tuple(blocks)),)
    print_document(Document(title, "", (), (), sections), console)


def _notes(result: TuningExport) -> list[str]:
    """What changes do besides, and what was not tried."""
    axes: dict[str, dict[str, None]] = {}
    for change in (change for trial in result.trials for change in trial.changes if change.note):
        axis = change.axis
        if change.value == "noop":
            axis = f"{change.axis}={change.value}"
        axes.setdefault(change.note, {})[axis] = None
    notes = [f"* {', '.join(names)}: {note}" for note, names in axes.items()]
    skipped = [f"{axis}: nothing tried: {reason}" for axis, reason in result.skipped.items()]
    return [*notes, *skipped]


def _searched_more(result: TuningExport) -> bool:
    """Whether other axes than the strategy were searched."""
    return any(
        change.axis != TuningAxis.STRATEGY.value
        for trial in result.trials
        for change in trial.changes
    )


def _trials_table(result: TuningExport) -> Table:
    numbers = ("samples/s", "against the start", "launches")
    columns = (
        Column("setting", prose=True),
        *(Column(title, numeric=True) for title in numbers),
        Column("result", prose=True),
    )
    return Table("", columns, tuple(map(_row, result.trials)))


def _row(trial: TuningTrialExport) -> tuple[TableValue, ...]:
    outcome = f"{trial.state}: {trial.reason}"
    if trial.state == "ok":
        outcome = _VERDICTS[trial.verdict]
    return (
        TableValue(setting_label(trial.changes)),
        optional_value(trial.throughput, format_rate),
        TableValue(optional_text(trial.gain, format_gain)),
        TableValue(str(trial.launches)),
        text_value(outcome),
    )


def _answer(result: TuningExport) -> list[str]:
    lines = _before_the_answer(result)
    winner = _winner_label(result)
    verified = result.verified
    if result.ending == "start failed":
        return [
            *lines,
            "The config's own settings failed, so there is nothing to compare with.",
            "The same command measures them again.",
        ]
    if result.better and verified is not None:
        over = f" over {result.start_strategy}" * bool(result.start_strategy)
        lines.append(
            f"Fastest: {winner}: {format_gain(verified)}{over}, verified in {verified.launches} "
            "alternating launches of each."
        )
        if len(result.contributions) > 1:
            lines += [
                f"  {setting_label([one.change])} gives {format_gain(one.gain)} of it: the rest "
                "with and without it."
                for one in result.contributions
            ]
        if result.interaction is not None:
            lines.append(
                f"  Together they gain {format_change(result.interaction)} against the product of "
                "their gains alone."
            )
        lines += strategy_table.tie_lines(result, winner)
        return [*lines, *_left_over(result), f"Config: {result.config}"]
    seen = result.smallest_visible_gain
    power = ""
    if seen is not None:
        power = f"; a gain of {format_percent(seen)} would have been seen (4 times in 5)"
    if result.ending != "complete":
        why, ahead = "No answer: the time budget ended the search", ""
        if result.ending == "interrupted":
            why = "Interrupted"
        if result.winner:
            ahead = f" {winner} was ahead, and is not verified."
        return [
            *lines,
            f"{why} after {format_seconds(result.seconds)} of launches.{ahead}",
            *_left_over(result),
        ]
    if verified is not None:
        lines.append(f"{winner} was ahead, but alternating launches give {format_gain(verified)}.")
    lines.append(f"Nothing better found{power}.")
    runner = result.runner_up
    if runner is not None:
        lines.append(
            f"Next to {winner}: {_setting_name(runner.changes)}: {format_gain(runner.gain)}, in "
            f"{runner.gain.launches} alternating launches of each."
        )
    lines += strategy_table.tie_lines(result, winner)
    if result.moved_start and result.config is not None:
        lines.append(f"Config: {result.config}")
    return lines


def _before_the_answer(result: TuningExport) -> list[str]:
    """What bounds or explains the answer."""
    lines = []
    if result.exposed_communication is not None:
        lines.append(
            f"Exchanging nothing at all would gain {format_gain(result.exposed_communication)}."
        )
    if result.predicted_exposed_seconds:
        sizes = ", ".join(
            f"{size} {format_seconds(value)}"
            for size, value in result.predicted_exposed_seconds.items()
        )
        lines.append(f"Predicted exposed gradient sync of a step, by bucket size: {sizes}.")
    if result.strategies:
        lines.append(strategy_table.effort_line(result))
    if result.moved_start:
        lines.append(
            f"The config's own strategy does not run here ({result.moved_start}); the others are "
            f"compared with {result.start_strategy}."
        )
    return lines


def _winner_label(result: TuningExport) -> str:
    """Of a search for a strategy, that alone; its start by its own."""
    if not result.start_strategy:
        return setting_label(result.winner)
    if not result.winner:
        return result.start_strategy
    return _setting_name(result.winner)


def _setting_name(changes: Sequence[ChangeExport]) -> str:
    """A strategy without the name of its axis, where it is all that is changed."""
    if len(changes) == 1 and changes[0].axis == TuningAxis.STRATEGY.value:
        return changes[0].value
    return setting_label(changes)


def _left_over(result: TuningExport) -> list[str]:
    """What was not tried, and the budget that would do; nothing for a search that came to its
    end."""
    if result.ending != "budget":
        return []
    lines = []
    if result.untried:
        names = ", ".join(setting_label([one]) for one in result.untried)
        lines.append(f"Not tried for lack of time: {names}.")
    seconds = result.launch_seconds
    if not seconds:
        return lines
    minutes = _suggested_minutes(
        max(result.budget_seconds, _LAUNCHES_TO_SPARE * result.seconds_needed)
    )
    least = ""
    if not result.better:
        least = (
            f" an answer takes at least {result.launches_needed:,} more launches"
            f" ({format_seconds(result.seconds_needed)});"
        )
    count = int(60 * minutes // seconds)
    more = f"{least} --budget {minutes}m would allow about {count:,} more."
    if not result.better and not result.untried and result.seconds_needed > result.budget_seconds:
        return [
            *lines,
            f"A larger budget continues:{more}",
        ]  # every launch that is left is of a verification
    return [*lines, f"The same command continues:{more}"]


def _suggested_minutes(seconds: float) -> int:
    """The next round number of minutes."""
    return next(
        (one for one in _BUDGET_MINUTES if 60 * one >= seconds), math.ceil(seconds / 3600) * 60
    )
