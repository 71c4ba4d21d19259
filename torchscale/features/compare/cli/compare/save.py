"""``torchscale compare A --save NAME``: keep a result under a name."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from torchscale.cli.options import BaselinesOption
from torchscale.cli.output import TERMINAL, note, print_json
from torchscale.cli.parameters import option
from torchscale.errors import UsageError


@dataclass(frozen=True)
class SaveOptions:
    """Keeping a result under a name."""

    save: Annotated[
        str | None,
        option(
            "--save NAME",
            "Keep A under this name instead, to compare with later: one JSON file that can be "
            "committed.",
        ),
    ] = None
    replace: Annotated[
        bool, option("--replace", "With --save: overwrite a baseline of that name.")
    ] = False
    baselines: BaselinesOption = Path("baselines")


def save_source(
    context: typer.Context,
    name: str,
    sources: list[str],
    keep: SaveOptions,
    *,
    as_json: bool,
) -> None:
    """Keep one source under a name.

    Raises:
        UsageError: there are several sources, or options of a comparison.
    """
    from torchscale.features.compare.baselines import save  # noqa: PLC0415 - `--help` does not need it

    if len(sources) != 1:
        raise UsageError(
            f"--save {name} keeps one result, not {len(sources)}",
            hint="torchscale compare RUN --save NAME",
        )
    of_save = {"sources", "save", "replace", "baselines", "as_json", "verbose", "quiet"}
    for parameter in context.command.params:
        given = (
            getattr(context.get_parameter_source(parameter.name or ""), "name", "") == "COMMANDLINE"
        )
        if given and parameter.name not in of_save:
            raise UsageError(
                f"{parameter.opts[0]} is for a comparison, and --save {name} makes none"
            )
    saved = save(
        name, sources[0], baselines=keep.baselines, replace=keep.replace, observer=TERMINAL
    )
    cells = len(saved.results.cells)
    if as_json:
        content = {
            "name": name,
            "path": str(saved.path),
            "cells": cells,
            "measured_cells": saved.measured_cells,
        }
        print_json(json.dumps(content, indent=1))
    note(f"Wrote {saved.path} ({saved.measured_cells} of {cells} cells measured)")
