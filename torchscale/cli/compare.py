"""``torchscale compare``: did it get slower, and can that be told from noise?"""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from torchscale.cli.output import note, result_console, status
from torchscale.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from torchscale.report.comparison import Comparison
    from torchscale.schema.results import ResultSet


class CompareFormat(str, Enum):
    """Values of ``--format``."""

    TERMINAL = "terminal"
    HTML = "html"
    PDF = "pdf"
    MARKDOWN = "md"
    JSON = "json"


class FailOn(str, Enum):
    """Values of ``--fail-on``."""

    REGRESSION = "regression"
    UNDECIDED = "undecided"
    NEVER = "never"


class MetricName(str, Enum):
    """Values of ``--metric``; as in the schema, which ``--help`` need not import."""

    THROUGHPUT = "throughput"
    STEP_P95 = "step-p95"
    MEMORY = "memory"
    ENERGY = "energy"
    COST = "cost"
    BUSBW = "busbw"
    COMPUTE = "compute"
    COPY = "copy"


def compare(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="A B [C ...]",
            help="Results directories, record.json files, or baselines by file or name. A is the reference.",
        ),
    ],
    cost: Annotated[
        list[str] | None,
        typer.Option(
            "--cost",
            help="Price of a device and hour: one for all sides, or one for each: --cost 3.00 5.50",
            metavar="PRICE",
        ),
    ] = None,
    threshold: Annotated[str, typer.Option("--threshold", help="A change up to this is none: 2% or 0.02.")] = "2%",
    fail_on: Annotated[
        FailOn,
        typer.Option(
            "--fail-on",
            help="What gives exit code 1: a regression (or a cell that now fails); that or what is undecided; never.",
        ),
    ] = FailOn.REGRESSION,
    metrics: Annotated[
        list[MetricName] | None,
        typer.Option(
            "--metric",
            "-m",
            help="What decides; may be given several times. Default: speed (throughput, busbw, compute, copy).",
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Compare across different devices, precisions or versions of torch.")
    ] = False,
    formats: Annotated[
        list[CompareFormat] | None, typer.Option("--format", "-f", help="May be given several times. Default: terminal")
    ] = None,
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", help="File, or - for standard output. Default: comparison.<format> here"),
    ] = None,
    baselines: Annotated[Path, typer.Option("--baselines", help="Where baselines are kept.")] = Path("baselines"),
) -> None:
    """Compare results: cell by cell and overall, with intervals and a verdict that noise alone rarely gives.

    The unit is the launch: measure with benchmark.repeats of 3 or 5. With fewer the ratio is shown and nothing decided.

    [bold]Examples[/bold]

    [cyan]torchscale compare results/before results/after[/cyan]

    [cyan]torchscale compare main results/new --threshold 3% --format md --output - >> $GITHUB_STEP_SUMMARY[/cyan]

    [cyan]torchscale compare results/a100 results/h100 --force --cost 3.00 5.50[/cyan]
    """
    paths, prices = _sources_and_prices(sources, cost or [])
    chosen = list(dict.fromkeys(formats or [CompareFormat.TERMINAL]))
    if output is not None and len(chosen) > 1:
        raise UsageError(f"--output {output} takes one --format, not {len(chosen)}", hint="leave --output out")
    comparison = _compare(paths, prices, baselines, _share(threshold), metrics or [], force=force)
    for kind in chosen:
        _show(kind, comparison, output)
    _exit(comparison, fail_on)


def _sources_and_prices(words: list[str], costs: list[str]) -> tuple[list[str], list[float]]:
    """Paths and prices; ``--cost 3.00 5.50`` leaves what follows its first number among the sources."""
    paths = [word for word in words if Path(word).exists() or _number(word) is None]
    texts = [*costs, *(word for word in words if word not in paths)] if costs else []
    paths = paths if costs else words
    prices = []
    for text in texts:
        price = _number(text)
        if price is None or not 0 < price < float("inf"):
            raise UsageError(f"--cost {text}: expected a price above 0 of a device and hour, such as 2.50")
        prices.append(price)
    if len(paths) < 2:
        raise UsageError(f"{len(paths)} source given; expected at least two", hint="torchscale compare before after")
    if len(prices) == 1:
        prices *= len(paths)
    if prices and len(prices) != len(paths):
        raise UsageError(f"{len(prices)} prices for {len(paths)} sources", hint="one for all, or one for each in order")
    return paths, prices


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _share(text: str) -> float:
    number = _number(text.strip().removesuffix("%"))
    if number is not None and text.strip().endswith("%"):
        number /= 100
    if number is None or not 0 <= number < 1:
        raise UsageError(f"--threshold {text}: expected a share such as 2% or 0.02")
    return number


def _compare(
    paths: list[str],
    prices: list[float],
    baselines: Path,
    threshold: float,
    metrics: list[MetricName],
    *,
    force: bool,
) -> Comparison:
    from torchscale.analysis.comparison import compare as compare_pair  # noqa: PLC0415 - `--help` does not need it
    from torchscale.analysis.matching import differences  # noqa: PLC0415
    from torchscale.report.comparison import Comparison  # noqa: PLC0415
    from torchscale.schema.results import Metric  # noqa: PLC0415
    from torchscale.sources import load_source  # noqa: PLC0415

    with status("Reading"):
        sides = _named_apart([load_source(path, baselines) for path in paths], paths)
    found = differences(sides)
    deciding = [one for one in found if one.forbids]
    if deciding and not force:
        told = "; ".join(f"{one.what} ({' | '.join(value or 'unknown' for value in one.values)})" for one in deciding)
        raise UsageError(
            f"the sides differ in {told}", hint="--force compares them all the same, and names what differs"
        )
    costs: list[float | None] = [*prices] or [None] * len(sides)
    pairs = tuple(
        compare_pair(sides[0], side, threshold=threshold, prices=(costs[0], costs[number]), ignore_precision=force)
        for number, side in enumerate(sides[1:], start=1)
    )
    names = tuple(side.name for side in sides)
    return Comparison(pairs, tuple(found), names, tuple(Metric(one.value) for one in metrics), threshold, tuple(prices))


def _named_apart(sides: list[ResultSet], paths: list[str]) -> list[ResultSet]:
    """With names that differ: the directories' own, or else all that was typed."""
    names = [side.name for side in sides]
    if len(set(names)) == len(names):
        return sides
    if len(set(paths)) == len(paths):
        return [side.model_copy(update={"name": path}) for side, path in zip(sides, paths, strict=True)]
    return [
        side.model_copy(update={"name": f"{path} ({number})"})
        for number, (side, path) in enumerate(zip(sides, paths, strict=True), start=1)
    ]


def _show(kind: CompareFormat, comparison: Comparison, output: str | None) -> None:
    from torchscale.report.comparison import comparison_document, comparison_json  # noqa: PLC0415

    if kind is CompareFormat.TERMINAL:
        from torchscale.report.comparison_console import print_comparison  # noqa: PLC0415

        print_comparison(comparison, result_console())
        return
    from torchscale.cli.rendering import render_document, write_rendered  # noqa: PLC0415

    with status(f"Writing {kind.value}"):
        if kind is CompareFormat.JSON:
            rendered = (comparison_json(comparison) + "\n").encode()
        else:
            rendered = render_document(kind.value, comparison_document(comparison))
    write_rendered(rendered, f"comparison.{kind.value}", Path(), output)


def _exit(comparison: Comparison, fail_on: FailOn) -> None:
    metrics = comparison.metrics
    worse = [cell for pair in comparison.pairs for cell in pair.regressions(metrics)]
    together = [metric for pair in comparison.pairs for metric in pair.overall_regressions(metrics)]
    open_ends = [cell for pair in comparison.pairs for cell in pair.undecided(metrics)]
    if fail_on is FailOn.NEVER:
        return
    if worse:
        note(f"Worse, or lost: {len(worse)}.")
    if together:
        note(f"Worse over all cells: {', '.join(dict.fromkeys(metric.value for metric in together))}.")
    if worse or together:
        raise typer.Exit(ExitCode.FAILED)
    if fail_on is FailOn.UNDECIDED and open_ends:
        note(f"Not decided: {len(open_ends)}.")
        raise typer.Exit(ExitCode.FAILED)
