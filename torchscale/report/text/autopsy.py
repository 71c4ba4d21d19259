"""The verdict on a hang in words, shared by all formats."""

from __future__ import annotations

from torchscale.report.values import only_if
from torchscale.schema.launch.hang import Autopsy
from torchscale.util.text import ranks_label

_EVIDENCE_LINES = 12
"""Ranks in the same place share a line, so most hangs need three."""


def autopsy_lines(autopsy: Autopsy) -> tuple[str, ...]:
    """What the verdict on a hang rests on: which ranks, how sure, and where each rank was."""
    label = ""
    if autopsy.ranks:
        label = f" ({ranks_label(autopsy.ranks)})"
    cause = (
        f"cause: {autopsy.cause.value.replace('_', ' ')}{label}, confidence "
        f"{autopsy.confidence.value}"
    )
    evidence = autopsy.evidence[:_EVIDENCE_LINES]
    more = len(autopsy.evidence) - len(evidence)
    return (cause, *evidence, *only_if(more, f"… and {more} more lines in record.json"))
