"""What the link between the devices of a sweep carries, as declared or as the driver says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torchscale.catalog.links import LINKS, nvlink_bytes_per_second
from torchscale.config.sections.machine import HardwareSettings
from torchscale.schema.cells.collectives import CollectivesRank, NcclLog
from torchscale.schema.exports.machine import LinkCeiling
from torchscale.schema.node.environment import bare_uuid
from torchscale.schema.node.probe import GpuFacts, GpuPairFacts

_DEFAULT_SHARE = 0.7
"""Expected share of the rated bandwidth, for large messages: a threshold of ours between those of
PCIe and NVLink in ``catalog/links.py``, used where only a rate is known."""
_PCIE_SHARE = 0.6
"""Expected share as of PCI Express in ``catalog/links.py``."""
_PCIE_LANE = {1: 0.25e9, 2: 0.5e9, 3: 0.985e9, 4: 1.969e9, 5: 3.938e9, 6: 7.56e9}
"""Bytes per second, lane and direction, by generation (PCI-SIG base specifications)."""
_WITHIN_ROOT = ("same board", "one PCIe switch", "PCIe switches")
"""Paths between GPUs that do not cross a processor; what crosses one depends on its bridges, and no
share of it is documented."""
_WITHIN_NODE = ("nvlink", "pcie")
"""Links of the catalog that join devices of one machine."""


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


def link_ceiling(machine: LinkTopology) -> LinkCeiling | None:
    """What the link carries; ``None`` where that is not known."""
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
