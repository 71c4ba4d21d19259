"""What ``torchscale validate`` prints."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from torchscale.cli.output import print_json, result_console
from torchscale.errors import ExitCode

if TYPE_CHECKING:
    from torchscale.features.validate.fleet.run import FleetOutcome
    from torchscale.features.validate.run.validate import ValidationOutcome


def show_node(outcome: ValidationOutcome, *, fix_hints: bool, as_json: bool, brief: bool) -> None:
    """Print what was found of one node."""
    from torchscale.features.validate.terminal import print_fixes, print_validation  # noqa: PLC0415 - `--help` does not need it
    from torchscale.features.validate.text.validation import one_line  # noqa: PLC0415
    from torchscale.report.formats.console import print_line  # noqa: PLC0415

    if as_json:
        print_json(outcome.validation.model_dump_json(indent=1))
        return
    if brief:
        print_line(one_line(outcome.validation), result_console())
        return
    print_validation(outcome.validation, result_console())
    if fix_hints:
        print_fixes(outcome.validation, result_console())


def show_bundle(path: Path, *, as_json: bool) -> ExitCode:
    """Check a bundle. Returns the exit code."""
    from torchscale.features.validate.bundle import verify_bundle  # noqa: PLC0415 - `--help` does not need it
    from torchscale.features.validate.terminal import print_bundle  # noqa: PLC0415

    found = verify_bundle(path)
    if as_json:
        print_json(found.model_dump_json(indent=1))
    else:
        print_bundle(found, result_console())
    if found.verified:
        return ExitCode.OK
    return ExitCode.FAILED


def show_fleet(outcome: FleetOutcome, *, fix_hints: bool, as_json: bool, brief: bool) -> None:
    """Print what was found of several nodes."""
    from torchscale.features.validate.fleet.tables import print_fleet, print_fleet_fixes  # noqa: PLC0415 - `--help` does not need it
    from torchscale.report.formats.console import print_line  # noqa: PLC0415

    if as_json:
        print_json(outcome.validation.model_dump_json(indent=1))
        return
    if brief:
        print_line(outcome.validation.verdict, result_console())
        return
    print_fleet(outcome.validation, result_console())
    if fix_hints:
        print_fleet_fixes(outcome.validation, result_console())
