"""``torchscale compare``: faster, slower, or within noise?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from torchscale.cli.output import TERMINAL, note, result_console, status
from torchscale.cli.rendering import chosen_formats, write_rendered
from torchscale.config.choices import CompareFormat, FailOn, Metric
from torchscale.errors import UsageError


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
    threshold: Annotated[str, typer.Option("--threshold", help="Smaller changes count as equal: 2% or 0.02.")] = "2%",
    fail_on: Annotated[
        FailOn,
        typer.Option(
            "--fail-on",
            help="What gives exit code 1: a regression or a cell that now fails; also undecided cells; never.",
        ),
    ] = FailOn.REGRESSION,
    metrics: Annotated[
        list[Metric] | None,
        typer.Option(
            "--metric",
            "-m",
            help="What decides; may be given several times. Default: speed (throughput, busbw, compute, copy).",
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Compare although devices, precisions or versions of torch differ.")
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
    """Compare results cell by cell and overall, with 95 % intervals. Fails on a regression that exceeds noise.

    The unit is the launch: measure with benchmark.repeats of 3 or 5. With fewer than 3 a side, ratios are shown
    without a verdict.

    [bold]Examples[/bold]

    [cyan]torchscale compare results/before results/after[/cyan]

    [cyan]torchscale compare main results/new --threshold 3% --format md --output - >> $GITHUB_STEP_SUMMARY[/cyan]

    [cyan]torchscale compare results/a100 results/h100 --force --cost 3.00 5.50[/cyan]
    """
    from torchscale.report.terminal.comparison import print_comparison  # noqa: PLC0415 - `--help` does not need it
    from torchscale.run import compare as run  # noqa: PLC0415

    paths, prices = _sources_and_prices(sources, cost or [])
    chosen = chosen_formats(formats, CompareFormat.TERMINAL, output)
    comparison = run.compare_sources(
        paths,
        prices=prices,
        baselines=baselines,
        threshold=_share(threshold),
        metrics=metrics or [],
        force=force,
        observer=TERMINAL,
    )
    for kind in chosen:
        if kind is CompareFormat.TERMINAL:
            print_comparison(comparison, result_console())
            continue
        with status(f"Writing {kind.value}"):
            rendered = run.render_comparison(comparison, kind)
        write_rendered(rendered, f"comparison.{kind.value}", Path(), output)
    gate = run.gate(comparison, fail_on)
    for message in gate.messages:
        note(message)
    raise typer.Exit(gate.exit_code)


def _sources_and_prices(arguments: list[str], costs: list[str]) -> tuple[list[str], list[float]]:
    """Paths and prices; ``--cost 3.00 5.50`` leaves what follows its first number among the sources."""
    paths = [argument for argument in arguments if Path(argument).exists() or _number(argument) is None]
    texts = [*costs, *(argument for argument in arguments if argument not in paths)] if costs else []
    paths = paths if costs else arguments
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
