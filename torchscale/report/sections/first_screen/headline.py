"""The result of a run in one sentence, made from its figures."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence

from torchscale.analysis.summary.run import RunSummary
from torchscale.analysis.training.scaling import Efficiency, Grade
from torchscale.analysis.training.summary import TrainingSummary
from torchscale.catalog.model_options import model_title
from torchscale.report.document import Headline
from torchscale.report.kinds import report_kind
from torchscale.report.sections.first_screen.job import job_screen
from torchscale.report.sections.first_screen.recorded import recorded_headline
from torchscale.report.text.cell_values import format_efficiency, samples_text
from torchscale.report.text.labels import batch_label, model_label
from torchscale.report.text.lost_parts import LOST_PARTS
from torchscale.report.text.run_labels import device_noun
from torchscale.report.values import Tone, shortened
from torchscale.schema.state import State
from torchscale.util.units import format_percent
from torchscale.util.words import listed, plural

GRADE_TONE: dict[Grade, Tone] = {"excellent": Tone.GOOD, "good": Tone.GOOD, "low": Tone.CAUTION}
_MAX_MODELS = 2
"""Named with their efficiencies: more make no sentence that is read at a glance."""
_WORTH_NAMING = 0.03
"""Mean loss of a step, as a share: below it, parts are within the noise from launch to launch (2 to
3 %)."""
_MOST = 0.5
_NEARLY_ALL = 0.8
"""Shares of the loss from which one part "costs most of the rest", or "the rest"."""


def headline(summary: RunSummary) -> Headline:
    """How well training scales, with the interval; else what was measured; else why nothing was. Of
    a watched job how fast it was, and what limited it."""
    if summary.job is not None:
        return job_screen().job_headline(summary.job)
    scaled = at_largest_count(summary.measured)
    if scaled:
        return _scaling(summary, scaled)
    if summary.measured:
        return Headline(_throughput(summary))
    profiled = [cell.profile for cell in summary.cells if cell.profile is not None]
    if profiled:
        return recorded_headline(profiled)
    measured = [cell for cell in summary.machine if cell.state is State.OK]
    if measured and not summary.cells:
        cell = measured[-1]
        return Headline(
            shortened(f"{_capital(cell.cell.title)}: {report_kind(cell.cell.kind).outcome(cell)}.")
        )
    return _nothing(summary)


def at_largest_count(cells: Sequence[TrainingSummary]) -> list[TrainingSummary]:
    """Cells at the largest count that has an efficiency against a smaller one."""
    scaled = [
        cell
        for cell in cells
        if cell.efficiency and cell.efficiency.baseline_world_size < cell.cell.world_size
    ]
    largest = max((cell.cell.world_size for cell in scaled), default=0)
    return [cell for cell in scaled if cell.cell.world_size == largest]


def common_grade(cells: Sequence[TrainingSummary]) -> Grade | None:
    """The lowest grade of cells that all have one; else ``None``."""
    grades = {None if cell.efficiency is None else cell.efficiency.grade for cell in cells}
    if None in grades:
        return None
    return next((word for word in reversed(GRADE_TONE) if word in grades), None)


def loss_parts(cells: Sequence[TrainingSummary]) -> list[tuple[str, float]]:
    """What scaling adds to the step, as mean shares of it, the largest first; empty where it was
    not measured."""
    lost = [cell.decomposition for cell in cells if cell.decomposition is not None]
    if not lost or len(lost) < len(cells):
        return []
    parts = [
        (part.phrase, statistics.fmean(part.share(item) for item in lost)) for part in LOST_PARTS
    ]
    return sorted((part for part in parts if part[1] > 0), key=lambda part: -part[1])


def _scaling(summary: RunSummary, cells: Sequence[TrainingSummary]) -> Headline:
    count = cells[0].cell.world_size
    decided = [
        cell for cell in cells if cell.efficiency is not None and not cell.efficiency.is_vague
    ]
    where = f"to {count} {device_noun(summary, count)}"
    if len(decided) * 2 < len(cells):
        which = ""
        if decided:
            which = f" for {len(cells) - len(decided)} of {plural(len(cells), 'series')}"
        return Headline(
            f"Scaling {where} cannot be judged{which}: launches differ by more than the efficiency "
            f"itself, {efficiency_values([cell for cell in cells if cell not in decided])}."
        )
    once = ", in single launches"
    if any(cell.efficiency and cell.efficiency.interval for cell in decided):
        once = ""
    word = common_grade(cells)
    return Headline(
        f"Scales {where} at {efficiency_values(decided)}{once}{_left_out(cells, decided)}{_loss(decided)}.",
        Tone.PLAIN if word is None else GRADE_TONE[word],
    )


def efficiency_values(cells: Sequence[TrainingSummary]) -> str:
    """``91.2 % (89.5 to 93.0 %)``, or a range by model, or a range over all."""
    by_model: dict[str, list[Efficiency]] = {}
    for cell in cells:
        if cell.efficiency is not None:
            by_model.setdefault(_title(cell), []).append(cell.efficiency)
    if len(by_model) == 1:
        return _range(next(iter(by_model.values())))
    if len(by_model) <= _MAX_MODELS:
        return listed(
            [f"{_range(efficiencies)} ({title})" for title, efficiencies in by_model.items()]
        )
    every = [efficiency for efficiencies in by_model.values() for efficiency in efficiencies]
    middle = format_percent(statistics.median(efficiency.value for efficiency in every))
    return f"{_range(every)} (median {middle}, {len(by_model)} models)"


def _range(efficiencies: Sequence[Efficiency]) -> str:
    low, high = (
        min(efficiencies, key=lambda one: one.value),
        max(efficiencies, key=lambda one: one.value),
    )
    if low is high:
        return format_efficiency(low)
    return f"{format_efficiency(low)} to {format_efficiency(high)}"


def _left_out(cells: Sequence[TrainingSummary], decided: Sequence[TrainingSummary]) -> str:
    vague = len(cells) - len(decided)
    if vague:
        return f"; {vague} of {len(cells)} cannot be judged"
    return ""


def _loss(cells: Sequence[TrainingSummary]) -> str:
    """What most of the loss is; empty where it is small or was not measured."""
    parts = loss_parts(cells)
    total = sum(share for _, share in parts)
    if (
        not parts
        or total < _WORTH_NAMING
        or all(cell.efficiency and cell.efficiency.value > 1 for cell in cells)
    ):
        return ""
    name, share = parts[0]
    if share >= _NEARLY_ALL * total:
        return f"; {name} costs the rest"
    if share >= _MOST * total:
        return f"; {name} costs most of the rest"
    return f"; {name} and {parts[1][0]} cost most of the rest"


def _throughput(summary: RunSummary) -> str:
    """The highest throughput of each model: the first of what a run without efficiencies measured.
    Where samples are not known, the fastest steps."""
    best: dict[str, TrainingSummary] = {}
    for cell in summary.measured:
        known = best.get(_title(cell))
        if known is None or _rate(cell) > _rate(known):
            best[_title(cell)] = cell
    texts = [
        _rate_text(summary, cell, several=len(best) > 1)
        for cell in list(best.values())[:_MAX_MODELS]
    ]
    more = ""
    if len(best) > _MAX_MODELS:
        more = f"; {plural(len(best) - _MAX_MODELS, 'more model')} below"
    return f"{listed(texts)}{more}."


def _rate_text(summary: RunSummary, cell: TrainingSummary, *, several: bool) -> str:
    count = cell.cell.world_size
    where = f"at {batch_label(cell.cell)} on {count} {device_noun(summary, count)}"
    verb = " trains at"
    if several:
        verb = ""
    return shortened(f"{_title(cell)}{verb} {samples_text(cell)} {where}")


def _title(cell: TrainingSummary) -> str:
    """A model without its options; a script with what tells it from others of its name."""
    if cell.cell.apart:
        return model_label(cell.cell)
    return shortened(model_title(cell.cell.model))


def _rate(cell: TrainingSummary) -> float:
    if not cell.figures:
        return 0.0
    return cell.figures.samples_per_second or 1 / cell.figures.step_mean


def _nothing(summary: RunSummary) -> Headline:
    """Why there is no figure: nothing ran yet, or everything failed, or nothing can run here."""
    cells = summary.cells or summary.everything
    states = Counter(cell.state for cell in cells)
    waiting = states[State.WAITING]
    failed = [
        f"{states[state]:,} {state.value}"
        for state in states
        if state not in (State.WAITING, State.SKIPPED)
    ]
    if failed:
        return Headline(f"No cell was measured: {listed(failed)}.", Tone.BAD)
    if waiting:
        return Headline(f"Nothing has been measured yet: {plural(waiting, 'cell')} waiting.")
    return Headline(
        "Nothing was measured: every planned cell was skipped."
        if cells
        else "The plan holds no cell."
    )


def _capital(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"
