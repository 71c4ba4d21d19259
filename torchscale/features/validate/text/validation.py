"""A validation in one line, as schedulers and node monitors keep it."""

from __future__ import annotations

from torchscale.features.validate.health.answer import FAULTS, gravity, short_name
from torchscale.features.validate.health.disposition import NODE
from torchscale.schema.node.validation import PartVerdict, Validation


def one_line(validation: Validation) -> str:
    """``return GPU 2: replace the GPU (a row of memory could not be remapped); retest node: …``,
    those to be returned first; the verdict where nothing is wrong."""
    parts = [part for part in validation.parts if part.disposition in FAULTS]
    parts.sort(key=lambda part: -gravity(part.disposition))
    if not parts:
        return validation.verdict
    return "; ".join(f"{part.disposition.value} {short_name(part)}: {_why(part)}" for part in parts)


def _why(part: PartVerdict) -> str:
    """What to do first, and why; of a node its failed checks, whose remedies take more room."""
    reasons = ", ".join(part.reasons)
    if part.part == NODE:
        return reasons
    return f"{part.action.partition(';')[0]} ({reasons})"
