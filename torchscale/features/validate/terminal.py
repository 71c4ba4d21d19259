"""The checks of ``validate`` as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from torchscale.features.validate.acceptance.verdict import GROUP
from torchscale.features.validate.bundle_schema import BundleCheck
from torchscale.schema.node.check import (
    Check,
    Disposition,
    PartVerdict,
    Status,
    Validation,
)

PART_STYLES: Mapping[Disposition, str] = MappingProxyType(
    {
        Disposition.KEEP: "green",
        Disposition.RETEST: "yellow",
        Disposition.RETURN: "bold red",
    }
)


def print_validation(validation: Validation, console: Console) -> None:
    """Checks by group, what was expected and what to do under those that did not pass; what this
    node has nothing to check for, by reason; the verdict last."""
    styles = {"pass": "green", "warn": "yellow", "fail": "bold red", "n/a": "dim"}
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    group = ""
    not_checked: dict[str, list[str]] = {}
    for check in validation.checks:
        if check.status is Status.NOT_APPLICABLE and check.group != GROUP:
            not_checked.setdefault(check.seen, []).append(check.title)
            continue
        if check.group != group:
            group = check.group
            table.add_row(f"[bold]{escape(group)}[/bold]", "", "")
        style = styles[check.status.value]
        table.add_row(
            f"  [{style}]{check.status.value:<4}[/{style}]", escape(check.title), _result(check)
        )
    console.print(table)
    for reason, titles in not_checked.items():
        console.print(f"not checked: {', '.join(titles)} ({reason})", style="dim", markup=False)
    console.print()
    _print_parts(validation, console)
    console.print(validation.verdict, style="bold" if validation.fit else "bold red", markup=False)


def _print_parts(validation: Validation, console: Console) -> None:
    """What to do with each GPU and the node, those that are kept in one line; nothing of a node
    without GPUs that is kept."""
    kept = [part for part in validation.parts if part.disposition is Disposition.KEEP]
    others = [part for part in validation.parts if part.disposition is not Disposition.KEEP]
    if not others and all(part.gpu is None for part in kept):
        return
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for part in others:
        style = PART_STYLES[part.disposition]
        what = f"{part.part}: {part.action}\n({'; '.join(part.reasons)})"
        table.add_row(f"[{style}]{part.disposition.value}[/{style}]", escape(what))
    if kept:
        table.add_row("[green]keep[/green]", escape(_names(kept)))
    console.print(table)
    if validation.unseen:
        seen = f"not looked at: {', '.join(validation.unseen)}"
        console.print(seen, style="dim", markup=False)
    console.print()


def _names(parts: Sequence[PartVerdict]) -> str:
    """``GPU 0, 1, 2, node``."""
    numbers = ", ".join(str(part.gpu) for part in parts if part.gpu is not None)
    others = [part.part for part in parts if part.gpu is None]
    gpus = [f"GPU {numbers}"] if numbers else []
    return ", ".join([*gpus, *others])


def print_bundle(bundle: BundleCheck, console: Console) -> None:
    """Whether a bundle is as it was written, then the verdicts in it."""
    manifest, signed = bundle.manifest, "not signed"
    if bundle.signer is not None:
        signed = f"signed by {bundle.signer}"
    if manifest is not None:
        console.print(
            f"{manifest.hostname}, {manifest.created_at}, torchscale {manifest.tool_version}; "
            f"{signed}",
            markup=False,
        )
    if bundle.validation is not None:
        _print_parts(bundle.validation, console)
        console.print(bundle.validation.verdict, markup=False)
    console.print()
    for problem in bundle.problems:
        console.print(f"changed: {problem}", style="bold red", markup=False)
    for note in bundle.notes:
        console.print(f"note: {note}", style="dim", markup=False)
    if bundle.verified:
        said = "as it was written" if bundle.every_byte else "its files are as they were written"
        console.print(f"Verified: {said}.", style="bold", markup=False)
    else:
        console.print("Not verified.", style="bold red", markup=False)


def print_fixes(validation: Validation, console: Console) -> None:
    """The commands of each check that did not pass, one a line, to be copied; nothing where all
    passed."""
    for check in validation.checks:
        if check.status not in (Status.WARN, Status.FAIL):
            continue
        console.print(f"\n{check.title}: {check.seen}", style="bold", markup=False)
        for command in check.fixes:
            console.print(f"  {command}", markup=False, highlight=False, soft_wrap=True)


def _result(check: Check) -> str:
    lines = [escape(check.seen)]
    if check.expected:
        lines.append(f"[dim]expected:[/dim] {escape(check.expected)}")
    if check.advice:
        lines.append(f"[dim]do:[/dim] {escape(check.advice)}")
    return "\n".join(lines)
