"""``torchscale profile analyze``: recordings made elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from torchscale.cli.options import JsonOption
from torchscale.cli.output import TERMINAL, print_json, result_console
from torchscale.cli.parameters import READS, argument, option
from torchscale.config.choices import WindowChoice
from torchscale.errors import UsageError
from torchscale.features.trace.reader_engine import ReaderEngine


@dataclass(frozen=True)
class _ReaderOptions:
    """Who reads them."""

    engine: Annotated[
        ReaderEngine,
        option(
            "--engine",
            "Who reads them: processes of this machine, or tasks of a Ray cluster whose nodes see "
            "the same paths.",
        ),
    ] = ReaderEngine.LOCAL
    ray_address: Annotated[
        str | None,
        option(
            "--ray-address HOST:PORT",
            "The cluster. Default: RAY_ADDRESS, else one that runs here; local starts one.",
        ),
    ] = None

    @property
    def are_given(self) -> bool:
        """Whether it is not as by default."""
        return self.engine is not ReaderEngine.LOCAL or self.ray_address is not None


def analyze(
    paths: Annotated[
        list[Path],
        argument(
            "PATH…",
            ".nsys-rep, .sqlite, .json, .json.gz, .tar.gz, directories of them, or runs by name.",
            **READS,
        ),
    ],
    *,
    window: Annotated[
        WindowChoice, option("--window", "auto: marked steps, else from first to last device span.")
    ] = WindowChoice.AUTO,
    output_dir: Annotated[
        Path | None,
        option("--output-dir -o", "Also write analysis.json and a timeline for Perfetto here."),
    ] = None,
    ranks: Annotated[
        str | None,
        option("--ranks", "Analyze these ranks alone: 0-7,512. Others' files are not read."),
    ] = None,
    sample: Annotated[
        int | None,
        option(
            "--sample",
            "Analyze so many ranks, chosen so that process groups and nodes keep members.",
            min=2,
        ),
    ] = None,
    steps: Annotated[
        str | None, option("--steps", "Analyze the steps with numbers from A to B: A:B, A: or :B.")
    ] = None,
    memory: Annotated[
        str | None,
        option(
            "--memory",
            "What reading may take, 1GB by default: columns beyond it lie in temporary files, "
            "and fewer processes read.",
        ),
    ] = None,
    what_if: Annotated[
        bool,
        option(
            "--what-if", "Also predict the step without each fault, by a replay; ranked by gain."
        ),
    ] = False,
    report_problem: Annotated[
        Path | None,
        option(
            "--report-problem FILE.json",
            "Of a recording that fails, write the smallest part that still fails, with names "
            "replaced, to be sent to us.",
        ),
    ] = None,
    readers: _ReaderOptions,
    as_json: JsonOption = False,
) -> None:
    """Analyze recordings made elsewhere, of one or many ranks; needs no torch and no GPU.

    With --what-if: what the step would be with each rank as fast as its peers, a link twice as
    fast, no host gaps, no wait for data … The recorded steps are replayed with that change.

    [bold]Examples[/bold]

    [cyan]torchscale profile analyze rank0.json.gz rank1.json.gz[/cyan]

    [cyan]torchscale profile analyze run.sqlite --json[/cyan]

    [cyan]torchscale profile analyze traces/ --what-if[/cyan]

    [cyan]torchscale profile analyze traces/ --ranks 0-7,512 --steps 100:150[/cyan]

    [cyan]torchscale profile analyze /shared/traces --engine ray --ray-address head:6379[/cyan]

    [cyan]torchscale profile analyze rank0.json.gz --report-problem problem.json[/cyan]
    """
    if report_problem is not None:
        if output_dir is not None or what_if or readers.are_given:
            raise UsageError(
                "--report-problem writes one file and analyzes nothing",
                hint="leave out --output-dir, --what-if and --engine",
            )
        parts = ranks, sample, steps, memory
        _report(paths, report_problem, window, parts, as_json=as_json)
        return
    from torchscale.features.trace.analyze import (  # noqa: PLC0415
        analyze_recordings,
        make_parts,
        make_readers,
    )
    from torchscale.features.trace.terminal import print_analysis, print_predictions  # noqa: PLC0415 - `--help` does not need it

    analysis = analyze_recordings(
        paths,
        window=window,
        output_dir=output_dir,
        parts=make_parts(
            ranks, sample, steps, memory, make_readers(readers.engine, readers.ray_address)
        ),
        observer=TERMINAL,
    )
    if as_json:
        print_json(analysis.model_dump_json(indent=1))
        return
    print_analysis(analysis, result_console())
    if what_if:
        print_predictions(analysis, result_console())
    if output_dir is not None:
        TERMINAL.note(f"Wrote {output_dir}/analysis.json and a timeline for ui.perfetto.dev")


def _report(
    paths: list[Path],
    output: Path,
    window: WindowChoice,
    parts: tuple[str | None, int | None, str | None, str | None],
    *,
    as_json: bool,
) -> None:
    """Write the part of a recording that fails, and say what it is."""
    from torchscale.features.trace.analyze import make_parts  # noqa: PLC0415
    from torchscale.features.trace.problem.report import report_problem  # noqa: PLC0415
    from torchscale.util.words import plural  # noqa: PLC0415 - `--help` does not need it

    report = report_problem(
        paths, output, window=window, parts=make_parts(*parts), observer=TERMINAL
    )
    if as_json:
        print_json(report.as_json())
    TERMINAL.note(f"It fails with: {report.error}")
    if report.events is None:
        TERMINAL.note(
            f"Wrote {output}: a description alone ({report.size_bytes:,} bytes), because "
            f"{report.reason}"
        )
    else:
        TERMINAL.note(
            f"Wrote {output}: {report.events:,} of {plural(report.of_events, 'event')} "
            f"({report.size_bytes:,} bytes), which fails in the same way; names are replaced"
        )
    if report.note:
        TERMINAL.note(report.note)
    TERMINAL.note("Look at it before you send it")
