"""The checks of ``validate`` as a table."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from torchscale.schema.node.check import Check, Status, Validation


def print_validation(validation: Validation, console: Console) -> None:
    """Checks by group, what was expected and what to do under those that did not pass; what this
    node has nothing to check for, by reason; the verdict last."""
    styles = {"pass": "green", "warn": "yellow", "fail": "bold red"}
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    group = ""
    not_checked: dict[str, list[str]] = {}
    for check in validation.checks:
        if check.status is Status.NOT_APPLICABLE:
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
    console.print(validation.verdict, style="bold" if validation.fit else "bold red", markup=False)


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
