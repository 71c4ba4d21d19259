"""The first screen of a comparison of two sides: the answer, what it rests on, the chart that shows
it."""

from __future__ import annotations

from collections.abc import Sequence

from torchscale.config.choices import Metric
from torchscale.features.compare.analysis.change import ChangeVerdict
from torchscale.features.compare.analysis.differences import SideDifference
from torchscale.features.compare.analysis.pair import CellOutcome, Pair
from torchscale.features.compare.text.comparison import comparison_label, format_ratio_change
from torchscale.features.compare.text.result import result_label
from torchscale.features.compare.text.verdict import format_headline, format_session_noise
from torchscale.report.charts import AnyChart
from torchscale.report.document import Headline, Overview, QuestionAnswer
from torchscale.report.values import Tone, shortened
from torchscale.util.words import capped, listed, plural

_TONES = {
    ChangeVerdict.BETTER: Tone.GOOD,
    ChangeVerdict.WORSE: Tone.BAD,
    ChangeVerdict.SAME: Tone.PLAIN,
}
_MAX_NAMED = 2
"""Cells in a row of the first screen."""


def comparison_overview(
    pair: Pair,
    metrics: Sequence[Metric],
    differences: Sequence[SideDifference],
    chart: AnyChart | None,
) -> Overview:
    """Changed? Measured? Same conditions? Certain?"""
    overall, regressions = pair.overall_by(metrics), len(pair.regressions(metrics))
    tone = Tone.CAUTION
    if overall:
        tone = _TONES.get(overall[0].verdict, Tone.CAUTION)
    text = format_headline(pair, metrics)
    if regressions and tone is not Tone.BAD:
        text, tone = f"{plural(regressions, 'cell')} worse or lost. {text}", Tone.BAD
    rows = (
        _changed(pair, metrics),
        _measured(pair, metrics),
        _conditions(pair, metrics, differences),
    )
    certain = []
    if overall:
        certain.append(_certain(pair, metrics))
    return Overview(Headline(text, tone), (*rows, *certain), chart)


def _changed(pair: Pair, metrics: Sequence[Metric]) -> QuestionAnswer:
    decided = pair.decided_by(metrics)
    named = {
        verdict: [
            f"{comparison_label(cell)} ({format_ratio_change(change.ratio)})"
            for cell, change in decided
            if change.verdict is verdict
        ]
        for verdict in (ChangeVerdict.WORSE, ChangeVerdict.BETTER)
    }
    same = sum(change.verdict is ChangeVerdict.SAME for _, change in decided)
    worse, better = named[ChangeVerdict.WORSE], named[ChangeVerdict.BETTER]
    texts = []
    if worse:
        texts.append(_some(worse))
    if better and worse:
        texts.append(f"better: {_some(better)}")
    elif better:
        texts.append(_some(better))
    if same:
        texts.append(f"{same} of {plural(len(decided), 'change')} within the threshold")
    if worse:
        answer, tone = f"{len(worse):,} worse", Tone.BAD
    elif better:
        answer, tone = f"{len(better):,} better", Tone.GOOD
    elif same == len(decided) > 0:
        answer, tone = "no", Tone.GOOD
    else:
        answer, tone = ChangeVerdict.UNCLEAR.value, Tone.CAUTION
    return QuestionAnswer(
        "Cells changed?",
        answer,
        shortened("; ".join(texts) or "no cell shows a change by itself"),
        tone,
        "cells",
    )


def _measured(pair: Pair, metrics: Sequence[Metric]) -> QuestionAnswer:
    lost = [result_label(cell.cell) for cell in pair.cells if cell.outcome is CellOutcome.LOST]
    missing = [result_label(cell.cell) for cell in pair.missing(metrics)]
    compared = sum(cell.outcome is CellOutcome.COMPARED for cell in pair.cells)
    texts = [f"{plural(compared, 'cell')} compared"]
    if lost:
        texts.append(f"failed on this side: {_some(lost)}")
    if missing:
        texts.append(f"not measured here, or less: {_some(missing)}")
    if lost:
        answer, tone = f"{len(lost):,} lost", Tone.BAD
    elif missing or not compared:
        answer, tone = "less than the reference", Tone.BAD
    else:
        answer, tone = "as much as the reference", Tone.GOOD
    return QuestionAnswer("Measured?", answer, shortened("; ".join(texts)), tone, "cells")


def _conditions(
    pair: Pair, metrics: Sequence[Metric], differences: Sequence[SideDifference]
) -> QuestionAnswer:
    decided = pair.decided_by(metrics)
    unequal = [change for _, change in decided if change.conditions]
    flags = sorted({flag for cell, _ in decided for flag in cell.flags})
    texts = []
    if differences:
        texts.append(
            f"{plural(len(differences), 'difference')} in cells, machine, software or settings"
        )
    if unequal:
        conditions = ", ".join(
            dict.fromkeys(flag for change in unequal for flag in change.conditions)
        )
        texts.insert(
            0,
            f"{plural(len(unequal), 'change')} judged without what disturbed launches ({conditions})",
        )
    if flags:
        texts.append(f"warnings of launches: {', '.join(flags)}")
    if unequal:
        answer, tone = "differ", Tone.CAUTION
    elif texts:
        answer, tone = "listed", Tone.PLAIN
    else:
        answer, tone = "yes", Tone.GOOD
    text = "; ".join(texts) or "machines, software and settings are the same"
    return QuestionAnswer("Same conditions?", answer, shortened(text), tone, "differences")


def _certain(pair: Pair, metrics: Sequence[Metric]) -> QuestionAnswer:
    changes = [change for _, change in pair.decided_by(metrics)]
    unclear = sum(not change.verdict.decided for change in changes)
    launches = sorted({min(change.launches) for change in changes})
    texts = [f"{listed([str(count) for count in launches])} launches on a side"]
    if unclear:
        texts.append(f"{unclear} of {plural(len(changes), 'change')} unclear")
    noise = format_session_noise(changes)
    answer, tone = "yes", Tone.GOOD
    if unclear:
        answer, tone = "in part", Tone.CAUTION
    if unclear == len(changes):
        answer = "no"
    return QuestionAnswer(
        "Certain?",
        answer,
        shortened(f"{'; '.join(texts)}. {noise}".removesuffix(".")),
        tone,
        "method",
    )


def _some(labels: Sequence[str]) -> str:
    return listed(capped(labels, _MAX_NAMED, "{:,} more"))
