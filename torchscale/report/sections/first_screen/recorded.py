"""The first screen of recordings without a benchmark: the same questions, answered by what a
profiler saw."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from torchscale.analysis.diagnosis.rules_straggler import LASTING_SECONDS
from torchscale.analysis.summary.run import RunSummary
from torchscale.report.charts import AnyChart
from torchscale.report.document import Headline, QuestionAnswer
from torchscale.report.profile_blocks import timeline_chart
from torchscale.report.text.findings import cost_words, finding_title
from torchscale.report.text.profile import stall_line
from torchscale.report.values import Tone, shortened
from torchscale.schema.profiles.analysis import ProfileAnalysis
from torchscale.schema.profiles.finding import Confidence, Finding
from torchscale.util.units import format_bytes, format_percent, format_seconds
from torchscale.util.words import format_range, listed, plural, within_sentence

COSTLY = 0.10
"""Share of the step from which the costliest cause is shown in amber. Chosen: a tenth of the
devices."""
_NEXT = 2
"""Causes that are named after the costliest."""


def recorded_headline(analyses: Sequence[ProfileAnalysis]) -> Headline:
    """The costliest cause and what it costs; without one, how long ranks wait for one another."""
    found = _findings(analyses)
    if not found:
        return Headline(f"No bottleneck found. {stall_line(analyses[0])}.")
    worst = found[0]
    if not worst.cost_percent:
        return Headline(shortened(f"{finding_title(worst)}: {worst.summary}."))
    unsure = ""
    if worst.confidence is Confidence.LOW:
        unsure = "; the confidence is low"
    return Headline(f"{finding_title(worst)} costs {cost_words(worst)}{unsure}.", _tone(worst))


def recorded_statuses(
    analyses: Sequence[ProfileAnalysis], anchor: str
) -> tuple[QuestionAnswer, ...]:
    """Measured? Fits? Scales? Limited by? Certain? ``anchor`` is the section that holds the
    recordings."""
    scales = "a recording is of one device count; torchscale benchmark measures several"
    return (
        _recorded(analyses, anchor),
        _fits(analyses),
        QuestionAnswer("Scales?", "not measured", scales),
        _limited(analyses, anchor),
        _certain(analyses, anchor),
    )


def first_timeline(analysis: ProfileAnalysis) -> AnyChart | None:
    """The longest step as a picture."""
    timeline = timeline_chart(analysis, "Timeline")
    if timeline is None:
        return None
    return replace(timeline, name="overview")


def _findings(analyses: Sequence[ProfileAnalysis]) -> list[Finding]:
    """Findings of all recordings, the costliest first."""
    every = (finding for analysis in analyses for finding in analysis.findings)
    return sorted(every, key=lambda finding: -finding.cost_percent)


def _tone(finding: Finding) -> Tone:
    if finding.cost_percent >= COSTLY * 100:
        return Tone.CAUTION
    return Tone.PLAIN


def _recorded(analyses: Sequence[ProfileAnalysis], anchor: str) -> QuestionAnswer:
    first = analyses[0]
    what = f"{plural(len(analyses), 'cell')} profiled"
    if len(analyses) == 1:
        steps = first.window.steps
        what = ""
        if steps:
            what = f"{plural(steps, 'step')} of "
        what += f"{plural(first.world_size, 'rank')}, by {first.recorder}"
    text = f"{what}; profilers slow programs down, so no throughput is taken from it"
    return QuestionAnswer("Measured?", "recorded", shortened(text), Tone.GOOD, anchor)


def _fits(analyses: Sequence[ProfileAnalysis]) -> QuestionAnswer:
    peaks = [rank.peak_memory_bytes for analysis in analyses for rank in analysis.per_rank]
    known = [peak for peak in peaks if peak is not None]
    text = "the recorded steps ran; how much memory they took was not recorded (--target memory)"
    if known:
        text = (
            f"the recorded steps ran; at most {format_bytes(max(known))} allocated at once on a "
            "rank"
        )
    return QuestionAnswer("Fits?", "yes", text, Tone.GOOD)


def _limited(analyses: Sequence[ProfileAnalysis], anchor: str) -> QuestionAnswer:
    found = _findings(analyses)
    if not found:
        return QuestionAnswer(
            "Limited by?", "nothing found", "no rule found a bottleneck", Tone.PLAIN, anchor
        )
    worst = found[0]
    titles = list(dict.fromkeys(within_sentence(finding_title(item)) for item in found))
    text = cost_words(worst) or "cost unknown"
    if len(titles) > 1:
        text += f"; then {listed(titles[1 : _NEXT + 1])}"
    return QuestionAnswer("Limited by?", titles[0], shortened(text), _tone(worst), anchor)


def _certain(analyses: Sequence[ProfileAnalysis], anchor: str) -> QuestionAnswer:
    reasons = list(
        dict.fromkeys(reason for analysis in analyses for reason in analysis.window.reasons)
    )
    shortest = min(_seconds(analysis) for analysis in analyses)
    if shortest < LASTING_SECONDS:
        least = format_seconds(LASTING_SECONDS)
        reasons.append(
            f"less than {least} were recorded, too little to tell lasting effects from passing ones"
        )
    if reasons:
        return QuestionAnswer(
            "Certain?", "with caution", shortened("; ".join(reasons)), Tone.CAUTION, anchor
        )
    return QuestionAnswer(
        "Certain?", "yes", f"no doubts about the recording{_replayed(analyses)}", Tone.GOOD, anchor
    )


def _replayed(analyses: Sequence[ProfileAnalysis]) -> str:
    """How well the replay that gives the costs repeats what was measured."""
    errors = [
        analysis.what_if.replay_error_percent
        for analysis in analyses
        if analysis.what_if is not None
    ]
    known = [abs(error) / 100 for error in errors if error is not None]
    if known:
        return f"; replays repeat the measured step within {format_range(known, format_percent)}"
    return ""


def _seconds(analysis: ProfileAnalysis) -> float:
    """How long a rank was recorded."""
    return analysis.window.seconds / analysis.world_size


def profiled_only(summary: RunSummary) -> bool:
    """Whether its cells were recorded by a profiler and never measured."""
    return bool(summary.cells) and all(
        cell.profile is not None and cell.figures is None for cell in summary.cells
    )
