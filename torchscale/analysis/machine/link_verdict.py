"""Is a bus bandwidth what the link allows? Only where both the link and the algorithm are known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torchscale.analysis.machine.collectives import CollectiveFigures, CollectivePoint, Curve
from torchscale.catalog.links import LINKS, nvlink_bytes_per_second
from torchscale.config.machine_sections import HardwareSettings
from torchscale.schema.cells.collectives import CollectivesCell, CollectivesRank, NcclLog
from torchscale.schema.node.probe import DriverFacts
from torchscale.util.units import format_byte_rate, format_percent

_DEFAULT_SHARE = 0.7
"""Of the rated bandwidth, for large messages: a threshold of ours between those of PCIe and NVLink in
``catalog/links.py``, used where only a rate is known."""
_PCIE_SHARE = 0.6
"""As of PCI Express in ``catalog/links.py``."""
_RISE = 1.1
"""A doubling of the size that brings over a tenth more: larger messages would still be faster."""
_PCIE_LANE = {1: 0.25e9, 2: 0.5e9, 3: 0.985e9, 4: 1.969e9, 5: 3.938e9, 6: 7.56e9}
"""Bytes per second, lane and direction, by generation (PCI-SIG base specifications)."""
_WITHIN_LINK = ("Ring", "Tree")
"""Algorithms whose bus bandwidth the links between devices bound; in-switch reduction can exceed it."""
_PREFERRED = ("all_reduce", "all_gather", "reduce_scatter", "send_recv", "all_to_all", "broadcast")


@dataclass(frozen=True)
class Ceiling:
    """What the link allows: bytes per second and direction, what it is, and the share that should be reached."""

    bytes_per_second: float
    link: str
    expected_share: float


@dataclass(frozen=True)
class Cause:
    """Why a link may fall short, and the command that shows whether it is so."""

    text: str
    check: str


@dataclass(frozen=True)
class LinkVerdict:
    """What was reached of the ceiling. ``share`` is ``None`` where nothing can be said, and ``text`` says why; the
    ceiling is there wherever it is known and bounds what was measured."""

    text: str
    share: float | None = None
    fits: bool | None = None
    causes: tuple[Cause, ...] = ()
    ceiling: Ceiling | None = None


@dataclass(frozen=True)
class LinkTopology:
    """What is known of the machine that a sweep ran on.

    Attributes:
        declared: What the config says.
        place: Rank 0's record, with what the driver says.
        log: What NCCL said about its transports in this launch.
        choices: What it said about algorithms, in the launch that logs them.
        variables: The environment of the sweep.
    """

    declared: HardwareSettings
    place: CollectivesRank
    log: NcclLog | None
    choices: NcclLog | None
    variables: Mapping[str, str]


def judge_link(cell: CollectivesCell, figures: CollectiveFigures, machine: LinkTopology) -> LinkVerdict:
    """The peak bus bandwidth of what fills the link best against what the link carries."""
    curve = _curve_to_judge(figures)
    if curve is None:
        return LinkVerdict("No verdict on the link: nothing was measured that fills it.")
    ceiling = _ceiling(machine.declared, machine.place, machine.log)
    if ceiling is None:
        return LinkVerdict(
            "No verdict on the link: what it allows is not known; declare it with hardware.link or "
            "hardware.link_bytes_per_second."
        )
    peak = curve.peak
    algorithm = _algorithm(cell, curve, peak, figures.backend, machine.choices)
    if algorithm is None:
        return LinkVerdict(
            "No verdict on the link: which algorithm NCCL used is not known; --algo Ring sets one.",
        )
    if algorithm not in (*_WITHIN_LINK, "gloo"):
        return LinkVerdict(f"No verdict on the link: {algorithm} reduces in the switch and can exceed its links.")
    share = peak.busbw / ceiling.bytes_per_second
    fits = share >= ceiling.expected_share
    if not fits and _still_rises(curve):
        return LinkVerdict(
            f"No verdict on the link: the bus bandwidth of {curve.operation} still rises at the largest size; measure "
            "larger ones (--max-bytes).",
            ceiling=ceiling,
        )
    words = (
        f"{curve.operation} reaches {format_byte_rate(peak.busbw)} of bus bandwidth, {format_percent(share, 0)} of "
        f"what {ceiling.link} carries ({format_byte_rate(ceiling.bytes_per_second)} per direction)"
    )
    if fits:
        return LinkVerdict(f"{words}: as expected.", share, True, ceiling=ceiling)
    return LinkVerdict(
        f"{words}: below the {format_percent(ceiling.expected_share, 0)} that large messages should reach.",
        share,
        False,
        tuple(_causes(machine)),
        ceiling,
    )


def _still_rises(curve: Curve) -> bool:
    """Whether the last doubling of the size still brought more: then the link is not filled."""
    return len(curve.points) > 1 and curve.points[-1].busbw > _RISE * curve.points[-2].busbw


def _curve_to_judge(figures: CollectiveFigures) -> Curve | None:
    curves = {curve.operation: curve for curve in reversed(figures.curves) if curve.operation != "barrier"}
    return next((curves[operation] for operation in _PREFERRED if operation in curves), None)


def _ceiling(known: HardwareSettings, place: CollectivesRank, log: NcclLog | None) -> Ceiling | None:
    if known.link_bytes_per_second is not None:
        return Ceiling(known.link_bytes_per_second, known.link or "the declared link", _DEFAULT_SHARE)
    if known.link is not None:
        link = LINKS[known.link]
        return Ceiling(link.bytes_per_second, link.title, link.expected_share)
    if place.driver is None or log is None or not log.transports:
        return None
    if any(transport.startswith("NET") for transport in log.transports):
        return None  # between machines: which network card serves which GPU is not known here
    links = [gpu.nvlinks_active or 0 for gpu in place.driver.gpus]
    nvlink = nvlink_bytes_per_second(min(links, default=0), place.device.compute_capability)
    if nvlink is not None and all(transport.startswith("P2P") for transport in log.transports):
        return Ceiling(nvlink, f"{min(links)} NVLinks", _DEFAULT_SHARE)
    lanes = [
        _PCIE_LANE[gpu.pcie_generation] * gpu.pcie_width_max
        for gpu in place.driver.gpus
        if gpu.pcie_generation in _PCIE_LANE and gpu.pcie_width_max
    ]
    return Ceiling(min(lanes), "PCI Express", _PCIE_SHARE) if lanes and not any(links) else None


def _algorithm(
    cell: CollectivesCell, curve: Curve, peak: CollectivePoint, backend: str, choices: NcclLog | None
) -> str | None:
    if backend == "gloo":
        return "gloo"
    if cell.algorithm is not None:
        return cell.algorithm
    if curve.operation in ("send_recv", "all_to_all"):
        return "Ring"  # messages between peers: nothing is reduced on the way
    logged = () if choices is None else choices.choices
    wanted = (curve.operation, peak.payload_bytes)
    return next((name for operation, size, name, _ in logged if (operation, size) == wanted), None)


def _causes(machine: LinkTopology) -> list[Cause]:
    """Known reasons of a slow link that this machine shows."""
    switches = ("NCCL_P2P_DISABLE", "NCCL_IB_DISABLE", "NCCL_SHM_DISABLE")
    causes = [
        Cause(f"{name}=1 is set", f"env | grep {name}") for name in switches if machine.variables.get(name) == "1"
    ]
    causes += _driver_causes(machine.place.driver) if machine.place.driver is not None else []
    transports: Sequence[str] = () if machine.log is None else machine.log.transports
    if any(transport.startswith("SHM") for transport in transports):
        causes.append(Cause("NCCL goes through host memory (SHM), not from peer to peer", "nvidia-smi topo -p2p r"))
    if any(transport.startswith("NET/Socket") for transport in transports):
        causes.append(Cause("NCCL uses sockets: no InfiniBand or RoCE was found, or allowed", "ibv_devinfo"))
    if machine.place.backend == "gloo":
        causes.append(Cause("gloo copies through the host and adds up on its processor", "top"))
    return causes or [Cause("no cause was found; something else may use the link", "nvidia-smi dmon -s t")]


def _driver_causes(driver: DriverFacts) -> list[Cause]:
    causes = []
    blocked = [f"{pair.first}–{pair.second}" for pair in driver.pairs if pair.p2p is False]
    if blocked:
        causes.append(Cause(f"no peer-to-peer access between GPUs {', '.join(blocked)}", "nvidia-smi topo -p2p r"))
    causes += [
        Cause(
            f"GPU {gpu.index} runs on {gpu.pcie_width} of {gpu.pcie_width_max} PCIe lanes",
            "nvidia-smi --query-gpu=index,pcie.link.width.current,pcie.link.width.max --format=csv",
        )
        for gpu in driver.gpus
        if gpu.pcie_width and gpu.pcie_width_max and gpu.pcie_width < gpu.pcie_width_max
    ]
    links = [gpu.nvlinks_active for gpu in driver.gpus if gpu.nvlinks_active is not None]
    if links and min(links) < max(links):
        causes.append(Cause("some GPUs have fewer NVLinks up than others", "nvidia-smi nvlink --status"))
    return causes
