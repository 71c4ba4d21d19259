"""Health rules for the container's limits, the kernel's settings and the user's environment."""

from __future__ import annotations

from datetime import datetime, timezone

from torchscale.features.validate.health import fixes
from torchscale.features.validate.health.rule import (
    SYSTEM,
    HealthRules,
    RuleOutcome,
    not_applicable,
    passed,
    unknown,
    warned,
)
from torchscale.schema.node.probe import NodeFacts, SystemFacts
from torchscale.util.units import format_bytes

GIB = 2**30
RANK_BYTES = 2 * GIB
"""An interpreter with torch and a CUDA context holds 1 to 2 GB of host memory before the first
batch."""
MIN_TASKS = 4096
"""A rank with loader workers and the threads of OpenMP, NCCL and gloo has 50 to 200 tasks; 8 ranks
and a margin."""
MAX_LOAD_SHARE = 0.25
"""A quarter of the CPUs in use by others slows some ranks and not the rest; the probe itself adds
less than one."""
MIN_TEMPORARY_BYTES = GIB
"""torch.compile's cache and torchrun's logs lie there; a cache of one large model takes some
hundred MB."""
MIN_PORTS = 1024
"""gloo and NCCL open some connections for each pair of ranks on a node: 8 ranks take several
hundred ports."""
EARLIEST = datetime(2024, 1, 1, tzinfo=timezone.utc)
"""Earliest plausible time, before the first supported PyTorch (2.6) was released: no clock of a
working machine shows it."""
_SLOW_GOVERNORS = ("powersave", "conservative", "ondemand", "schedutil")
"""All but ``performance`` raise the frequency only after a load is seen."""
_EAGER_PREFERENCES = ("(performance)", "(balance_performance)")
"""Drivers with a preference of their own (intel_pstate, amd-pstate) call every dynamic policy
powersave."""

SYSTEM_RULES = HealthRules()


@SYSTEM_RULES.rule_on_node("memory", "host", "available memory", SYSTEM)
def memory(system: SystemFacts, facts: NodeFacts) -> RuleOutcome:
    """Enough memory for one rank on each GPU, within the container's or job's limit."""
    if system.memory_available_bytes is None:
        return unknown()
    ranks = 1
    total: int | None = None
    if facts.software is not None:
        ranks = max(1, facts.software.cuda_devices or 0)
    if facts.host is not None:
        total = facts.host.memory_bytes
    limit = system.memory_limit_bytes
    seen = format_bytes(system.memory_available_bytes)
    if limit is not None and (total is None or limit < total):
        seen += f", limit of this container or job {format_bytes(limit)}"
    needed = RANK_BYTES * ranks
    if system.memory_available_bytes < needed:
        advice = "raise the limit, or end other processes: ranks would be killed for memory"
        return warned(seen, f"{format_bytes(needed)} for {ranks} ranks", advice, fixes.MEMORY_LIMIT)
    return passed(seen)


@SYSTEM_RULES.rule_on_node("cpu_limit", "host", "CPU quota", SYSTEM)
def cpu_limit(system: SystemFacts, facts: NodeFacts) -> RuleOutcome:
    """No CPU quota below the CPUs that the process may use: the kernel would stop ranks within each
    period."""
    if system.cpu_limit is None:
        return passed("none")
    if facts.host is None or system.cpu_limit >= facts.host.cores:
        return passed(f"{system.cpu_limit:g} CPUs")
    advice = (
        "threads of all ranks and loaders share the quota and are stopped when it is used; bind "
        "CPUs instead"
    )
    return warned(
        f"{system.cpu_limit:g} of {facts.host.cores} CPUs",
        "no quota",
        advice,
        fixes.CPU_LIMIT,
    )


@SYSTEM_RULES.rule("tasks", "host", "processes and threads", SYSTEM)
def tasks(system: SystemFacts) -> RuleOutcome:
    """Enough processes and threads for many ranks."""
    if system.tasks_limit is None:
        return unknown()
    if system.tasks_limit < 0:
        return passed("unlimited")
    if system.tasks_limit >= MIN_TASKS:
        return passed(f"{system.tasks_limit:,}")
    advice = "ulimit -u, pids.max of the container: threads cannot be started beyond it"
    return warned(f"{system.tasks_limit:,}", f"at least {MIN_TASKS:,}", advice, fixes.TASKS)


@SYSTEM_RULES.rule_on_node("cpu_load", "host", "CPU load", SYSTEM)
def load(system: SystemFacts, facts: NodeFacts) -> RuleOutcome:
    """No other processes keep the CPUs busy."""
    if system.load is None or facts.host is None:
        return unknown()
    seen = f"{system.load:.1f} on {facts.host.cores} CPUs (mean of the last minute)"
    if system.load > max(1.0, MAX_LOAD_SHARE * facts.host.cores):
        advice = (
            "other processes distort every measurement on CPUs and slow data loading; wait, or end "
            "them"
        )
        return warned(
            seen,
            f"at most {max(1.0, MAX_LOAD_SHARE * facts.host.cores):g}",
            advice,
            fixes.CPU_LOAD,
        )
    return passed(seen)


@SYSTEM_RULES.rule("temporary", "host", "temporary directory", SYSTEM)
def temporary_directory(system: SystemFacts) -> RuleOutcome:
    """Temporary files can be written: torch.compile and torchrun need them."""
    if system.temporary_error is not None:
        seen = f"{system.temporary}: {system.temporary_error}"
        return warned(
            seen,
            "a writable directory",
            "set TMPDIR to a writable directory",
            fixes.TEMPORARY,
        )
    free = system.temporary_free_bytes
    if free is None:
        return unknown()
    seen = f"{system.temporary}: {format_bytes(free)} free"
    if free < MIN_TEMPORARY_BYTES:
        return warned(seen, "at least 1 GiB free", "free space, or set TMPDIR", fixes.TEMPORARY)
    return passed(seen)


@SYSTEM_RULES.rule("home", "host", "home directory", SYSTEM)
def home_directory(system: SystemFacts) -> RuleOutcome:
    """Caches of Triton and model hubs can be written in the home directory."""
    seen = system.home or "not set"
    if system.home_error is not None:
        advice = "set HOME to a writable directory: caches of Triton and model hubs lie there"
        return warned(f"{seen}: {system.home_error}", "a writable directory", advice, fixes.HOME)
    return passed(seen)


@SYSTEM_RULES.rule("locale", "host", "locale", SYSTEM)
def text_locale(system: SystemFacts) -> RuleOutcome:
    """The locale exists and writes UTF-8: logs and names of models hold more than ASCII."""
    if system.locale_error is not None:
        return warned(
            system.locale_error, "an installed locale", "set LC_ALL=C.UTF-8", fixes.LOCALE
        )
    encoding = system.encoding or "unknown"
    if encoding.lower().replace("-", "") != "utf8":
        return warned(encoding, "UTF-8", "set LC_ALL=C.UTF-8", fixes.LOCALE)
    return passed(encoding)


@SYSTEM_RULES.rule_on_node("clock", "host", "clock", SYSTEM)
def clock(system: SystemFacts, facts: NodeFacts) -> RuleOutcome:
    """The clock is plausible and, where other nodes can be reached over RDMA, follows a
    reference."""
    if system.time is None:
        return unknown()
    now = datetime.fromtimestamp(system.time, timezone.utc)
    seen = f"{now:%Y-%m-%d %H:%M} UTC"
    if now < EARLIEST:
        advice = "set the clock: records are ordered by it, and certificates are refused"
        return warned(seen, f"after {EARLIEST:%Y-%m-%d}", advice, fixes.CLOCK)
    if system.clock_synchronized is False:
        seen += ", not synchronized"
        if facts.host is not None and facts.host.rdma_ports:
            return warned(
                seen, "synchronized", "logs of several nodes do not fit together", fixes.CLOCK
            )
    return passed(seen)


@SYSTEM_RULES.rule("local_ports", "host", "local ports", SYSTEM)
def local_ports(system: SystemFacts) -> RuleOutcome:
    """Enough ports for the connections between ranks."""
    if system.local_ports is None:
        return not_applicable("not reported by the kernel")
    seen = f"{system.local_ports:,}"
    if system.local_ports < MIN_PORTS:
        advice = (
            "widen net.ipv4.ip_local_port_range: ranks fail with `Cannot assign requested address`"
        )
        return warned(seen, f"at least {MIN_PORTS:,}", advice, fixes.PORTS)
    return passed(seen)


@SYSTEM_RULES.rule("cpu_governor", "host", "CPU frequency governor", SYSTEM)
def governor(system: SystemFacts) -> RuleOutcome:
    """CPUs run at full frequency at once."""
    if not system.governors:
        return not_applicable("not reported by the kernel")
    seen = ", ".join(system.governors)
    slow = [
        it
        for it in system.governors
        if it.split()[0] in _SLOW_GOVERNORS and not it.endswith(_EAGER_PREFERENCES)
    ]
    if slow:
        advice = (
            "short phases on the host (launching kernels, loading data) run below full frequency"
        )
        return warned(seen, "performance", advice, fixes.GOVERNOR)
    return passed(seen)


@SYSTEM_RULES.rule("huge_pages", "host", "huge page defragmentation", SYSTEM)
def huge_pages(system: SystemFacts) -> RuleOutcome:
    """An allocation does not wait until the kernel has made huge pages, which takes milliseconds at
    random."""
    if system.huge_page_defrag is None:
        return not_applicable("not reported by the kernel")
    if system.huge_page_defrag == "always":
        advice = (
            "allocations wait for memory to be compacted: single slow steps on CPUs and in loaders"
        )
        return warned("always", "madvise or defer", advice, fixes.HUGE_PAGES)
    return passed(system.huge_page_defrag)


@SYSTEM_RULES.rule_on_node("numa_balancing", "host", "NUMA balancing", SYSTEM)
def numa_balancing(system: SystemFacts, facts: NodeFacts) -> RuleOutcome:
    """The kernel does not move pages between NUMA nodes: ranks are bound to theirs, and each move
    is a page fault."""
    nodes = None
    if facts.host is not None:
        nodes = facts.host.numa_nodes
    if nodes == 1:
        return not_applicable("one NUMA node")
    if system.numa_balancing is None or nodes is None or nodes < 2:
        return not_applicable("not reported by the kernel")
    if system.numa_balancing:
        advice = (
            "turn it off: it samples memory by page faults, while ranks are bound to their nodes "
            "anyway"
        )
        return warned(f"on, {nodes} nodes", "off", advice, fixes.NUMA_BALANCING)
    return passed("off")
