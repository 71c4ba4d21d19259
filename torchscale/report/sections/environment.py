"""Machine and software of a run, and what changed between sessions."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from datetime import datetime

from torchscale.analysis.summary.conditions import MeasuredSession, over_sessions, session_facts
from torchscale.analysis.summary.facts import Node
from torchscale.analysis.summary.run import RunSummary
from torchscale.report.document import Block, Paragraph, ReportPart, Section
from torchscale.report.table import Column, ColumnOf, Table, table_of
from torchscale.report.text.run_labels import device_names, run_period
from torchscale.report.text.times import format_minute
from torchscale.report.values import DASH, TableValue, shortened
from torchscale.util.units import format_seconds
from torchscale.util.words import listed

_MAX_CONDITIONS = 4
"""Names in the summary sentence; the table of sessions lists all."""


def environment_section(summary: RunSummary) -> Section:
    """The machine and its software; each session where there were several; each machine where there
    were several."""
    facts = over_sessions([session_facts(entry.session) for entry in summary.sessions])
    facts["threads per rank"] = str(summary.experiment.threads_per_rank)
    allocators = dict.fromkeys(
        _allocator(node) for cell in summary.in_plan_order for node in cell.facts.nodes
    )
    if allocators:
        facts["host memory allocator"] = listed([*allocators])
    facts |= _moved_by(summary)
    facts |= _period(summary)
    rows = tuple(
        (TableValue(shortened(name)), TableValue(shortened(text))) for name, text in facts.items()
    )
    table = Table("Environment", (Column("property"), Column("value", prose=True)), rows)
    return Section(
        "Environment",
        "environment",
        (table, *_sessions(summary), *_nodes(summary)),
        ReportPart.MACHINE,
        f"{device_names(summary)}, PyTorch "
        f"{shortened(summary.experiment.environment.versions.torch)}",
    )


_ALLOCATOR_SETTINGS = {
    "keep": "keeps freed memory (launch.malloc: keep)",
    "system": "default settings",
    "environment": "set by variables",
    None: "",
}


def _allocator(node: Node) -> str:
    """``glibc 2.36, default settings``; a dash where ranks did not note it."""
    if node.allocator is None:
        return "–"
    return ", ".join(
        filter(None, (shortened(node.allocator.name), _ALLOCATOR_SETTINGS[node.allocator.setting]))
    )


def _moved_by(summary: RunSummary) -> dict[str, str]:
    """By what data moved between ranks; where cells differ, with their numbers of ranks."""
    counts: dict[str, set[int]] = {}
    for cell in summary.in_plan_order:
        if cell.facts.transport is not None:
            counts.setdefault(cell.facts.transport.text, set()).add(cell.cell.world_size)
    if len(counts) == 1:
        return {"moved by": next(iter(counts))}
    texts = [f"{text} ({listed([*map(str, sorted(of))])} ranks)" for text, of in counts.items()]
    return {"moved by": "; ".join(texts)} if texts else {}


def _period(summary: RunSummary) -> dict[str, str]:
    """When the first launch began and the last ended, and the time between."""
    start, end = run_period(summary)
    texts = {
        "first launch began": f"{format_minute(start)} UTC",
        "last launch ended": f"{format_minute(end)} UTC",
    }
    try:
        seconds = (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds()
    except (ValueError, TypeError):  # a time of a damaged record, or without its zone
        return texts
    if seconds > 0:
        return {**texts, "between them": format_seconds(seconds)}
    return texts


def changed_conditions(summary: RunSummary) -> str:
    """``driver and variable NCCL_ALGO``: conditions that changed between sessions; empty where none
    did."""
    names = [
        shortened(name)
        for name in dict.fromkeys(name for entry in summary.sessions for name in entry.changed)
    ]
    beyond = len(names) - _MAX_CONDITIONS
    return listed([*names[:_MAX_CONDITIONS], f"{beyond} more"] if beyond > 1 else names)


def _sessions(summary: RunSummary) -> list[Block]:
    """The sessions with their commands, where there were several."""
    if len(summary.sessions) < 2:
        return []
    columns: tuple[ColumnOf[MeasuredSession], ...] = (
        ColumnOf("started", lambda one: f"{format_minute(one.session.started_at)} UTC"),
        ColumnOf("launches", lambda one: one.launches, "{:,}".format),
        ColumnOf(
            "changed since previous",
            lambda one: shortened(listed(one.changed)) if one.changed else DASH,
            prose=True,
        ),
        ColumnOf(
            "command",
            lambda one: shortened(shlex.join(one.session.environment.command)),
            prose=True,
        ),
    )
    changed = changed_conditions(summary)
    note = "No recorded condition changed."
    if changed:
        note = f"Changed between sessions: {changed}."
    return [
        table_of("Sessions", columns, summary.sessions),
        Paragraph(f"Launches were measured in several sessions. {note}"),
    ]


def _nodes(summary: RunSummary) -> list[Block]:
    """The machines of a multi-node run, and the properties in which they differ."""
    nodes = sorted(
        {node for cell in summary.in_plan_order for node in cell.facts.nodes},
        key=lambda node: node.hostname,
    )
    if len({node.hostname for node in nodes}) < 2:
        return []
    parts: dict[str, Callable[[Node], str]] = {
        "devices": lambda node: ", ".join(node.devices),
        "PyTorch": lambda node: node.torch,
        "CUDA": lambda node: node.cuda or "–",
        "NCCL": lambda node: node.nccl or "–",
        "driver": lambda node: node.driver or "–",
        "Python": lambda node: node.python,
    }
    columns = (Column("host"), *(Column(name) for name in parts))
    rows = dict.fromkeys(  # one row for a machine that all cells describe alike
        (
            TableValue(shortened(node.hostname)),
            *(TableValue(shortened(text_of(node))) for text_of in parts.values()),
        )
        for node in nodes
    )
    differing = [
        name for name, text_of in parts.items() if len({text_of(node) for node in nodes}) > 1
    ]
    note = "The machines do not differ in these properties."
    if differing:
        note = f"The machines differ in {listed(differing)}."
    return [Table("Machines", columns, tuple(rows)), Paragraph(note)]
