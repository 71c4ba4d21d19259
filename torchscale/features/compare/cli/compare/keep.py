"""``torchscale compare --save``: keep results under a name, with calibrated thresholds or as a
reference of several machines."""

from __future__ import annotations

import json
from collections.abc import Container, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from torchscale.cli.command import given_options, same_command
from torchscale.cli.options import BaselinesOption
from torchscale.cli.output import TERMINAL, note, print_json, result_console
from torchscale.cli.parameters import option
from torchscale.cli.parsing import members
from torchscale.config.choices import Metric
from torchscale.door import Slot
from torchscale.errors import ExitCode, UsageError
from torchscale.features.compare.cli.compare.values import parse_rate
from torchscale.observer import Observer
from torchscale.util.addresses import is_copy
from torchscale.util.words import listed, plural

if TYPE_CHECKING:
    from torchscale.features.compare.calibration import CalibratedBaseline

_TERMINALS: Slot[Observer] = Slot("terminals of sweeps")
"""Shows the launches of a sweep."""
_READ = "read"
_OF_CALIBRATION = {"calibrate", "false_alarms", "runs_per_day"}
_OF_SAVE = {"sources", "save", "replace", "baselines", "as_json", "verbose", "quiet"}


@dataclass(frozen=True)
class SaveOptions:
    """Keeping results under a name."""

    save: Annotated[
        str | None,
        option(
            "--save NAME",
            "Keep A under this name instead, to compare with later: one JSON file that can be "
            "committed. Several sources are kept as several machines, for --against.",
        ),
    ] = None
    replace: Annotated[
        bool, option("--replace", "With --save: overwrite a baseline of that name.")
    ] = False
    calibrate: Annotated[
        str | None,
        option(
            "--calibrate N|read",
            "With --save: thresholds for each cell from A/A runs, which later comparisons with "
            "the baseline use. N: measure A again, N times as runs of their own in A-calibration; "
            "the same command continues after an interruption. read: the sources are the A/A runs.",
        ),
    ] = None
    false_alarms: Annotated[
        str,
        option(
            "--false-alarms N/PERIOD",
            "With --calibrate: how often a comparison may fail though nothing changed: 1/year, "
            "1/month, or 1/20 for one in 20 runs.",
        ),
    ] = "1/year"
    runs_per_day: Annotated[
        float, option("--runs-per-day N", "With --calibrate: comparisons a day.")
    ] = 10
    baselines: BaselinesOption = Path("baselines")


def refuse_without_save(context: typer.Context) -> None:
    """
    Raises:
        UsageError: an option of ``--save`` was given without it.
    """
    for name, spelling in given_options(context).items():
        if name not in {"replace", *_OF_CALIBRATION}:
            continue
        example = "--replace" if name == "replace" else "--calibrate 20"
        raise UsageError(
            f"{spelling} is for --save", hint=f"torchscale compare RUN {example} --save NAME"
        )


def save(
    context: typer.Context,
    name: str,
    sources: list[str],
    keep: SaveOptions,
    metrics: list[str] | None,
    *,
    as_json: bool,
) -> ExitCode:
    """Keep one source under a name, several as the results of machines, or A/A runs with the
    thresholds that follow from them.

    Raises:
        UsageError: options of a comparison are given too.
    """
    if is_copy(keep.baselines):
        raise UsageError(
            f"--baselines {keep.baselines}: --save writes to a local directory",
            hint="save it locally, and copy it with the tools of the store",
        )
    if keep.calibrate is not None:
        _refuse_others(context, name, {*_OF_SAVE, *_OF_CALIBRATION, "metrics"})
        return _calibrate(context, name, sources, keep, metrics, as_json=as_json)
    for option_name, spelling in given_options(context).items():
        if option_name in _OF_CALIBRATION:
            raise UsageError(f"{spelling} is for --calibrate")
    _refuse_others(context, name, _OF_SAVE)
    if len(sources) > 1:
        _save_machines(name, sources, keep, as_json=as_json)
    else:
        _save_one(name, sources[0], keep, as_json=as_json)
    return ExitCode.OK


def _refuse_others(context: typer.Context, name: str, allowed: Container[str]) -> None:
    for option_name, spelling in given_options(context).items():
        if option_name not in allowed:
            raise UsageError(f"{spelling} is for a comparison, and --save {name} makes none")


def _save_machines(name: str, sources: Sequence[str], keep: SaveOptions, *, as_json: bool) -> None:
    from torchscale.features.compare.peers import save_machines  # noqa: PLC0415 - `--help` does not need it

    path, content = save_machines(
        name, sources, baselines=keep.baselines, replace=keep.replace, observer=TERMINAL
    )
    count = len(content.machines)
    if as_json:
        print_json(json.dumps({"name": name, "path": str(path), "machines": count}, indent=1))
    note(f"Wrote {path} ({plural(count, 'machine')}): compare NEW --against {name}")


def _save_one(name: str, source: str, keep: SaveOptions, *, as_json: bool) -> None:
    from torchscale.features.compare.baselines import save as save_one  # noqa: PLC0415 - as above

    saved = save_one(
        name, source, baselines=keep.baselines, replace=keep.replace, observer=TERMINAL
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


def _calibrate(
    context: typer.Context,
    name: str,
    sources: Sequence[str],
    keep: SaveOptions,
    metrics: list[str] | None,
    *,
    as_json: bool,
) -> ExitCode:
    from torchscale.features.compare import calibration as run  # noqa: PLC0415 - as above

    rules = run.CalibrationRules(
        tuple(members("--metric", metrics, Metric)),
        parse_rate(keep.false_alarms, keep.runs_per_day),
        keep.baselines,
        keep.replace,
    )
    if keep.calibrate == _READ:
        done = run.calibrate_runs(name, sources, rules, TERMINAL)
    else:
        if any(is_copy(Path(source)) for source in sources):
            raise UsageError(
                f"--calibrate {keep.calibrate} measures a local run again, and {sources[0]} is at "
                "an address",
                hint="copy the run here first",
            )
        done = run.measure_and_calibrate(
            name, sources, _count(keep.calibrate or ""), rules, _TERMINALS["cli"]
        )
    if done.saved is None:
        note(
            f"Interrupted after {plural(done.runs, 'A/A run')}. The same command continues: "
            f"{same_command(context)}"
        )
        return ExitCode.INTERRUPTED
    if as_json:
        print_json(done.saved.calibration.model_dump_json(indent=1))
    else:
        _show(done.saved)
    note(f"Wrote {done.saved.path}")
    return ExitCode.OK


def _show(saved: CalibratedBaseline) -> None:
    from torchscale.features.compare.sections.calibration import calibration_blocks  # noqa: PLC0415 - as above
    from torchscale.report.formats.console import print_blocks  # noqa: PLC0415

    print_blocks(calibration_blocks(saved.results, saved.calibration), result_console())
    if saved.differing:
        names = listed([one.what for one in saved.differing])
        note(f"The A/A runs differ in {names}: what that changes is in the thresholds.")


def _count(text: str) -> int:
    if not text.isdecimal():
        raise UsageError(
            f"--calibrate {text}: expected a number of A/A runs to measure, such as 20, or "
            f"{_READ} where the sources are the A/A runs"
        )
    return int(text)
