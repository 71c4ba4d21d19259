"""Reads from NCCL's log (NCCL_DEBUG=INFO) by what the data of a launch moved.

Lines of the releases from 2.18 to 2.30, by the sources of each (``src/transport``, ``src/init.cc``,
``src/graph/search.cc``). They belong to the subsystem INIT, but for the graph's (GRAPH):

- ``Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read``: a connection, in all releases. ``P2P/IPC``
  without cuMem, ``P2P/direct pointer`` within a process, ``P2P/MNNVL`` from 2.20 between machines
  that NVLink joins. ``Channel 00 : 0[0] -> 1[1] via SHM/direct/direct``, from 2.30 ``SHM/direct``.
- ``Channel 00/0 : 8[0] -> 0[0] [receive] via NET/IB/0/GDRDMA``: the network's name, its device,
  GPUDirect RDMA. ``NET/IB/0(1)`` through another GPU's adapter (PXN); ``/GDRDMA(PCI)`` from 2.26.
- ``CollNet 00/0 : 0 [send] via COLLNET/SHARP/0/GDRDMA``.
- ``NET/IB : Using [0]mlx5_0:1/RoCE [1]mlx5_1:1/RoCE [RO]; OOB eth0:10.0.0.1<0>``: the devices, once
  in a process. From 2.20 to 2.22 ``[0]={[0] mlx5_0:1/IB, [1] mlx5_1:1/IB}`` where two ports are
  merged, from 2.30 ``mlx5_0:1:<rail>:<plane>/IB``. ``NET/Socket : Using [0]eth0:10.0.0.1<0>``.
- ``Pattern 4, crossNic 0, nChannels 16, bw 30.0/30.0, type NVL/PIX, sameChannels 1``: the slowest
  path between GPUs of a machine in the ring that was found.
- ``NVLS comm 0x55 headRank 0 nHeads 8 …``: buffers in the NVLink switch. Up to 2.21 each
  communicator made them when it was initialised. From 2.22 the first collective makes them that the
  tuner gives to NVLS, unless NCCL_RUNTIME_CONNECT is 0. So the line proves that a collective asked
  for NVLS only *after* the ``Init COMPLETE`` of the same communicator.

From 2.22 on channels are connected by the first collective that needs them, before that all at
once. RCCL's lines end in ``comm 0x55 nRanks 08``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from torchscale.schema.launch.transport import Transport, Way, WayKind
from torchscale.util.processes.subprocesses import tail

NVLS_READY = re.compile(
    r"NVLS multicast support is available|Connected NVLS tree|NVLS comm 0x\w+ headRank"
)
_LINE = re.compile(r"(?P<process>\S*:\d+):\d+ \[-?\d+\] NCCL INFO (?P<text>.*)")
_END = r"(?: comm 0x\w+ nRanks \d+)?\s*$"
_CHANNEL = re.compile(
    r"(?:Channel|CollNet) \d+(?:/\d+)? : \d+(?:\[\w+\] -> \d+\[\w+\])?(?: \[\w+\])? via "
    r"(?P<transport>P2P/direct pointer|(?:P2P|SHM)/[\w/\[\]]+|(?:NET|COLLNET)/[^/]{1,60}/[^ ]+)"
    # What is cut off or mixed with another line says nothing.
    rf"(?:/read)?(?:/CE)?{_END}"
)
_NETWORK = re.compile(
    r"(?P<name>(?:NET|COLLNET)/[^/]{1,60})/(?P<device>\d+)(?:\(\d+\))?(?P<gdr>/GDRDMA(?:\(PCI\))?)?"
    r"(?:/Shared)?$"
)
_DIRECT = re.compile(
    r"(?P<name>P2P/(?:CUMEM|IPC|MNNVL|direct pointer|indirect)|SHM)(?:/(?:direct|CE|\d+\[\w+\]))*$"
)
_USING = re.compile(r"NET/(?P<network>IB|Socket) : Using (?P<devices>.*)")
_PORTS = re.compile(r"\[\d+\]=\{(?P<merged>[^}]*)\}|\[\d+\] ?(?P<single>[^\s,{}]+)")
_PORT = re.compile(r"(?P<name>[^\s:\[\]]{1,60}):[\d:]+/(?P<link>\w+)")
_INTERFACE = re.compile(r"\[\d+\](?P<name>[^\s:]{1,60}):(?P<address>\S+)<\d+>")
_PATTERN = re.compile(r"Pattern [1-4], crossNic .* type (?P<within>\w+)/\w+, sameChannels")
_INITIALISED = re.compile(r"comm (?P<comm>0x\w+) rank \d+ nranks \d+ .* - Init COMPLETE")
_GONE = re.compile(r"comm (?P<comm>0x\w+) rank \d+ .*(Init START|Destroy|Abort)")
_IN_SWITCH = re.compile(r"NVLS comm (?P<comm>0x\w+) headRank ")
_SUPPORT = re.compile(r"NVLS multicast support is (?P<missing>not )?available on dev")
_VERSION = re.compile(r"NCCL version (\d+\.\d+\.\d+)")
_LINKS = {"IB": "InfiniBand", "RoCE": "RoCE"}
_BETWEEN_GPUS = {
    **dict.fromkeys(("NVL", "NVB"), "NVLink"),
    **dict.fromkeys(("PIX", "PXB", "PHB", "SYS"), "PCIe"),
}
"""Paths by NCCL's names (``topoPathTypeStr``). A path over C2C or the network is neither."""
_HEAD_BYTES = 1 << 20
"""Of a process's log: its networks are told when the first communicator is made."""
_MAX_LOG_BYTES = 16 << 20
"""Read from the end of each log; none that is kept is larger (util/logs.py)."""
_ORDER = tuple(WayKind)


def channel_transport(line: str) -> str | None:
    """``P2P/CUMEM`` or ``NET/IB/0/GDRDMA`` of a line on a channel; ``None`` of another line, and of
    one that is not whole."""
    match = _CHANNEL.search(line)
    if match is None:
        return None
    text = match["transport"]
    if text.startswith("P2P"):
        text = text.removesuffix("/CE").removesuffix("/read")
    if _DIRECT.match(text) or _NETWORK.match(text):
        return text
    return None


def log_lines(directory: Path) -> Iterator[str]:
    """Lines of NCCL in the logs of the ranks of a launch. A line that is not whole, at the end of a
    file, is left out."""
    for log in sorted(directory.glob("rank-*.std*.log")):
        lines = tail(log, _MAX_LOG_BYTES).split("\n")
        yield from filter(_is_nccls, lines[:-1])


def first_lines(logs: Iterable[Path]) -> Iterator[str]:
    """Lines of NCCL at the beginning of each of ``logs``."""
    for log in logs:
        try:
            with log.open("rb") as file:
                text = file.read(_HEAD_BYTES).decode(errors="replace")
        except OSError:
            continue
        yield from filter(_is_nccls, text.split("\n")[:-1])


def _is_nccls(line: str) -> bool:
    return "NCCL INFO" in line or "NCCL version " in line


@dataclass(frozen=True)
class _Device:
    """A device of a network: its adapters, and the link that all of them have."""

    names: tuple[str, ...]
    link: str | None = None
    family: Literal["IPv4", "IPv6"] | None = None


@dataclass
class _Seen:
    """What the lines of all processes said so far."""

    version: str = ""
    has_lines: bool = False
    direct: dict[str, None] = field(default_factory=dict)
    networks: dict[tuple[str, str, int, bool], None] = field(default_factory=dict)
    devices: dict[tuple[str, str], list[_Device]] = field(default_factory=dict)
    paths: set[str] = field(default_factory=set)
    initialised: set[tuple[str, str]] = field(default_factory=set)
    nvls: Literal["used", "available", "absent"] | None = None

    def add(self, line: str) -> None:
        """Take in a line."""
        if version := _VERSION.search(line):
            self.version = version[1]
        match = _LINE.search(line)
        if match is None:
            return
        self.has_lines = True
        process, text = match["process"], match["text"]
        if (transport := channel_transport(text)) is not None:
            self._add_channel(process, transport)
        elif using := _USING.match(text):
            devices = _ports if using["network"] == "IB" else _interfaces
            self.devices[process, using["network"]] = devices(using["devices"])
        elif pattern := _PATTERN.match(text):
            self.paths.add(_BETWEEN_GPUS.get(pattern["within"], ""))
        elif done := _INITIALISED.search(text):
            self.initialised.add((process, done["comm"]))
        elif gone := _GONE.search(text):  # the next one may lie at the same address
            self.initialised.discard((process, gone["comm"]))
        else:
            self._add_nvls(process, text)

    def _add_channel(self, process: str, transport: str) -> None:
        network = _NETWORK.match(transport)
        if network is None:
            self.direct[transport] = None
            return
        key = (process, network["name"], int(network["device"]), network["gdr"] is not None)
        self.networks[key] = None

    def _add_nvls(self, process: str, text: str) -> None:
        buffers, support = _IN_SWITCH.match(text), _SUPPORT.match(text)
        if buffers is not None and (process, buffers["comm"]) in self.initialised:
            self.nvls = "used"
        elif self.nvls != "used" and NVLS_READY.search(text):
            self.nvls = "available"
        elif self.nvls is None and support is not None and support["missing"]:
            self.nvls = "absent"

    def ways(self) -> tuple[Way, ...]:
        """All ways, each once, those within a machine first."""
        found = [_direct_way(transport, self._between_gpus) for transport in self.direct]
        if self.nvls == "used":
            found.append(Way(kind=WayKind.NVLS, name="NVLS", link="NVLink"))
        found += self._network_ways()
        return tuple(sorted(dict.fromkeys(found), key=lambda way: _ORDER.index(way.kind)))

    @property
    def _between_gpus(self) -> str | None:
        """What joins the GPUs of a machine; ``None`` where that is not said of every ring."""
        if not self.paths - {""} or "" in self.paths:
            return None
        return " and ".join(sorted(self.paths))

    def _network_ways(self) -> Iterator[Way]:
        by_name: dict[tuple[str, bool], list[_Device]] = {}
        for process, name, number, gdr in self.networks:
            device = self._device(process, name, number)
            by_name.setdefault((name, gdr), []).append(device)
        for (name, gdr), devices in by_name.items():
            kind = _network_kind(name)
            links = {device.link for device in devices}
            families = {device.family for device in devices}
            yield Way(
                kind=kind,
                name=name,
                link=links.pop() if len(links) == 1 else None,
                gdr=None if kind is WayKind.SOCKET else gdr,
                devices=tuple(sorted({one for device in devices for one in device.names})),
                family=families.pop() if len(families) == 1 else None,
            )

    def _device(self, process: str, name: str, number: int) -> _Device:
        """A device of a network by its number; only the link where NCCL made it of several."""
        network = "IB" if _network_kind(name) is WayKind.IB else name.partition("/")[2]
        devices = self.devices.get((process, network), [])
        if number < len(devices):
            return devices[number]
        links = {device.link for device in devices}
        return _Device((), links.pop() if len(links) == 1 else None)


def parse_transport(
    lines: Iterable[str], version: str | None, earlier: Iterable[str] = ()
) -> Transport:
    """By what data moved, as these lines prove it.

    Args:
        lines: Lines of all ranks, those of a rank in their order.
        version: NCCL's, as the ranks know it; the log says it once in a process.
        earlier: Lines that the same processes printed before, in another launch.
    """
    before = _Seen()
    for line in earlier:
        before.add(line)
    seen = _Seen(version=before.version, devices=before.devices)
    for line in lines:
        seen.add(line)
    name = f"NCCL {version or seen.version}".strip()
    if not seen.has_lines:
        return Transport(
            unknown=f"no line of {name} is in the ranks' output (NCCL_DEBUG=INFO writes it there)"
        )
    ways = seen.ways()
    if not ways:
        return Transport(nvls=seen.nvls, unknown=f"{name}'s log has no line that says")
    return Transport(ways=ways, nvls=seen.nvls, source=f"{name}'s log")


def read_transport(
    directory: Path, version: str | None, process_logs: Sequence[Path] = ()
) -> Transport:
    """By what data moved, from the logs in the directory of a launch. ``process_logs`` are those of
    its processes, where they ran other launches before."""
    return parse_transport(log_lines(directory), version, first_lines(process_logs))


def _direct_way(transport: str, between_gpus: str | None) -> Way:
    match = _DIRECT.match(transport)
    name = transport if match is None else match["name"]
    if name == "SHM":
        return Way(kind=WayKind.SHM, name=name)
    link = "NVLink" if name == "P2P/MNNVL" else between_gpus
    return Way(kind=WayKind.P2P, name=name, link=link)


def _network_kind(name: str) -> WayKind:
    """``NET/IBext_v8`` is NVIDIA's plugin for the same adapters."""
    family, _, network = name.partition("/")
    if family == "COLLNET":
        return WayKind.COLLNET
    if network == "Socket":
        return WayKind.SOCKET
    return WayKind.IB if network.startswith("IB") else WayKind.PLUGIN


def _ports(text: str) -> list[_Device]:
    """Devices of ``[0]mlx5_0:1/RoCE [1]={[1] mlx5_1:1/IB, [2] mlx5_2:1/IB}``. Their place is their
    number: what stands in brackets is that of a port, where ports are merged."""
    found = []
    for match in _PORTS.finditer(text.partition("; OOB")[0]):
        ports = _PORT.findall(match["merged"] or match["single"] or "")
        links = {_LINKS.get(link) for _, link in ports}
        if ports:
            link = links.pop() if len(links) == 1 else None
            found.append(_Device(tuple(name for name, _ in ports), link))
    return found


def _interfaces(text: str) -> list[_Device]:
    """Devices of ``[0]eth0:10.0.0.1<0>``."""
    return [
        _Device((name,), family="IPv6" if ":" in address else "IPv4")
        for name, address in _INTERFACE.findall(text)
    ]
