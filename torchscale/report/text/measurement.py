"""The rules by which a cell was measured, in words, and the key that makes it longer: of the rule
that was in force."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from torchscale.analysis.training.flags import MIN_BATCHES, Flag
from torchscale.analysis.training.summary import TrainingSummary
from torchscale.report.text.words import listed, plural
from torchscale.schema.cells.training import Measurement
from torchscale.schema.launch.steps import StopRule
from torchscale.util.units import format_percent

_KEYS = {
    StopRule.MAX_STEPS: "benchmark.max_steps",
    StopRule.MAX_SECONDS: "benchmark.max_seconds",
    StopRule.MEASURE_STEPS: "benchmark.measure_steps",
    StopRule.MEASURE_SECONDS: "benchmark.measure_seconds",
    StopRule.EPOCHS: "training.epochs",
    StopRule.BUDGET: "benchmark.cell_seconds",
}
"""What to raise where a rule ended a measurement too early."""
_ENDINGS = {StopRule.CONVERGED: "the interval", StopRule.PROGRAM: "the script itself", **_KEYS}
_STEPS_OF_SCRIPT = "the steps of the script"
_ASKED = {StopRule.MEASURE_STEPS, StopRule.MEASURE_SECONDS, StopRule.EPOCHS}


def warmup_rule(rule: Measurement) -> str:
    """``Warm-up: at least 5 steps and 1 s, then until …``."""
    if rule.warmup_epochs == 0:
        return "Warm-up: the three steps that always run (training.warmup_epochs: 0)"
    if rule.warmup_epochs is not None:
        return (
            f"Warm-up: {plural(rule.warmup_epochs, 'epoch')} of the data (training.warmup_epochs)"
        )
    return (
        f"Warm-up: at least {plural(rule.warmup_steps, 'step')} and {rule.warmup_seconds:g} s, "
        "then until the mean step times of two batches of steps agree within "
        f"{format_percent(rule.steady_tolerance, 0)}, but at most {rule.warmup_max_seconds:g} s"
    )


def stop_rule(rule: Measurement) -> str:
    """``Measurement: for 2 s (benchmark.measure_seconds), …``: what was asked, and of an adaptive
    rule all limits."""
    cut = f"in {MIN_BATCHES} or more batches of steps, where there are as many steps"
    if rule.epochs is not None:
        return f"Measurement: {plural(rule.epochs, 'epoch')} of the data (training.epochs), {cut}"
    if rule.measure_steps is not None:
        return f"Measurement: {plural(rule.measure_steps, 'step')} (benchmark.measure_steps), {cut}"
    if rule.measure_seconds is not None:
        return f"Measurement: for {rule.measure_seconds:g} s (benchmark.measure_seconds), {cut}"
    return (
        f"Measurement: batches of steps, at least {plural(rule.min_steps, 'step')} and "
        f"{rule.min_seconds:g} s, until the 95 % interval of the mean step reaches to no more than "
        f"{format_percent(rule.target_half_width, 1)} from it (benchmark.target_half_width), but "
        f"at most {plural(rule.max_steps, 'step')} or {rule.max_seconds:g} s"
    )


def endings(cells: Sequence[TrainingSummary]) -> str:
    """What ended an adaptive measurement, or one that a budget cut short; empty where all took what
    was asked."""
    counts = Counter(cell.figures.stop_rule for cell in cells if cell.figures is not None)
    if not counts or set(counts) <= _ASKED:
        return ""
    parts = [
        f"by {_ENDINGS[ending]} in {plural(count, 'cell')}"
        for ending, count in sorted(counts.items())
    ]
    return f"The first launch of each cell was ended {listed(parts)}"


def flag_text(flag: Flag, cells: Sequence[TrainingSummary]) -> str:
    """What a flag says of these cells, and what to do: with the keys that were in force."""
    flagged = [cell for cell in cells if flag in cell.flags]
    match flag:
        case Flag.NOISY:
            keys = [key for cell in flagged for key in _longer(cell)]
        case Flag.NOT_STEADY:
            keys = [
                _warmup_key(cell.cell.measurement, "benchmark.warmup_max_seconds")
                for cell in flagged
            ]
        case Flag.DRIFTING:
            keys = [
                _warmup_key(cell.cell.measurement, "benchmark.warmup_seconds") for cell in flagged
            ]
        case _:
            keys = []
    if not keys:
        return flag.explanation
    return f"{flag.explanation}: raise {listed(sorted(set(keys)))}"


def _longer(cell: TrainingSummary) -> tuple[str, ...]:
    """Keys that ended the measurement; where its first launch reached the target, those that end
    others."""
    figures, script = cell.figures, cell.cell.script
    if figures is not None and script is not None and script.steps != "auto":
        return (_STEPS_OF_SCRIPT,)
    if figures is not None and figures.stop_rule is StopRule.PROGRAM:
        return (_STEPS_OF_SCRIPT,)
    if figures is not None and figures.stop_rule in _KEYS:
        return (_KEYS[figures.stop_rule],)
    return _KEYS[StopRule.MAX_STEPS], _KEYS[StopRule.MAX_SECONDS]


def _warmup_key(rule: Measurement, adaptive: str) -> str:
    if rule.warmup_epochs is None:
        return adaptive
    return "training.warmup_epochs"
