"""Compare results: sides → pairs against the reference → a report, and whether it should fail a
build."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from torchscale.config.choices import CompareFormat, FailOn, MatchKey, Metric
from torchscale.errors import ExitCode, UsageError
from torchscale.features.compare.analysis.compare import THRESHOLD, compare
from torchscale.features.compare.analysis.explanation import explain
from torchscale.features.compare.analysis.matching import (
    SideDifference,
    cell_differences,
    differences,
    workload_key,
)
from torchscale.features.compare.analysis.pair import BLIND, MIN_LAUNCHES, Pair, Reason
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
from torchscale.features.compare.text.result import METRIC_LABELS
from torchscale.features.compare.text.verdict import format_held, format_nothing_compared
from torchscale.observer import SILENT, Observer
from torchscale.read.rendering import render_document
from torchscale.schema.cells.kinds import as_kind
from torchscale.schema.cells.training import TrainingCell
from torchscale.schema.run.result_set import ResultSet
from torchscale.store.locations import RESULTS
from torchscale.util.units import format_percent
from torchscale.util.words import listed, plural

_TWO_RUNS = "torchscale compare before after"


@dataclass(frozen=True)
class Rules:
    """How sides are compared.

    Attributes:
        threshold: Changes up to this share count as equal.
        metrics: What decides; by default speed alone.
        force: Compare across different devices, precisions or versions of torch.
        match: Compare training and memory cells that are equal in these, whatever else differs.
        accept_flags: Give a verdict also where the sides were measured under unequal conditions.
        against: What to take as the reference from earlier runs: ``last``, ``main`` or
            ``median-of-10``; ``None`` for the first source.
        history: File of a history, or directory with run folders: holds the earlier runs (by
            default the directory that holds the run does), and sources that are nothing here.
        why: Explain the difference of each training cell: also across versions and devices, and of
            the only cell of each side whatever it was started with.
    """

    threshold: float = THRESHOLD
    metrics: tuple[Metric, ...] = ()
    force: bool = False
    match: tuple[MatchKey, ...] = ()
    accept_flags: bool = False
    against: str | None = None
    history: Path | None = None
    why: bool = False


@dataclass(frozen=True)
class Gate:
    """Whether a comparison fails, and a line with the reasons for each side that makes it fail."""

    exit_code: ExitCode
    messages: tuple[str, ...] = ()


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
        raise UsageError(_too_few(sources, [], left_out), hint=_TWO_RUNS)
    named = _with_distinct_names(loaded)
    side_prices = _prices(prices, named)
    first = _reference(named, reference)
    order = [first, *(place for place in range(len(named)) if place != first)]
    chosen = [place for place in order if place == first or _comparable(named[first], named[place])]
    left_out += [
        f"Left out: {named[place].results.name}, which holds {format_held(named[place].results)}."
        for place in order
        if place not in chosen
    ]
    sides = told_apart([named[place].results for place in chosen])
    if len(sides) < 2:
        raise UsageError(_too_few(sources, sides, left_out), hint=_TWO_RUNS)
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
        rules.threshold,
        tuple(price for price in prices if price is not None) if prices_given else (),
        matched_by_name=bool(match),
        left_out=tuple(left_out),
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


def gate(
    comparison: ComparisonReport,
    fail_on: FailOn,
    *,
    allow_missing: bool = False,
    allow_unclear: bool = False,
) -> Gate:
    """What a comparison means for a build: it fails where something is worse, failed or was not
    measured, and where all that decides is unclear and a loss of a quarter is not excluded.

    Args:
        comparison: All sides.
        fail_on: ``unclear`` also fails where a cell is unclear; ``never`` never fails.
        allow_missing: Pass although a side measured less than the reference.
        allow_unclear: Pass although all is unclear.
    """
    if fail_on is FailOn.NEVER or _has_recordings_alone(comparison):
        return Gate(ExitCode.OK)
    messages = []
    for pair in comparison.pairs:
        reasons = _reasons(
            pair, comparison.metrics, allow_missing=allow_missing, allow_unclear=allow_unclear
        )
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
            f"unclear, and a loss of {limit} is not excluded ({why}; --accept unclear lets it pass)"
        )
    return reasons


def _why_unclear(pair: Pair, metrics: Sequence[Metric]) -> str:
    changes = [change for _, change in pair.decided_by(metrics)]
    found = {change.reason for change in changes}
    flags = dict.fromkeys(flag for change in changes for flag in change.conditions)
    reasons = []
    if Reason.FEW_LAUNCHES in found:
        reasons.append(f"fewer than {MIN_LAUNCHES} launches on a side")
    if Reason.CONDITIONS in found:
        reasons.append(f"{' or '.join(flags)} on one side, which --accept flags ignores")
    if Reason.NOISE in found:
        reasons.append("noise")
    return ", ".join(reasons)


def _comparable(reference: Side, side: Side) -> bool:
    """Whether a side is compared: as asked for by name, or found in a directory with cells of the
    same kinds."""
    return not side.from_directory or bool(_kinds(reference.results) & _kinds(side.results))


def _kinds(results: ResultSet) -> set[str]:
    """Kinds of the measured cells of a result set."""
    return {cell.cell.kind for cell in results.cells if cell.launches}


def _reference(sides: Sequence[Side], name: str | None) -> int:
    """The place of the side that others are compared with: the named one, else the first that was
    given by itself or that others of its directory can be compared with."""
    if name is not None:
        for place, side in enumerate(sides):
            if name in (side.results.name, side.source):
                return place
        raise UsageError(
            f"--reference {name}: no such side; expected one of "
            f"{', '.join(side.results.name for side in sides)}"
        )
    for place, side in enumerate(sides):
        if not side.from_directory or any(
            _kinds(side.results) & _kinds(other.results) for other in sides if other is not side
        ):
            return place
    return 0


def _too_few(sources: Sequence[str], sides: Sequence[ResultSet], left_out: Sequence[str]) -> str:
    held = "no run to compare"
    if sides:
        held = f"one run to compare ({sides[0].name})"
    return (
        f"{' '.join(sources)}: {held}; expected two or more runs, or a directory of runs"
        + "".join(f" {text}" for text in left_out)
    )


def _prices(prices: Sequence[float], sides: Sequence[Side]) -> Sequence[float | None]:
    if len(prices) > 1 and len(prices) != len(sides):
        raise UsageError(
            f"{len(prices)} prices for {len(sides)} sides "
            f"({', '.join(side.results.name for side in sides)})",
            hint="one for all, or one for each in this order",
        )
    if len(prices) == len(sides):
        return prices
    return [*prices, None][:1] * len(sides)


def _with_distinct_names(sides: Sequence[Side]) -> Sequence[Side]:
    """The sides with names that differ: their own, or else the sources as given, numbered if need
    be."""
    names, sources = [side.results.name for side in sides], [side.source for side in sides]
    if len(set(names)) == len(names):
        return sides
    if len(set(sources)) < len(sources):
        sources = [f"{source} ({number})" for number, source in enumerate(sources, start=1)]
    return [
        replace(side, results=side.results.model_copy(update={"name": source}))
        for side, source in zip(sides, sources, strict=True)
    ]
