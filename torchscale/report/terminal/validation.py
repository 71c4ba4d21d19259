"""The checks of ``validate`` as a table."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from torchscale.schema.node.check import Check, Validation


def print_validation(validation: Validation, console: Console) -> None:
    """Checks by group, what was expected and what to do under those that did not pass, the verdict last."""
    styles = {"pass": "green", "warn": "yellow", "fail": "bold red", "n/a": "dim"}
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    group = ""
    for check in validation.checks:
        if check.group != group:
            group = check.group
            table.add_row(f"[bold]{escape(group)}[/bold]", "", "")
        style = styles[check.status.value]
        table.add_row(f"  [{style}]{check.status.value:<4}[/{style}]", escape(check.title), _result(check))
    console.print(table)
    console.print()
    console.print(validation.verdict, style="bold" if validation.fit else "bold red", markup=False)


def _result(check: Check) -> str:
    seen = f"[dim]{escape(check.seen)}[/dim]" if check.status.value == "n/a" else escape(check.seen)
    lines = [seen]
    if check.expected:
        lines.append(f"[dim]expected:[/dim] {escape(check.expected)}")
    if check.advice:
        lines.append(f"[dim]do:[/dim] {escape(check.advice)}")
    return "\n".join(lines)
