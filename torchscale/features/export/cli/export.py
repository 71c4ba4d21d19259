"""``torchscale export``: a run in the format of another program."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from torchscale.cli.output import TERMINAL
from torchscale.cli.parameters import READS, argument, option
from torchscale.cli.rendering import write_rendered
from torchscale.config.choices import ExportTarget
from torchscale.errors import UsageError
from torchscale.util.addresses import refuse_address

_NAMES = [target.value for target in ExportTarget]


def export(
    source: Annotated[
        Path | None,
        argument(
            "SOURCE",
            "Run, by name, directory or address, or a file of `torchscale validate --json`. "
            "Default: the newest in ./results",
            show_default=False,
            **READS,
        ),
    ] = None,
    target: Annotated[ExportTarget | None, option("--to NAME", f"{', '.join(_NAMES)}.")] = None,
    source_option: Annotated[
        Path | None, option("--source -s DIR", "The same as the argument SOURCE.", **READS)
    ] = None,
    output: Annotated[
        str | None,
        option(
            "--output -o FILE",
            "File, replaced as a whole; default: standard output. Of parquet and wandb the "
            "directory; of mlflow the tracking URI, such as sqlite:///mlflow.db; of storage an "
            "address, such as s3://bucket/runs. Default: $WANDB_DIR or here; "
            "$MLFLOW_TRACKING_URI.",
            show_default=False,
        ),
    ] = None,
    report: Annotated[
        bool,
        option(
            "--report/--no-report",
            "mlflow, wandb: with the HTML report; without it, only cells that have ended, for "
            "a run that goes on.",
        ),
    ] = True,
) -> None:
    """Write a run for another program: a CI server, Prometheus, Grafana, GitHub, MLflow, W&B, a
    warehouse.

    Every figure comes with the ends of its 95 % interval where it has one. What was not measured is
    not in the file. See `torchscale docs export`.

    [bold]Examples[/bold]

    [cyan]torchscale export --to junit results/nightly -o junit.xml[/cyan]

    [cyan]torchscale export --to prometheus -o
    /var/lib/node_exporter/textfile/torchscale.prom[/cyan]

    [cyan]torchscale export --to github-summary >> $GITHUB_STEP_SUMMARY[/cyan]

    [cyan]torchscale export --to mlflow results/nightly -o sqlite:///mlflow.db[/cyan]

    [cyan]torchscale export --to parquet results/nightly -o tables[/cyan]

    [cyan]torchscale export --to storage results/nightly -o s3://bucket/runs[/cyan]

    [cyan]torchscale export --to grafana-dashboard -o dashboard.json[/cyan]

    [cyan]torchscale validate --json > node.json; torchscale export --to junit node.json -o
    node.xml[/cyan]
    """
    from torchscale.features.export import export as run  # noqa: PLC0415 - `--help` does not need it

    if target is None:
        raise UsageError("--to is missing: whose format?", hint=f"one of: {', '.join(_NAMES)}")
    if source is not None and source_option is not None:
        raise UsageError(
            f"one run at a time, not {source} and {source_option}", hint="leave one of them out"
        )
    if output is not None and target not in (ExportTarget.MLFLOW, ExportTarget.STORAGE):
        refuse_address("--output", output)
    directory = source if source is not None else source_option
    if target.is_store:
        if output == "-":
            raise UsageError(
                f"--to {target.value} does not go to standard output",
                hint="name a place with --output",
            )
        stored = run.export_to_store(target, directory, output, report=report, observer=TERMINAL)
        TERMINAL.note(f"Wrote {stored.place}: {', '.join(stored.written)}")
        notes = stored.notes
    else:
        exported = run.export(target, directory, TERMINAL)
        write_rendered(
            exported.text.encode(),
            f"torchscale-{target.value}",
            Path(),
            "-" if output is None else output,
        )
        notes = exported.notes
    for note in notes:
        TERMINAL.note(note)
