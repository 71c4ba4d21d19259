"""A validation in one line, as schedulers and node monitors keep it."""

from __future__ import annotations

from torchscale.features.validate.health.disposition import NODE
from torchscale.schema.node.validation import Disposition, PartVerdict, Validation


def one_line(validation: Validation) -> str:
    """``return GPU 2: replace the GPU (a row of memory could not be remapped); retest node: …``,
    those to be returned first; the verdict where everything is kept."""
    parts = [part for part in validation.parts if part.disposition is not Disposition.KEEP]
    parts.sort(key=lambda part: part.disposition is not Disposition.RETURN)
    if not parts:
        return validation.verdict
    return "; ".join(f"{part.disposition.value} {_short(part)}: {_why(part)}" for part in parts)


def _short(part: PartVerdict) -> str:
    """Without address and UUID, which would be cut off elsewhere."""
    if part.gpu is None:
        return part.part
    return f"GPU {part.gpu}"


def _why(part: PartVerdict) -> str:
    """What to do first, and why; of a node its failed checks, whose remedies take more room."""
    reasons = ", ".join(part.reasons)
    if part.part == NODE:
        return reasons
    return f"{part.action.partition(';')[0]} ({reasons})"
