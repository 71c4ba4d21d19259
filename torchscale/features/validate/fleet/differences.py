"""What differs between nodes: checks, software, drivers, hosts and clocks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from torchscale.features.cluster.nodes.preflight import clock_text
from torchscale.schema.node.check import Check
from torchscale.schema.node.fleet import Difference, FleetNode
from torchscale.schema.node.probe import (
    DriverFacts,
    HostFacts,
    SoftwareFacts,
    SystemFacts,
)
from torchscale.schema.node.validation import Validation
from torchscale.util.units import format_bytes

CLOCK_SECONDS = 0.1
"""Clocks that NTP keeps differ by milliseconds, and a busy network adds some to the measurement."""
NOT_KNOWN = "not known"
_MEMORY_STEP = 1 << 30
"""Kernels of one version reserve a few MiB more or less on machines of one kind."""

_Fact = Callable[[Validation], object]
_Part = TypeVar("_Part")


def compare_nodes(
    nodes: Sequence[FleetNode], networks: Mapping[int, Sequence[str]] = {}
) -> tuple[Difference, ...]:
    """What is not the same on all ``nodes`` that were checked: versions, devices, settings of the
    host, networks, clocks, then checks. A node without checks has the value ``not known``.

    Args:
        nodes: All of the fleet.
        networks: Those that most nodes are in, of each node by its rank.
    """
    checked = [node for node in nodes if node.validation is not None]
    if len(checked) < 2:
        return ()
    found = [(title, [_fact_text(node, fact) for node in nodes]) for title, fact in _FACTS]
    if networks:
        found.append(("networks", [_networks(node, networks) for node in nodes]))
    found.append(("clock, against node 0", [node_clock(node) for node in nodes]))
    found += [
        (title, [_outcome(node, identifier) for node in nodes])
        for identifier, title in _checks(checked).items()
    ]
    is_checked = [node.validation is not None for node in nodes]
    return tuple(
        Difference(title=title, values=tuple(values))
        for title, values in found
        if len({value for value, counts in zip(values, is_checked, strict=True) if counts}) > 1
    )


def _networks(node: FleetNode, networks: Mapping[int, Sequence[str]]) -> str:
    if node.validation is None or node.node_rank not in networks:
        return NOT_KNOWN
    return _text(tuple(networks[node.node_rank]))


def _fact_text(node: FleetNode, fact: _Fact) -> str:
    if node.validation is None:
        return NOT_KNOWN
    return _text(fact(node.validation))


def checks_of(node: FleetNode) -> tuple[Check, ...]:
    """All that were made on it; none where it was not checked."""
    if node.validation is None:
        return ()
    return node.validation.checks


def _checks(nodes: Sequence[FleetNode]) -> dict[str, str]:
    """Id → title of all checks, in the order of the first node that has each."""
    checks: dict[str, str] = {}
    for node in nodes:
        for check in checks_of(node):
            checks.setdefault(check.id, check.title)
    return checks


def _outcome(node: FleetNode, identifier: str) -> str:
    """A check's status: what was seen on a sound node differs for many reasons, such as a host
    name."""
    for check in checks_of(node):
        if check.id == identifier:
            return check.status.value
    return NOT_KNOWN


def node_clock(node: FleetNode) -> str:
    offset = node.clock_offset_seconds
    if offset is None or abs(offset) < CLOCK_SECONDS:
        return "equal"
    return clock_text(offset)


def _text(value: object) -> str:
    if value is None or value == ():
        return "none"
    if isinstance(value, tuple):
        return ", ".join(str(item) for item in value)
    return str(value)


def _known(fact: Callable[[_Part], object], part: _Part | None) -> object:
    if part is None:
        return NOT_KNOWN
    return fact(part)


def _of_software(fact: Callable[[SoftwareFacts], object]) -> _Fact:
    return lambda validation: _known(fact, validation.facts.software)


def _of_driver(fact: Callable[[DriverFacts], object]) -> _Fact:
    return lambda validation: _known(fact, validation.facts.driver)


def _of_host(fact: Callable[[HostFacts], object]) -> _Fact:
    return lambda validation: _known(fact, validation.facts.host)


def _of_system(fact: Callable[[SystemFacts], object]) -> _Fact:
    return lambda validation: _known(fact, validation.facts.system)


def _counted(values: Sequence[str]) -> tuple[str, ...]:
    """``8 × NVIDIA H200``, for each kind."""
    return tuple(f"{count} × {value}" for value, count in sorted(Counter(values).items()))


def _gib(count: int | None) -> str | None:
    if count is None:
        return None
    return format_bytes(round(count / _MEMORY_STEP) * _MEMORY_STEP)


def _nsys_version(validation: Validation) -> str | None:
    if validation.facts.nsys is None:
        return None
    return validation.facts.nsys.version


def _gpu_setting(name: str) -> _Fact:
    return _of_driver(lambda driver: _counted([_text(getattr(gpu, name)) for gpu in driver.gpus]))


_FACTS: tuple[tuple[str, _Fact], ...] = (
    ("PyTorch", _of_software(lambda software: software.torch)),
    ("CUDA of PyTorch", _of_software(lambda software: software.cuda_built)),
    ("NCCL", _of_software(lambda software: software.nccl)),
    ("Python", _of_software(lambda software: software.python)),
    ("driver", _of_driver(lambda driver: driver.version)),
    ("GPUs", _of_driver(lambda driver: _counted([gpu.name for gpu in driver.gpus]))),
    ("GPUs that PyTorch may use", _of_software(lambda software: software.cuda_devices)),
    (
        "memory of the GPUs",
        _of_driver(lambda driver: _counted([_text(_gib(g.memory_bytes)) for g in driver.gpus])),
    ),
    ("ECC enabled", _gpu_setting("ecc_enabled")),
    ("persistence mode", _gpu_setting("persistence")),
    ("compute mode", _gpu_setting("compute_mode")),
    ("PCIe generation", _gpu_setting("pcie_generation")),
    ("PCIe width", _gpu_setting("pcie_width")),
    ("NVLinks", _gpu_setting("nvlinks_active")),
    (
        "RDMA ports",
        _of_host(
            lambda host: _counted([f"{p.state} {p.rate} {p.link_layer}" for p in host.rdma_ports])
        ),
    ),
    ("cores", _of_host(lambda host: host.cores)),
    ("NUMA nodes", _of_host(lambda host: host.numa_nodes)),
    ("memory", _of_host(lambda host: _gib(host.memory_bytes))),
    ("memory limit", _of_system(lambda system: _gib(system.memory_limit_bytes))),
    ("CPU limit", _of_system(lambda system: system.cpu_limit)),
    ("open files limit", _of_host(lambda host: host.open_files_limit)),
    ("locked memory limit", _of_host(lambda host: host.memory_lock_limit)),
    ("CPU frequency governors", _of_system(lambda system: system.governors)),
    ("huge page defragmentation", _of_system(lambda system: system.huge_page_defrag)),
    ("NUMA balancing", _of_system(lambda system: system.numa_balancing)),
    ("Nsight Systems", _nsys_version),
)
"""What should be equal on nodes of one kind: causes before consequences."""
