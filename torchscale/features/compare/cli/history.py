"""``torchscale history``: results over time, and since when a level changed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from torchscale.cli.options import Several
from torchscale.cli.output import TERMINAL, print_json, result_console, status, tell
from torchscale.cli.parameters import LOCAL, READS, READS_FIGURES, argument, option
from torchscale.cli.parsing import listed, members, share
from torchscale.cli.rendering import refuse_two_documents, write_rendered
from torchscale.config.choices import Accept, Metric
from torchscale.errors import UsageError
from torchscale.util.addresses import is_copy


def history(
    directories: Annotated[
        list[Path] | None,
        argument(
            "[DIR ...]",
            "Run folders, or directories that hold some at any depth. Default: results, or "
            "what --db holds.",
            **READS_FIGURES,
        ),
    ] = None,
    db: Annotated[
        Path | None,
        option(
            "--db FILE",
            "History to keep: one SQLite file, created if need be. Runs in DIR are added to "
            "it; without DIR it is only read. Default: nothing is kept.",
            **READS,
        ),
    ] = None,
    metrics: Annotated[
        Several,
        option(
            "--metric -m NAME,…",
            "What to follow: throughput, step-p95, memory, energy, busbw, compute, copy, "
            "save, load, stop, stop-async. Default: speed (throughput, busbw, compute, copy, "
            "save, load), and the peak of memory cells.",
        ),
    ] = None,
    threshold: Annotated[
        str, option("--threshold", "A level that is worse by less is no regression: 2% or 0.02.")
    ] = "2%",
    accept: Annotated[
        Several, option("--accept flags", "flags: count contended and throttled runs too.")
    ] = None,
    fail_on_regression: Annotated[
        bool,
        option("--fail-on-regression", "Exit code 1 if the newest level of a series is worse."),
    ] = False,
    html: Annotated[
        str | None, option("--html FILE", "Write a page with all trends.", **LOCAL)
    ] = None,
    as_json: Annotated[bool, option("--json", "Print JSON.")] = False,
) -> None:
    """Follow results over many runs: the newest figure of each cell, where its level changed, since
    which run, and what else changed then (driver, commit, host, versions, settings).

    A change is detected with at least 5 runs before and 5 after it. At most 1 % of the reported
    changes are expected to be false.

    [bold]Examples[/bold]

    [cyan]torchscale history[/cyan]

    [cyan]torchscale history results/nightly --db torchscale.sqlite --html history.html[/cyan]

    [cyan]torchscale history --db torchscale.sqlite --fail-on-regression[/cyan]

    [cyan]torchscale history results --metric memory,step-p95 --json[/cyan]
    """
    from torchscale.features.compare.history import run  # noqa: PLC0415
    from torchscale.features.compare.history.tables import print_history  # noqa: PLC0415 - `--help` does not need it

    refuse_two_documents("--html", html, as_json=as_json)
    if db is not None and directories and is_copy(db):
        raise UsageError(
            f"--db {db}: runs are added to a local file", hint="leave DIR out to read this one"
        )
    rules = run.HistoryRules(
        tuple(members("--metric", metrics, Metric)),
        share("--threshold", threshold),
        _accepts_flags(accept),
    )
    report = run.history(directories or (), db, rules, TERMINAL)
    if as_json:
        print_json(run.history_json(report))
    else:
        print_history(report, result_console())
    if html is not None:
        with status("Writing html"):
            rendered = run.render_history(report)
        write_rendered(rendered, "history.html", Path(), html)
    code, message = run.verdict(report, fail_on_regression=fail_on_regression)
    if message:
        tell(message)
    raise typer.Exit(code)


def _accepts_flags(texts: list[str] | None) -> bool:
    """
    Raises:
        UsageError: something else is to be accepted.
    """
    others = [text for text in listed(texts) if text != Accept.FLAGS.value]
    if others:
        raise UsageError(f"--accept {others[0]}: expected {Accept.FLAGS.value}")
    return bool(listed(texts))
