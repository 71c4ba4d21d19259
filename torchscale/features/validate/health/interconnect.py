"""Health rules for what joins GPUs and nodes."""

from __future__ import annotations

from collections import Counter

from torchscale.features.validate.health import fixes
from torchscale.features.validate.health.gpu import gpu_name, nothing_known
from torchscale.features.validate.health.rule import (
    DRIVER_IF_ANY,
    GPUS,
    HOST,
    HealthRules,
    RuleOutcome,
    not_applicable,
    passed,
    warned,
)
from torchscale.schema.node.probe import DriverFacts, GpuFacts, HostFacts

INTERCONNECT_RULES = HealthRules()


@INTERCONNECT_RULES.rule("gpu_pcie", "interconnect", "PCIe width", GPUS)
def gpu_pcie(gpus: tuple[GpuFacts, ...]) -> RuleOutcome:
    """Every GPU uses all its PCIe lanes. The PCIe generation is not checked: GPUs lower it when
    idle."""
    known = [gpu for gpu in gpus if gpu.pcie_width is not None and gpu.pcie_width_max is not None]
    if not known:
        return nothing_known(gpus)
    narrow = [gpu for gpu in known if (gpu.pcie_width or 0) < (gpu.pcie_width_max or 0)]
    if narrow:
        seen = ", ".join(
            f"{gpu_name(gpu)}: x{gpu.pcie_width} of x{gpu.pcie_width_max}" for gpu in narrow
        )
        advice = "reseat the card or riser; check the slot: lspci -vv"
        return warned(seen, "full width", advice, fixes.gpu_commands(narrow, *fixes.PCIE))
    return passed(", ".join(sorted({f"x{gpu.pcie_width}" for gpu in known})))


@INTERCONNECT_RULES.rule("gpu_links", "interconnect", "P2P and NVLink", DRIVER_IF_ANY)
def gpu_links(driver: DriverFacts) -> RuleOutcome:
    """GPUs can access each other's memory directly (P2P), over NVLink where present."""
    if len(driver.gpus) < 2:
        return not_applicable("fewer than two GPUs")
    links = [gpu.nvlinks_active for gpu in driver.gpus]
    paths = Counter(pair.path for pair in driver.pairs if pair.path)
    nearest = ", ".join(
        f"{count} pair{'s' * (count > 1)} by {path}" for path, count in paths.items()
    )
    counts = ", ".join("none reported" if count is None else str(count) for count in links)
    nvlink = "no NVLink"
    if any(links):
        nvlink = f"NVLinks per GPU: {counts}"
    seen = "; ".join(part for part in (nvlink, nearest) if part)
    blocked = [f"{pair.first}-{pair.second}" for pair in driver.pairs if pair.p2p is False]
    if blocked:
        advice = "check nvidia-smi topo -p2p r, the IOMMU, ACS and virtualisation settings"
        return warned(
            f"no P2P between {', '.join(blocked[:8])}; {seen}",
            "P2P between all pairs",
            advice,
            fixes.P2P,
        )
    if any(links) and len(set(links)) > 1:
        advice = "check nvidia-smi nvlink --status"
        return warned(seen, "the same number of links on every GPU", advice, fixes.NVLINK)
    if not driver.pairs or any(pair.p2p is None for pair in driver.pairs):
        return not_applicable(f"P2P not reported by the driver; {seen}")
    return passed(seen)


@INTERCONNECT_RULES.rule("rdma", "interconnect", "InfiniBand / RoCE", HOST)
def rdma_devices(host: HostFacts) -> RuleOutcome:
    """InfiniBand and RoCE ports are active; needed for multi-node training."""
    ports = host.rdma_ports
    if not ports:
        return not_applicable("no device")
    seen = ", ".join(
        f"{port.device}/{port.port} {port.link_layer} {port.state}, {port.rate}" for port in ports
    )
    down = [f"{port.device}/{port.port}" for port in ports if port.state != "ACTIVE"]
    if down:
        seen = f"{', '.join(down)} not active; {seen}"
        return warned(seen, "all ports ACTIVE", "check cables and ibstat", fixes.RDMA)
    return passed(seen)
