"""Where and under which conditions a run was measured, and what of them changed."""

from __future__ import annotations

import shlex
from collections.abc import Callable

from torchscale.analysis.conditions import over_sittings, sitting_facts
from torchscale.analysis.facts import Node
from torchscale.analysis.results import RunSummary
from torchscale.report.document import DASH, Block, Column, Paragraph, Section, Table, Value, shortened
from torchscale.report.words import listed

_MAX_CONDITIONS = 4


def environment_section(summary: RunSummary) -> Section:
    """The machine and its software; each sitting where there were several; each machine where there were several."""
    facts = over_sittings([sitting_facts(one.sitting) for one in summary.sittings])
    facts["threads per rank"] = str(summary.experiment.threads_per_rank)
    rows = tuple((Value(shortened(name)), Value(shortened(text))) for name, text in facts.items())
    table = Table("Environment", (Column("what"), Column("value", prose=True)), rows)
    return Section("Environment", "environment", (table, *_sittings(summary), *_nodes(summary)))


def changed_conditions(summary: RunSummary) -> str:
    """``driver and variable NCCL_ALGO``: what was not the same throughout; empty where everything was."""
    names = [shortened(name) for name in dict.fromkeys(name for one in summary.sittings for name in one.changed)]
    beyond = len(names) - _MAX_CONDITIONS
    return listed([*names[:_MAX_CONDITIONS], f"{beyond} more"] if beyond > 1 else names)


def _sittings(summary: RunSummary) -> list[Block]:
    """The commands that measured, where there were several."""
    if len(summary.sittings) < 2:
        return []
    columns = (
        Column("began"),
        Column("launches", True),
        Column("changed since the one before", prose=True),
        Column("command", prose=True),
    )
    rows = tuple(
        (
            Value(shortened(f"{one.sitting.started_at[:16].replace('T', ' ')} UTC")),
            Value(f"{one.launches:,}", one.launches),
            Value(shortened(listed(one.changed))) if one.changed else DASH,
            Value(shortened(shlex.join(one.sitting.environment.command))),
        )
        for one in summary.sittings
    )
    changed = changed_conditions(summary)
    told = f"Between them changed: {changed}." if changed else "Nothing that is known of the machine changed."
    return [Table("Sittings", columns, rows), Paragraph(f"Launches were measured in several sittings. {told}")]


def _nodes(summary: RunSummary) -> list[Block]:
    """Machines beside each other where the ranks saw several, and in what they differ."""
    nodes = sorted({node for one in summary.in_plan_order for node in one.facts.nodes}, key=lambda node: node.hostname)
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
    rows = dict.fromkeys(  # a machine that cells saw alike has one row
        (Value(shortened(node.hostname)), *(Value(shortened(words(node))) for words in parts.values()))
        for node in nodes
    )
    differing = [name for name, words in parts.items() if len({words(node) for node in nodes}) > 1]
    told = f"The machines differ in {listed(differing)}." if differing else "The machines do not differ in these."
    return [Table("Machines", columns, tuple(rows)), Paragraph(told)]
