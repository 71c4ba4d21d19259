"""``torchscale profile strip``: a copy of an export of nsys that can be shared."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

from torchscale.cli.output import TERMINAL, print_json
from torchscale.cli.parameters import READS, argument, option


def strip(
    source: Annotated[Path, argument("FILE.sqlite", "An export of nsys.", **READS)],
    output: Annotated[Path, option("--output -o", "The copy to write.")],
    as_json: Annotated[
        bool, option("--json", "Print what was left out, by table, as JSON.")
    ] = False,
) -> None:
    """Copy an nsys export without what nsys records of your program besides times: environment
    (with its tokens), arguments, output; so that it can be shared.

    The copy holds kernels, copies, calls, ranges and their names, and is analyzed like the
    original. It says by table what was left out. The .nsys-rep cannot be stripped: share the copy.

    [bold]Example[/bold]

    [cyan]torchscale profile strip run.sqlite --output run-to-share.sqlite[/cyan]
    """
    from torchscale.features.trace.readers.nsys.strip import strip_export  # noqa: PLC0415
    from torchscale.util.words import plural  # noqa: PLC0415 - `--help` does not need it

    tables = strip_export(source, output)
    if as_json:
        left_out = [
            {"table": table.name, "rows": table.rows, "kept": table.kept} for table in tables
        ]
        print_json(json.dumps({"file": str(output), "left_out": left_out}, indent=1))
    TERMINAL.note(f"Wrote {output} {'without:' if tables else 'with all that the export holds'}")
    for table in tables:
        TERMINAL.note(f"  {table.name}: {table.rows - table.kept:,} of {plural(table.rows, 'row')}")
