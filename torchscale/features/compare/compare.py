"""Compare results: sides → pairs against the reference → a report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from torchscale.config.choices import CompareFormat, MatchKey, Metric
from torchscale.errors import UsageError
from torchscale.features.compare.analysis.compare import compare
from torchscale.features.compare.analysis.differences import (
    SideDifference,
    cell_differences,
    differences,
)
from torchscale.features.compare.analysis.explanation import explain
from torchscale.features.compare.analysis.matching import workload_key
from torchscale.features.compare.baseline_files import BASELINES, find_baseline
from torchscale.features.compare.export import comparison_json
from torchscale.features.compare.history.baselines import Against, earlier_side, named_side
from torchscale.features.compare.inputs import (
    Side,
    load_sides,
    load_source,
    meant_source,
    told_apart,
)
from torchscale.features.compare.recordings import compare_cells
from torchscale.features.compare.sections.document import ComparisonReport, comparison_document
from torchscale.features.compare.sides import (
    is_comparable,
    prices_of_sides,
    reference_place,
    too_few,
    with_distinct_names,
)
from torchscale.features.compare.text.verdict import format_held
from torchscale.observer import SILENT, Observer
from torchscale.read.rendering import render_document
from torchscale.schema.cells.kinds import as_kind
from torchscale.schema.cells.training import TrainingCell
from torchscale.schema.run.result_set import ResultSet
from torchscale.store.locations import RESULTS

_TWO_RUNS = "torchscale compare before after"


@dataclass(frozen=True)
class Rules:
    """How sides are compared.

    Attributes:
        threshold: Changes up to this share count as equal; ``None`` for the calibrated thresholds
            of the reference where it has them, else ``THRESHOLD``.
        metrics: What decides; by default speed alone.
        force: Compare across different devices, precisions or versions of torch.
        match: Compare training and memory cells that are equal in these, whatever else differs.
        accept_flags: Judge the ratios as measured, although launches were contended or throttled.
        against: What to take as the reference from earlier runs: ``last``, ``main`` or
            ``median-of-10``; ``None`` for the first source.
        history: File of a history, or directory with run folders: holds the earlier runs (by
            default the directory that holds the run does), and sources that are nothing here.
        why: Explain the difference of each training cell: also across versions and devices, and of
            the only cell of each side whatever it was started with.
    """

    threshold: float | None = None
    metrics: tuple[Metric, ...] = ()
    force: bool = False
    match: tuple[MatchKey, ...] = ()
    accept_flags: bool = False
    against: str | None = None
    history: Path | None = None
    why: bool = False


def compare_sources(
    sources: Sequence[str],
    rules: Rules,
    *,
    reference: str | None = None,
    prices: Sequence[float] = (),
    baselines: Path = BASELINES,
    observer: Observer = SILENT,
) -> ComparisonReport:
    """Compare every source with the reference.

    Args:
        sources: Results directories, directories of such, ``record.json`` files, or baselines by
            file or name.
        rules: How they are compared.
        reference: Name of the side that the others are compared with; by default the first source,
            and of a directory of runs its oldest.
        prices: Prices of a device and hour: one for all sides, or one for each; none compares no
            costs.
        baselines: Where baselines are kept.
        observer: Shows that reading takes a while.

    Raises:
        UsageError: a source does not exist, there is one side alone, the sides differ in what
            forbids a comparison, or ``rules.match`` does not tell cells apart.
        StoreError: a source cannot be read.
    """
    if rules.history is None or rules.against is not None:
        sources = [meant_source(source, baselines) for source in sources]
    with observer.status("Reading"):
        if rules.against is not None:
            loaded, left_out = _earlier(sources, rules, baselines)
        elif rules.history is not None:
            loaded, left_out = _of_history(sources, rules.history, baselines), []
        else:
            loaded, left_out = load_sides(sources, baselines)
    if not loaded:
        raise UsageError(too_few(sources, [], left_out), hint=_TWO_RUNS)
    named = with_distinct_names(loaded)
    side_prices = prices_of_sides(prices, named)
    first = reference_place(named, reference)
    order = [first, *(place for place in range(len(named)) if place != first)]
    chosen = [
        place for place in order if place == first or is_comparable(named[first], named[place])
    ]
    left_out += [
        f"Left out: {named[place].results.name}, which holds {format_held(named[place].results)}."
        for place in order
        if place not in chosen
    ]
    sides = told_apart([named[place].results for place in chosen])
    if len(sides) < 2:
        raise UsageError(too_few(sources, sides, left_out), hint=_TWO_RUNS)
    comparison = _compared(
        sides, [side_prices[place] for place in chosen], rules, left_out, prices_given=bool(prices)
    )
    if not rules.why:
        return comparison
    with observer.status("Reading recordings"):
        before, *others = (loaded[place].source for place in chosen)
        why = tuple(
            replace(explain(pair), recordings=compare_cells(pair, before, after))
            for pair, after in zip(comparison.pairs, others, strict=True)
        )
    return replace(comparison, why=why)


def _earlier(sources: Sequence[str], rules: Rules, baselines: Path) -> tuple[list[Side], list[str]]:
    """The reference out of earlier runs, and the one source."""
    against = Against.from_text(rules.against or "")
    if len(sources) != 1:
        raise UsageError(
            f"--against {rules.against} takes one run, not {len(sources)}",
            hint="torchscale compare NEW --against last",
        )
    new = Side(sources[0], load_source(sources[0], baselines))
    source = rules.history or (
        Path(sources[0]).resolve().parent if Path(sources[0]).is_dir() else RESULTS
    )
    return [earlier_side(new, against, source), new], []


def _of_history(sources: Sequence[str], history: Path, baselines: Path) -> list[Side]:
    """Sources that are nothing here are runs of the history, by name."""
    here = [
        Path(source).exists() or find_baseline(source, baselines) is not None for source in sources
    ]
    if all(here):
        raise UsageError(
            f"--history {history} is for --against, or for runs of it by name",
            hint="--against last --history torchscale.sqlite",
        )
    return [
        Side(source, load_source(source, baselines)) if is_here else named_side(source, history)
        for source, is_here in zip(sources, here, strict=True)
    ]


def _compared(
    sides: Sequence[ResultSet],
    prices: Sequence[float | None],
    rules: Rules,
    left_out: Sequence[str],
    *,
    prices_given: bool,
) -> ComparisonReport:
    of_sides, match = differences(sides), _match(rules, sides)
    if not (rules.force or match or rules.why):
        _refuse([difference for difference in of_sides if difference.forbids])
    pairs = tuple(
        compare(
            sides[0],
            side,
            threshold=rules.threshold,
            prices=(prices[0], price),
            ignore_precision=rules.force,
            match=match,
            accept_flags=rules.accept_flags,
            median=rules.against is not None and rules.against.startswith("median"),
        )
        for side, price in zip(sides[1:], prices[1:], strict=True)
    )
    of_cells = cell_differences(
        [[(cell.before, cell.after) for cell in pair.cells] for pair in pairs]
    )
    return ComparisonReport(
        pairs,
        (*of_cells, *of_sides),
        tuple(side.name for side in sides),
        rules.metrics,
        pairs[0].threshold,
        tuple(price for price in prices if price is not None) if prices_given else (),
        matched_by_name=bool(match),
        left_out=tuple(left_out),
        calibrated=rules.threshold is None,
    )


def _match(rules: Rules, sides: Sequence[ResultSet]) -> tuple[MatchKey, ...]:
    """The keys that cells match by: those that were asked for. Where the difference of the only
    training cell of each side is to be explained, what it was started with may be the cause: it
    matches whatever differs but the number of devices."""
    if rules.match or not rules.why:
        return rules.match
    cells = [
        [trained for cell in side.cells if (trained := as_kind(cell.cell, TrainingCell))]
        for side in sides
    ]
    if any(len(of_side) != 1 for of_side in cells):
        return ()
    alike = len({workload_key(cell) for (cell,) in cells}) == 1
    if alike or len({cell.world_size for (cell,) in cells}) > 1:
        return ()
    return (MatchKey.DEVICES,)


def _refuse(forbidding: Sequence[SideDifference]) -> None:
    if not forbidding:
        return
    unequal = "; ".join(
        f"{difference.what} ({' | '.join(value or 'unknown' for value in difference.values)})"
        for difference in forbidding
    )
    raise UsageError(
        f"the sides differ in {unequal}",
        hint="--match model,global_batch compares cells that are equal in what it names, and "
        "--accept versions equal cells; both list what differs",
    )


def render_comparison(comparison: ComparisonReport, kind: CompareFormat) -> bytes:
    """The content of a file in any format but ``terminal``; Markdown is short, for pull requests
    and job summaries.

    Raises:
        ValueError: ``kind`` is ``terminal``.
    """
    if kind is CompareFormat.JSON:
        return (comparison_json(comparison) + "\n").encode()
    return render_document(
        kind, comparison_document(comparison, brief=kind is CompareFormat.MARKDOWN)
    )
