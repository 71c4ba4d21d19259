"""Whether the data of a cell moved another way than in the reference."""

from __future__ import annotations

from collections.abc import Iterator

from torchscale.features.compare.analysis.pair import CellComparison, Pair
from torchscale.schema.launch.transport import Transport, Way, WayKind
from torchscale.schema.run.result_set import ResultCell

_NAMED = (WayKind.PLUGIN, WayKind.COLLNET)
"""Ways whose names tell them apart. ``P2P/IPC`` and ``P2P/CUMEM`` are one way, by two functions of
CUDA; ``NET/IBext_v8`` is a plugin for the adapters of ``NET/IB``."""


def moved_otherwise(pair: Pair) -> list[CellComparison]:
    """Cells of one device whose data moved by another way on the two sides, as far as both sides
    know. What only one side knows is no change."""
    return [cell for cell in pair.cells if _moved_otherwise(cell.before, cell.after)]


def _moved_otherwise(before: ResultCell | None, after: ResultCell | None) -> bool:
    if before is None or after is None:
        return False
    if before.transport is None or after.transport is None:
        return False
    if before.cell.id != after.cell.id or before.device != after.device:
        return False
    return are_other_ways(before.transport, after.transport)


def are_other_ways(before: Transport, after: Transport) -> bool:
    """Whether data moved by another way, as far as both are known; names of adapters and the like,
    which differ from machine to machine, are none."""
    if not before.ways or not after.ways:
        return False
    # From 2.22 on NCCL's log proves that a collective asked for NVLS, before that it cannot.
    if {before.nvls, after.nvls} == {"used", "absent"}:
        return True
    ours, theirs = _by_way(before), _by_way(after)
    if ours.keys() != theirs.keys():
        return True
    return any(_details_differ(ways, theirs[way]) for way, ways in ours.items())


def _by_way(transport: Transport) -> dict[tuple[WayKind, str, bool | None], list[Way]]:
    """Ways by what tells them apart for certain."""
    found: dict[tuple[WayKind, str, bool | None], list[Way]] = {}
    for way in transport.ways:
        if way.kind is not WayKind.NVLS:
            name = way.name if way.kind in _NAMED else ""
            found.setdefault((way.kind, name, way.gdr or way.within_host), []).append(way)
    return found


def _details_differ(before: list[Way], after: list[Way]) -> bool:
    sides = list(zip(_details(before), _details(after), strict=True))
    return any(ours and theirs and ours != theirs for ours, theirs in sides)


def _details(ways: list[Way]) -> Iterator[frozenset[object]]:
    """Links; interfaces, or the number of adapters, whose names differ from machine to machine.
    Within a machine the kernel moves what gloo sends, whatever the interface."""
    yield frozenset(way.link for way in ways if way.link is not None)
    devices = {name for way in ways if not way.within_host for name in way.devices}
    counted = ways[0].kind is WayKind.IB and devices
    yield frozenset([len(devices)]) if counted else frozenset(devices)
