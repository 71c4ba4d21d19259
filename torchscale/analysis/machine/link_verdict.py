"""Is a bus bandwidth what the link allows? Only where both the link and the algorithm are known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from torchscale.analysis.machine.link_ceiling import LinkTopology, link_ceiling
from torchscale.schema.cells.collectives import CollectivesCell, NcclLog
from torchscale.schema.exports.machine import (
    CollectiveFigures,
    CollectivePoint,
    Curve,
    LinkCause,
    LinkVerdict,
)
from torchscale.schema.node.probe import DriverFacts
from torchscale.util.units import format_byte_rate, format_percent

_RISE = 1.1
"""A doubling of the size that brings over a tenth more: larger messages would still be faster."""
_WITHIN_LINK = ("gloo", "Ring", "Tree", "PAT", "CopyEngine")
"""Algorithms whose bus bandwidth the links between devices bound."""
_IN_SWITCH = ("NVLS", "NVLSTree", "Symmetric")
"""The switch adds up and sends each result to all (multicast): a GPU sends and receives n+1 shares
of 1/n instead of a ring's 2(n−1), so that the bus bandwidth of an all-reduce can be 2(n−1)/(n+1)
times what a link carries. NCCL takes them where it expects more than from a ring, so what a ring
should reach is the least that is expected."""
_PREFERRED = ("all_reduce", "all_gather", "reduce_scatter", "send_recv", "all_to_all", "broadcast")


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
    ceiling = link_ceiling(machine)
    if ceiling is None:
        return LinkVerdict(
            "No verdict on the link: its rated speed is unknown; declare it with --link, "
            "hardware.link or hardware.link_bytes_per_second."
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
