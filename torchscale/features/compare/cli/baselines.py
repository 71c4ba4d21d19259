"""``torchscale runs baselines``: what was kept under a name."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from torchscale.cli.options import BaselinesOption
from torchscale.cli.output import note, print_json, result_console
from torchscale.cli.parameters import argument, option


def baselines(
    name: Annotated[
        str | None, argument("NAME", "Show this one. Default: the list.", show_default=False)
    ] = None,
    directory: BaselinesOption = Path("baselines"),
    as_json: Annotated[bool, option("--json", "Print JSON: the list, or the whole file.")] = False,
) -> None:
    """List the results that [bold]compare --save[/bold] kept under a name, or show one: where and
    when it was measured, each cell with its launches. One that cannot be read is named as such.

    Each is one JSON file in the directory of baselines: remove it with rm.

    [bold]Examples[/bold]

    [cyan]torchscale runs baselines[/cyan]

    [cyan]torchscale runs baselines main --json[/cyan]
    """
    from torchscale.features.compare.baseline_files import machines_of  # noqa: PLC0415 - as below
    from torchscale.features.compare.baselines import baseline_rows, read_kept  # noqa: PLC0415
    from torchscale.features.compare.sections.result_set import result_set_blocks  # noqa: PLC0415
    from torchscale.features.compare.terminal.baselines import baselines_json, baselines_table  # noqa: PLC0415 - not for `--help`
    from torchscale.report.formats.console import print_blocks  # noqa: PLC0415

    if name is not None:
        kept = read_kept(name, directory)
        if as_json:
            print_json(kept.model_dump_json(indent=1))
            return
        for results in machines_of(kept):
            print_blocks(result_set_blocks(results), result_console())
        return
    rows = baseline_rows(directory)
    if as_json:
        print_json(baselines_json(rows))
    elif rows:
        print_blocks([baselines_table(rows)], result_console())
    else:
        note(f"No baselines in {directory}; keep one with `torchscale compare RUN --save NAME`")
