"""By what the data of a launch of several ranks moved, as a log or the ranks' sockets prove it."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Literal

from torchscale.schema.base import Frozen, Name

_MAX_DEVICES = 4
"""Adapters that a line names; of more it gives the count, the first and the last."""


class WayKind(str, Enum):
    """Ways by which data moves."""

    P2P = "p2p"
    """From GPU to GPU."""
    NVLS = "nvls"
    """Reduced in the NVLink switch."""
    SHM = "shm"
    """Through shared memory of the host."""
    IB = "ib"
    """InfiniBand verbs: InfiniBand or RoCE."""
    SOCKET = "socket"
    """NCCL over TCP."""
    PLUGIN = "plugin"
    """A network plugin, as that of AWS."""
    COLLNET = "collnet"
    """Reduced in the network's switches, as SHARP does."""
    TCP = "tcp"
    """gloo."""


class Way(Frozen):
    """One way of a launch's data.

    Attributes:
        kind: Kind of way.
        name: Name that the log gives it: ``P2P/CUMEM``, ``NET/IB``, ``NET/AWS Libfabric``; ``TCP``
            of gloo.
        link: Physical link: ``NVLink``, ``PCIe``, ``InfiniBand``, ``RoCE``; ``None`` where nothing
            says so.
        gdr: Whether the adapter reads and writes the GPU's memory itself; ``None`` where that has
            no meaning.
        devices: Adapters or network interfaces; empty where they are not known.
        family: Family of the addresses.
        within_host: Whether both ends are on one machine, so that its kernel moves the data; of
            gloo alone.
    """

    kind: WayKind
    name: Name
    link: Name | None = None
    gdr: bool | None = None
    devices: tuple[Name, ...] = ()
    family: Literal["IPv4", "IPv6"] | None = None
    within_host: bool = False

    @property
    def text(self) -> str:
        """``NET/IB over RoCE with GDR (mlx5_0, mlx5_1)``, ``TCP over lo (IPv4)``."""
        words = [self.name]
        if self.kind is WayKind.TCP:
            words += ["over", " and ".join(self.devices) or "an unknown interface"]
            inside = ", within the machine" if self.within_host and self.devices != ("lo",) else ""
            return f"{' '.join(words)} ({self.family}{inside})"
        if self.link is not None:
            words.append(f"over {self.link}")
        if self.gdr is not None:
            words.append("with GDR" if self.gdr else "without GDR")
        if self.devices:
            words.append(f"({_some(self.devices)})")
        return " ".join(words)


def _some(devices: tuple[str, ...]) -> str:
    if len(devices) <= _MAX_DEVICES:
        return ", ".join(devices)
    return f"{len(devices)} adapters, {devices[0]} to {devices[-1]}"


class Transport(Frozen):
    """By what the data of a launch moved.

    Attributes:
        ways: All ways, those within a machine first; empty where they are not known.
        nvls: Reduction in the NVLink switch: ``used`` once a collective has asked for it,
            ``available`` where the log proves no more, ``absent``; ``None`` where nothing says so.
        source: What says so: ``NCCL 2.27.7's log``, ``the ranks' sockets``.
        unknown: Why the ways are not known; empty where they are.
    """

    ways: tuple[Way, ...] = ()
    nvls: Literal["used", "available", "absent"] | None = None
    source: Name = ""
    unknown: Name = ""

    @property
    def text(self) -> str:
        """All ways in a line, or why they are not known."""
        if not self.ways:
            return f"not known: {self.unknown}"
        return " + ".join(way.text for way in self.ways)


def of_launches(transports: Iterable[Transport | None]) -> Transport | None:
    """By what the data of several launches moved: all ways of any, each with what some launch says
    of it; ``None`` where none says anything, or has one rank alone."""
    found = [one for one in transports if one is not None]
    known = [one for one in found if one.ways]
    if not known:
        return next(iter(found), None)
    said: dict[tuple[object, ...], Way] = {}
    for way in (way for one in known for way in one.ways):
        key = way.kind, way.name, way.gdr, way.within_host
        earlier = said.setdefault(key, way)
        said[key] = earlier.model_copy(
            update={
                "link": earlier.link or way.link,
                "family": earlier.family or way.family,
                "devices": tuple(sorted({*earlier.devices, *way.devices})),
            }
        )
    in_switch = {one.nvls for one in known}
    nvls = next((state for state in ("used", "available", "absent") if state in in_switch), None)
    return known[0].model_copy(update={"ways": tuple(said.values()), "nvls": nvls})
