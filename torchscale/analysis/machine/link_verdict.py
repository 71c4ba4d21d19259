"""Is a bus bandwidth what the link allows? Only where both the link and the algorithm are known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from torchscale.catalog.links import LINKS, nvlink_bytes_per_second
from torchscale.config.machine_sections import HardwareSettings
from torchscale.schema.cells.collectives import CollectivesCell, CollectivesRank, NcclLog
from torchscale.schema.exports.machine import (
    CollectiveFigures,
    CollectivePoint,
    Curve,
    LinkCause,
    LinkCeiling,
    LinkVerdict,
)
from torchscale.schema.node.environment import bare_uuid
from torchscale.schema.node.probe import DriverFacts, GpuFacts, GpuPairFacts
from torchscale.util.units import format_byte_rate, format_percent

_DEFAULT_SHARE = 0.7
"""Expected share of the rated bandwidth, for large messages: a threshold of ours between those of
PCIe and NVLink in ``catalog/links.py``, used where only a rate is known."""
_PCIE_SHARE = 0.6
"""Expected share as of PCI Express in ``catalog/links.py``."""
_RISE = 1.1
"""A doubling of the size that brings over a tenth more: larger messages would still be faster."""
_PCIE_LANE = {1: 0.25e9, 2: 0.5e9, 3: 0.985e9, 4: 1.969e9, 5: 3.938e9, 6: 7.56e9}
"""Bytes per second, lane and direction, by generation (PCI-SIG base specifications)."""
_WITHIN_LINK = ("gloo", "Ring", "Tree", "PAT", "CopyEngine")
"""Algorithms whose bus bandwidth the links between devices bound."""
_IN_SWITCH = ("NVLS", "NVLSTree", "Symmetric")
"""The switch adds up and sends each result to all (multicast): a GPU sends and receives n+1 shares
of 1/n instead of a ring's 2(n−1), so that the bus bandwidth of an all-reduce can be 2(n−1)/(n+1)
times what a link carries. NCCL takes them where it expects more than from a ring, so what a ring
should reach is the least that is expected."""
_WITHIN_ROOT = ("same board", "one PCIe switch", "PCIe switches")
"""Paths between GPUs that do not cross a processor; what crosses one depends on its bridges, and no
share of it is documented."""
_WITHIN_NODE = ("nvlink", "pcie")
"""Links of the catalog that join devices of one machine."""
_PREFERRED = ("all_reduce", "all_gather", "reduce_scatter", "send_recv", "all_to_all", "broadcast")


@dataclass(frozen=True)
class LinkTopology:
    """What is known of the machine that a sweep ran on.

    Attributes:
        declared: What the config says.
        place: Rank 0's record, with what the driver says.
        uuids: UUIDs of the GPUs that take part; empty where they are not known.
        log: What NCCL said about its transports in this launch.
        choices: What it said about algorithms, in the launch that logs them.
        variables: The environment of the sweep.
        nodes: Machines that the ranks ran on.
    """

    declared: HardwareSettings
    place: CollectivesRank
    log: NcclLog | None
    choices: NcclLog | None
    variables: Mapping[str, str]
    uuids: frozenset[str] = frozenset()
    nodes: int = 1


def judge_link(
    cell: CollectivesCell, figures: CollectiveFigures, machine: LinkTopology
) -> LinkVerdict:
    """The peak bus bandwidth of what fills the link best against what the link carries; before it,
    where NCCL used another algorithm than the one that was asked for."""
    verdict = _judge(cell, figures, machine)
    notice = _other_algorithm(cell, machine.choices)
    return replace(verdict, text=f"{notice} {verdict.text}") if notice else verdict


def _judge(cell: CollectivesCell, figures: CollectiveFigures, machine: LinkTopology) -> LinkVerdict:
    curve = _curve_to_judge(figures)
    if curve is None:
        return LinkVerdict("No verdict on the link: nothing was measured that fills it.")
    ceiling = _ceiling(machine)
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
    if algorithm not in (*_WITHIN_LINK, *_IN_SWITCH):
        return LinkVerdict(
            f"No verdict on the link: what {algorithm} can reach on it is not known.",
            ceiling=ceiling,
        )
    share = peak.busbw / ceiling.bytes_per_second
    fits = share >= ceiling.expected_share
    unfilled = None if fits else _not_filled(curve)
    if unfilled is not None:
        return LinkVerdict(f"No verdict on the link: {unfilled}.", ceiling=ceiling)
    words = (
        f"{curve.operation} reaches {format_byte_rate(peak.busbw)} of bus bandwidth, "
        f"{format_percent(share, 0)} of what {ceiling.link} carries "
        f"({format_byte_rate(ceiling.bytes_per_second)} per direction)"
    )
    if algorithm in _IN_SWITCH:
        words += f", by {algorithm}, which adds up in the switch and can exceed 100 %"
    if fits:
        return LinkVerdict(f"{words}: as expected.", share, True, ceiling=ceiling)
    if ceiling.doubt:
        return LinkVerdict(
            f"No verdict on the link: {words}; {ceiling.doubt}.",
            causes=tuple(_seen_causes(machine)),
            ceiling=ceiling,
        )
    return LinkVerdict(
        f"{words}: below the {format_percent(ceiling.expected_share, 0)} that large messages "
        "should reach.",
        share,
        False,
        tuple(_causes(machine)),
        ceiling,
    )


def _not_filled(curve: Curve) -> str | None:
    """Why a low peak is not the link's fault; ``None`` where it can be."""
    if any(
        point.flags for point in curve.points if point.payload_bytes >= curve.peak.payload_bytes
    ):
        return (
            f"sizes of {curve.operation} that fill it were contended or noisy; measure again on a "
            "quiet machine"
        )
    if _still_rises(curve):
        return (
            f"the bus bandwidth of {curve.operation} still rises at the largest size; measure "
            "larger ones (--max-bytes)"
        )
    return None


def _still_rises(curve: Curve) -> bool:
    """Whether the last doubling of the size still brought more: then the link is not filled."""
    return len(curve.points) > 1 and curve.points[-1].busbw > _RISE * curve.points[-2].busbw


def _curve_to_judge(figures: CollectiveFigures) -> Curve | None:
    curves = {
        curve.operation: curve for curve in reversed(figures.curves) if curve.operation != "barrier"
    }
    return next((curves[operation] for operation in _PREFERRED if operation in curves), None)


def _ceiling(machine: LinkTopology) -> LinkCeiling | None:
    known = machine.declared
    if known.link_bytes_per_second is not None:
        return LinkCeiling(
            known.link_bytes_per_second, known.link or "the declared link", _DEFAULT_SHARE
        )
    if known.link is None:
        return _detected_ceiling(machine)
    if machine.nodes > 1 and known.link.startswith(_WITHIN_NODE):
        return None  # what is declared is not between nodes
    link = LINKS[known.link]
    return LinkCeiling(link.bytes_per_second, link.title, link.expected_share)


def _detected_ceiling(machine: LinkTopology) -> LinkCeiling | None:
    """The ceiling of the link between the GPUs that take part, by what the driver and NCCL say;
    ``None`` where they do not say enough."""
    driver, log = machine.place.driver, machine.log
    if driver is None or log is None or not log.transports:
        return None
    if any(transport.startswith("NET") for transport in log.transports):
        return None  # between machines: which network card serves which GPU is not known here
    taking_part = {bare_uuid(uuid) for uuid in machine.uuids}
    gpus = [gpu for gpu in driver.gpus if gpu.uuid and bare_uuid(gpu.uuid) in taking_part]
    if not gpus:
        gpus = list(driver.gpus)
    indices = {gpu.index for gpu in gpus}
    pairs = [pair for pair in driver.pairs if {pair.first, pair.second} <= indices]
    links = [gpu.nvlinks_active or 0 for gpu in gpus]
    nvlink = nvlink_bytes_per_second(min(links, default=0), machine.place.device.compute_capability)
    # Two GPUs with links have them to each other.
    joined = len(gpus) <= 2 or all(pair.nvlink for pair in pairs)
    peer_to_peer = all(transport.startswith("P2P") for transport in log.transports)
    if nvlink is not None and joined and peer_to_peer:
        return LinkCeiling(nvlink, f"{min(links)} NVLinks", _DEFAULT_SHARE)
    if any(links) and not any(pair.nvlink is False for pair in pairs):
        # Which pairs the links join is not known, or host memory is between GPUs that have them.
        return None
    return _pcie_ceiling(gpus, pairs)


def _pcie_ceiling(gpus: Sequence[GpuFacts], pairs: Sequence[GpuPairFacts]) -> LinkCeiling | None:
    """PCI Express, where no NVLink joins some pair of GPUs: a ring goes through the slowest
    pair."""
    lanes = [
        _PCIE_LANE[gpu.pcie_generation] * gpu.pcie_width_max
        for gpu in gpus
        if gpu.pcie_generation in _PCIE_LANE and gpu.pcie_width_max
    ]
    if not lanes:
        return None
    beyond = dict.fromkeys(pair.path for pair in pairs if pair.path is not None and not pair.nvlink)
    crossed = [path for path in beyond if path not in _WITHIN_ROOT]
    doubt = ""
    if crossed:
        doubt = (
            f"GPUs reach each other across a {crossed[0]}, which may carry less; --link declares "
            "what it does"
        )
    return LinkCeiling(min(lanes), "PCI Express", _PCIE_SHARE, doubt)


def _algorithm(
    cell: CollectivesCell,
    curve: Curve,
    peak: CollectivePoint,
    backend: str,
    choices: NcclLog | None,
) -> str | None:
    if backend == "gloo":
        return "gloo"
    if curve.operation in ("send_recv", "all_to_all"):
        return "Ring"  # messages between peers: nothing is reduced on the way
    logged = () if choices is None else choices.choices
    wanted = (curve.operation, peak.payload_bytes)
    # What NCCL says comes first: until 2.23 it takes another algorithm where it lacks the one that
    # is asked for.
    return next(
        (name for operation, size, name, _ in logged if (operation, size) == wanted), cell.algorithm
    )


def _other_algorithm(cell: CollectivesCell, choices: NcclLog | None) -> str:
    """Which operations ran with another algorithm than the cell's; empty where none did or nothing
    was logged."""
    if cell.algorithm is None or not cell.algorithm.isalnum() or choices is None:
        return ""  # a list such as ^NVLS leaves the choice to NCCL
    others: dict[str, list[str]] = {}
    for operation, _, name, _ in choices.choices:
        if name.lower() != cell.algorithm.lower() and operation not in others.setdefault(name, []):
            others[name].append(operation)
    parts = [
        f"{name} for {', '.join(operations)}" for name, operations in others.items() if operations
    ]
    return f"NCCL did not use {cell.algorithm} but {' and '.join(parts)}." if parts else ""


def _causes(machine: LinkTopology) -> list[LinkCause]:
    """Known reasons of a slow link that this machine shows, or where to look without any."""
    causes = _seen_causes(machine)
    return causes or [
        LinkCause("no cause was found; something else may use the link", "nvidia-smi dmon -s t")
    ]


def _seen_causes(machine: LinkTopology) -> list[LinkCause]:
    switches = ("NCCL_P2P_DISABLE", "NCCL_IB_DISABLE", "NCCL_SHM_DISABLE")
    causes = [
        LinkCause(f"{name}=1 is set", f"env | grep {name}")
        for name in switches
        if machine.variables.get(name) == "1"
    ]
    causes += _driver_causes(machine.place.driver) if machine.place.driver is not None else []
    transports: Sequence[str] = () if machine.log is None else machine.log.transports
    if any(transport.startswith("SHM") for transport in transports):
        causes.append(
            LinkCause(
                "NCCL goes through host memory (SHM), not from peer to peer",
                "nvidia-smi topo -p2p r",
            )
        )
    if any(transport.startswith("NET/Socket") for transport in transports):
        causes.append(
            LinkCause(
                "NCCL uses sockets: no InfiniBand or RoCE was found, or allowed", "ibv_devinfo"
            )
        )
    if machine.place.backend == "gloo":
        causes.append(LinkCause("gloo copies through the host and adds up on its processor", "top"))
    return causes


def _driver_causes(driver: DriverFacts) -> list[LinkCause]:
    causes = []
    blocked = [f"{pair.first}–{pair.second}" for pair in driver.pairs if pair.p2p is False]
    if blocked:
        causes.append(
            LinkCause(
                f"no peer-to-peer access between GPUs {', '.join(blocked)}",
                "nvidia-smi topo -p2p r",
            )
        )
    causes += [
        LinkCause(
            f"GPU {gpu.index} runs on {gpu.pcie_width} of {gpu.pcie_width_max} PCIe lanes",
            "nvidia-smi --query-gpu=index,pcie.link.width.current,pcie.link.width.max --format=csv",
        )
        for gpu in driver.gpus
        if gpu.pcie_width and gpu.pcie_width_max and gpu.pcie_width < gpu.pcie_width_max
    ]
    links = [gpu.nvlinks_active for gpu in driver.gpus if gpu.nvlinks_active is not None]
    if links and min(links) < max(links):
        causes.append(
            LinkCause("some GPUs have fewer NVLinks up than others", "nvidia-smi nvlink --status")
        )
    return causes
