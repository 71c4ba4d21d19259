"""Which of the sides that were read are compared, and by which names and prices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, count
from pathlib import Path

from torchscale.errors import UsageError
from torchscale.features.compare.inputs import Side
from torchscale.schema.run.result_set import ResultSet
from torchscale.util.addresses import with_addresses


def is_comparable(reference: Side, side: Side) -> bool:
    """Whether a side is compared: as asked for by name, or found in a directory with cells of the
    same kinds."""
    return not side.from_directory or bool(_kinds(reference.results) & _kinds(side.results))


def _kinds(results: ResultSet) -> set[str]:
    """Kinds of the measured cells of a result set."""
    return {cell.cell.kind for cell in results.cells if cell.launches}


def reference_place(sides: Sequence[Side], name: str | None) -> int:
    """The place of the side that others are compared with: the named one, else the first that was
    given by itself or that others of its directory can be compared with."""
    if name is not None:
        for place, side in enumerate(sides):
            if name in (side.results.name, side.source, with_addresses(side.source)):
                return place
        raise UsageError(
            f"--reference {name}: no such side; expected one of "
            f"{', '.join(side.results.name for side in sides)}"
        )
    for place, side in enumerate(sides):
        if not side.from_directory or any(
            _kinds(side.results) & _kinds(other.results) for other in sides if other is not side
        ):
            return place
    return 0


def too_few(sources: Sequence[str], sides: Sequence[ResultSet], left_out: Sequence[str]) -> str:
    """What is wrong with sources that hold fewer than two sides."""
    held = "no run to compare"
    if sides:
        held = f"one run to compare ({sides[0].name})"
    return (
        f"{' '.join(sources)}: {held}; expected two or more runs, or a directory of runs"
        + "".join(f" {text}" for text in left_out)
    )


def prices_of_sides(prices: Sequence[float], sides: Sequence[Side]) -> Sequence[float | None]:
    """The price of each side, of one for all or one for each.

    Raises:
        UsageError: there are neither one nor as many as sides.
    """
    if len(prices) > 1 and len(prices) != len(sides):
        raise UsageError(
            f"{len(prices)} prices for {len(sides)} sides "
            f"({', '.join(side.results.name for side in sides)})",
            hint="one for all, or one for each in this order",
        )
    if len(prices) == len(sides):
        return prices
    return [*prices, None][:1] * len(sides)


def with_distinct_names(sides: Sequence[Side]) -> Sequence[Side]:
    """The sides with names that differ: their own, of several runs of one name the sources as
    given. A run that is given twice is ``demo`` and ``demo (2)``."""
    runs: dict[str, set[Path]] = {}
    for side in sides:
        runs.setdefault(side.results.name, set()).add(Path(side.source).resolve())
    names: list[str] = []
    for side in sides:
        name = side.results.name
        if len(runs[name]) > 1:
            name = with_addresses(side.source)
        numbered = (f"{name} ({number})" for number in count(2))
        names.append(next(one for one in chain([name], numbered) if one not in names))
    return [
        replace(side, results=side.results.model_copy(update={"name": name}))
        for side, name in zip(sides, names, strict=True)
    ]
