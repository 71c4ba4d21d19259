"""``torchscale compare NEW --against FILE``: where a machine lies among others."""

from __future__ import annotations

from pathlib import Path

import typer

from torchscale.cli.command import given_options
from torchscale.cli.output import TERMINAL, result_console
from torchscale.cli.parsing import members
from torchscale.config.choices import CompareFormat, Metric
from torchscale.errors import UsageError
from torchscale.features.compare.cli.compare.output import write_all

_OF_A_VERDICT = {
    *("threshold", "fail_on", "match", "reference", "history", "accept", "cost", "why"),
}


def are_machines(against: str, baselines: Path) -> bool:
    """Whether ``--against`` names files with results of other machines."""
    from torchscale.features.compare.peers import names_files  # noqa: PLC0415 - `--help` does not need it

    return names_files(against, baselines)


def refuse_rules(context: typer.Context, against: str) -> None:
    """
    Raises:
        UsageError: an option is given that makes a verdict, and a place among machines is none.
    """
    for name, spelling in given_options(context).items():
        if name in _OF_A_VERDICT:
            raise UsageError(
                f"{spelling} is for a verdict, and --against {against} gives a place among machines"
            )


def show_peers(
    paths: list[str],
    against: str,
    metrics: list[str] | None,
    baselines: Path,
    chosen: list[CompareFormat],
    output: str | None,
    as_json: bool,
) -> None:
    """Print where the machine of a run lies, and write it, in the formats that were asked for.

    Raises:
        UsageError: there are several runs.
    """
    from torchscale.features.compare import peers as run  # noqa: PLC0415 - `--help` does not need it
    from torchscale.features.compare.sections.peers import peers_document  # noqa: PLC0415
    from torchscale.report.formats.console import print_document  # noqa: PLC0415

    if len(paths) != 1:
        raise UsageError(
            f"--against {against} takes one run, not {len(paths)}",
            hint=f"torchscale compare NEW --against {against}",
        )
    report = run.compare_with_machines(
        paths[0],
        against,
        members("--metric", metrics, Metric),
        baselines=baselines,
        observer=TERMINAL,
    )
    write_all(
        lambda kind: run.render_peers(report, kind),
        lambda: print_document(
            peers_document(report.places, report.results, report.left_out), result_console()
        ),
        chosen,
        output,
        as_json=as_json,
    )
