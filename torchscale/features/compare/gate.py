"""Whether a comparison should fail a build."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torchscale.config.choices import FailOn, Metric
from torchscale.errors import ExitCode
from torchscale.features.compare.analysis.change import MIN_LAUNCHES, Reason
from torchscale.features.compare.analysis.headlines import BLIND
from torchscale.features.compare.analysis.pair import Pair
from torchscale.features.compare.analysis.transports import moved_otherwise
from torchscale.features.compare.sections.document import ComparisonReport
from torchscale.features.compare.text.result import METRIC_LABELS, cell_text
from torchscale.features.compare.text.verdict import format_nothing_compared
from torchscale.util.units import format_percent
from torchscale.util.words import listed, plural


@dataclass(frozen=True)
class Gate:
    """Whether a comparison fails, and a line with the reasons for each side that makes it fail."""

    exit_code: ExitCode
    messages: tuple[str, ...] = ()


def gate(
    comparison: ComparisonReport,
    fail_on: FailOn,
    *,
    allow_missing: bool = False,
    allow_unclear: bool = False,
    allow_transport: bool = False,
) -> Gate:
    """What a comparison means for a build: it fails where something is worse, failed, was not
    measured or moved its data another way, and where all that decides is unclear and it may be a
    quarter slower or more.

    Args:
        comparison: All sides.
        fail_on: ``unclear`` also fails where a cell is unclear; ``never`` never fails.
        allow_missing: Pass although a side measured less than the reference.
        allow_unclear: Pass although all is unclear.
        allow_transport: Pass although data moved another way than in the reference.
    """
    if fail_on is FailOn.NEVER or _has_recordings_alone(comparison):
        return Gate(ExitCode.OK)
    messages = []
    for pair in comparison.pairs:
        reasons = _reasons(
            pair, comparison.metrics, allow_missing=allow_missing, allow_unclear=allow_unclear
        )
        if not allow_transport:
            reasons += _other_transports(pair)
        unclear = pair.unclear(comparison.metrics)
        if not reasons and fail_on is FailOn.UNCLEAR and unclear:
            reasons = [f"{plural(len(unclear), 'cell')} unclear"]
        if reasons:
            messages.append(
                f"Failed: {pair.other.name} against {pair.reference.name}: {'; '.join(reasons)}."
            )
    return Gate(ExitCode.FAILED if messages else ExitCode.OK, tuple(messages))


def _has_recordings_alone(comparison: ComparisonReport) -> bool:
    """Whether recordings were compared, as was asked for, and there is nothing else to judge."""
    return bool(comparison.why) and all(
        explained.recordings and not explained.pair.decided_by(comparison.metrics)
        for explained in comparison.why
    )


def _reasons(
    pair: Pair, metrics: Sequence[Metric], *, allow_missing: bool, allow_unclear: bool
) -> list[str]:
    regressions, overall, missing = (
        pair.regressions(metrics),
        pair.overall_regressions(metrics),
        pair.missing(metrics),
    )
    reasons = []
    if regressions:
        reasons.append(f"{plural(len(regressions), 'cell')} worse or lost")
    if overall:
        reasons.append(
            f"worse over all cells: {listed([METRIC_LABELS[metric] for metric in overall])}"
        )
    if missing and not allow_missing:
        reasons.append(
            f"{plural(len(missing), 'cell')} not measured, or less than in the reference "
            "(--accept missing lets it pass)"
        )
    if not reasons and not pair.decided_by(metrics):
        reasons.append(f"nothing was compared ({format_nothing_compared(pair, metrics)})")
    if pair.may_hide_loss(metrics) and not allow_unclear:
        limit = format_percent(max(BLIND, pair.threshold), 1)
        why = _why_unclear(pair, metrics)
        reasons.append(
            f"no verdict: a loss of {limit} or more is not ruled out ({why}; --accept unclear lets it "
            "pass)"
        )
    return reasons


def _other_transports(pair: Pair) -> list[str]:
    """``2 cells moved data another way (--accept transport lets it pass): …``, with the first."""
    cells = moved_otherwise(pair)
    if not cells:
        return []
    first = cells[0]
    ways = [side.moved_by for side in (first.after, first.before) if side is not None]
    return [
        f"{plural(len(cells), 'cell')} moved data another way: {cell_text(first.cell.cell)} by "
        f"{ways[0]}, the reference by {ways[-1]} (--accept transport lets it pass)"
    ]


def _why_unclear(pair: Pair, metrics: Sequence[Metric]) -> str:
    changes = [change for _, change in pair.decided_by(metrics)]
    found = {change.reason for change in changes}
    flags = dict.fromkeys(flag for change in changes for flag in change.conditions)
    reasons = []
    if Reason.FEW_LAUNCHES in found:
        reasons.append(f"fewer than {MIN_LAUNCHES} launches on a side")
    if Reason.CONDITIONS in found:
        reasons.append(f"{' or '.join(flags)}, which --accept flags ignores")
    if Reason.NOISE in found:
        reasons.append("noise")
    return ", ".join(reasons)
