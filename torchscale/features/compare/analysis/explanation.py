"""A pair explained: each cell's difference in parts, what changed beside it, and the likeliest
cause of each part."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torchscale.features.compare.analysis.cell_why import CellWhy
from torchscale.features.compare.analysis.differences import (
    SideDifference,
    cell_differences,
    differences,
)
from torchscale.features.compare.analysis.likely_cause import LikelyCause, likely_causes
from torchscale.features.compare.analysis.operators import ComparedRecording
from torchscale.features.compare.analysis.pair import Pair
from torchscale.features.compare.analysis.why import split_pair


@dataclass(frozen=True)
class ExplainedCell:
    """One cell.

    Attributes:
        why: Its difference in parts.
        changes: What differs between the sides of this cell: its settings, machine, software.
        causes: The likeliest cause, or an abstention, for each part that differs.
    """

    why: CellWhy
    changes: tuple[SideDifference, ...]
    causes: tuple[LikelyCause, ...]


@dataclass(frozen=True)
class ExplainedPair:
    """One side against the reference.

    Attributes:
        pair: The sides.
        cells: Training cells that both sides measured, the largest relative difference first.
        without: Why a cell that was compared has no parts, by its id.
        recordings: Of cells that both sides recorded: their operators.
    """

    pair: Pair
    cells: tuple[ExplainedCell, ...]
    without: Mapping[str, str]
    recordings: tuple[ComparedRecording, ...] = ()


def explain(pair: Pair) -> ExplainedPair:
    """Explain every training cell that was compared."""
    of_sides = differences([pair.reference, pair.other])
    split, without = split_pair(pair)
    cells = []
    for why in split:
        changes = (*cell_differences([[(why.cell.before, why.cell.after)]]), *of_sides)
        cells.append(ExplainedCell(why, changes, likely_causes(why, changes)))
    return ExplainedPair(pair, tuple(cells), without)
