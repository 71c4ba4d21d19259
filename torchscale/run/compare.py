"""Compare results: sides → pairs against the first → a report, and whether it should fail a build."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from torchscale.analysis.comparison.compare import compare
from torchscale.analysis.comparison.matching import differences
from torchscale.config.choices import CompareFormat, FailOn, Metric
from torchscale.errors import ExitCode, UsageError
from torchscale.report.formats.comparison_export import comparison_json
from torchscale.report.sections.comparison import ComparisonReport, comparison_document
from torchscale.results.baselines import BASELINES
from torchscale.results.comparison_inputs import load_source
from torchscale.run.observer import SILENT, Observer
from torchscale.run.rendering import render_document
from torchscale.schema.run.result_set import ResultSet


@dataclass(frozen=True)
class Gate:
    """Whether a comparison fails, and a line for each reason to look at it."""

    exit_code: ExitCode
    messages: tuple[str, ...] = ()


def compare_sources(
    sources: Sequence[str],
    *,
    prices: Sequence[float] = (),
    baselines: Path = BASELINES,
    threshold: float,
    metrics: Sequence[Metric] = (),
    force: bool = False,
    observer: Observer = SILENT,
) -> ComparisonReport:
    """Compare every source with the first.

    Args:
        sources: Results directories, ``record.json`` files, or baselines by file or name; at least two.
        prices: Of a device and hour, one for each source; none compares no costs.
        baselines: Where baselines are kept.
        threshold: Changes up to this share count as equal.
        metrics: What decides; by default speed alone.
        force: Compare across different devices, precisions or versions of torch.
        observer: Shows that reading takes a while.

    Raises:
        UsageError: a source does not exist, or the sides differ in what forbids a comparison.
        StoreError: a source cannot be read.
    """
    with observer.status("Reading"):
        sides = _with_distinct_names([load_source(source, baselines) for source in sources], sources)
    all_differences = differences(sides)
    forbidding = [difference for difference in all_differences if difference.forbids]
    if forbidding and not force:
        listed = "; ".join(
            f"{difference.what} ({' | '.join(value or 'unknown' for value in difference.values)})"
            for difference in forbidding
        )
        raise UsageError(
            f"the sides differ in {listed}", hint="--force compares them all the same, and names what differs"
        )
    side_prices: list[float | None] = [*prices] or [None] * len(sides)
    pairs = tuple(
        compare(sides[0], side, threshold=threshold, prices=(side_prices[0], price), ignore_precision=force)
        for side, price in zip(sides[1:], side_prices[1:], strict=True)
    )
    names = tuple(side.name for side in sides)
    return ComparisonReport(pairs, tuple(all_differences), names, tuple(metrics), threshold, tuple(prices))


def render_comparison(comparison: ComparisonReport, kind: CompareFormat) -> bytes:
    """The content of a file in any format but ``terminal``.

    Raises:
        ValueError: ``kind`` is ``terminal``.
    """
    if kind is CompareFormat.JSON:
        return (comparison_json(comparison) + "\n").encode()
    return render_document(kind, comparison_document(comparison))


def gate(comparison: ComparisonReport, fail_on: FailOn) -> Gate:
    """What a comparison means for a build, by what it should fail on."""
    if fail_on is FailOn.NEVER:
        return Gate(ExitCode.OK)
    metrics = comparison.metrics
    regressions = [cell for pair in comparison.pairs for cell in pair.regressions(metrics)]
    overall = [metric.value for pair in comparison.pairs for metric in pair.overall_regressions(metrics)]
    undecided = [cell for pair in comparison.pairs for cell in pair.undecided(metrics)]
    messages = [f"Worse, or lost: {len(regressions)}."] if regressions else []
    messages += [f"Worse over all cells: {', '.join(dict.fromkeys(overall))}."] if overall else []
    if not messages and fail_on is FailOn.UNDECIDED and undecided:
        messages = [f"Not decided: {len(undecided)}."]
    return Gate(ExitCode.FAILED if messages else ExitCode.OK, tuple(messages))


def _with_distinct_names(sides: Sequence[ResultSet], sources: Sequence[str]) -> Sequence[ResultSet]:
    """The sides with names that differ: their own, or else the sources as given, numbered if need be."""
    names = [side.name for side in sides]
    if len(set(names)) == len(names):
        return sides
    if len(set(sources)) == len(sources):
        return [side.model_copy(update={"name": source}) for side, source in zip(sides, sources, strict=True)]
    return [
        side.model_copy(update={"name": f"{source} ({number})"})
        for number, (side, source) in enumerate(zip(sides, sources, strict=True), start=1)
    ]
