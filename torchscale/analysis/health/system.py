"""Health rules for the container's limits, the kernel's settings and the user's environment."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timezone

from torchscale.analysis.health import fixes
from torchscale.analysis.health.rule import not_applicable, passed, unknown, warned
from torchscale.schema.node.check import Check
from torchscale.schema.node.probe import NodeFacts
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
"""Before the first supported PyTorch (2.6) was released: no clock of a working machine shows it."""
_SLOW_GOVERNORS = ("powersave", "conservative", "ondemand", "schedutil")
"""All but ``performance`` raise the frequency only after a load is seen."""
_EAGER_PREFERENCES = ("(performance)", "(balance_performance)")
"""Drivers with a preference of their own (intel_pstate, amd-pstate) call every dynamic policy
powersave."""


def memory(facts: NodeFacts) -> Check:
    """Enough memory for one rank on each GPU, within the container's or job's limit."""
    rule, system = ("memory", "host", "available memory"), facts.system
    if system is None or system.memory_available_bytes is None:
        return unknown(rule, facts.unknown.get("system"))
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
        return warned(
            rule, seen, f"{format_bytes(needed)} for {ranks} ranks", advice, fixes.MEMORY_LIMIT
        )
    return passed(rule, seen)


def cpu_limit(facts: NodeFacts) -> Check:
    """No CPU quota below the CPUs that the process may use: the kernel would stop ranks within each
    period."""
    rule, system = ("cpu_limit", "host", "CPU quota"), facts.system
    if system is None:
        return unknown(rule, facts.unknown.get("system"))
    if system.cpu_limit is None:
        return passed(rule, "none")
    if facts.host is None or system.cpu_limit >= facts.host.cores:
        return passed(rule, f"{system.cpu_limit:g} CPUs")
    advice = (
        "threads of all ranks and loaders share the quota and are stopped when it is used; bind "
        "CPUs instead"
    )
    return warned(
        rule,
        f"{system.cpu_limit:g} of {facts.host.cores} CPUs",
        "no quota",
        advice,
        fixes.CPU_LIMIT,
    )


def tasks(facts: NodeFacts) -> Check:
    """Enough processes and threads for many ranks."""
    rule, system = ("tasks", "host", "processes and threads"), facts.system
    if system is None or system.tasks_limit is None:
        return unknown(rule, facts.unknown.get("system"))
    if system.tasks_limit < 0:
        return passed(rule, "unlimited")
    if system.tasks_limit >= MIN_TASKS:
        return passed(rule, f"{system.tasks_limit:,}")
    advice = "ulimit -u, pids.max of the container: threads cannot be started beyond it"
    return warned(rule, f"{system.tasks_limit:,}", f"at least {MIN_TASKS:,}", advice, fixes.TASKS)


def load(facts: NodeFacts) -> Check:
    """No other processes keep the CPUs busy."""
    rule, system = ("cpu_load", "host", "CPU load"), facts.system
    if system is None or system.load is None or facts.host is None:
        return unknown(rule, facts.unknown.get("system"))
    seen = f"{system.load:.1f} on {facts.host.cores} CPUs (mean of the last minute)"
    if system.load > max(1.0, MAX_LOAD_SHARE * facts.host.cores):
        advice = (
            "other processes distort every measurement on CPUs and slow data loading; wait, or end "
            "them"
        )
        return warned(
            rule,
            seen,
            f"at most {max(1.0, MAX_LOAD_SHARE * facts.host.cores):g}",
            advice,
            fixes.CPU_LOAD,
        )
    return passed(rule, seen)


def temporary_directory(facts: NodeFacts) -> Check:
    """Temporary files can be written: torch.compile and torchrun need them."""
    rule, system = ("temporary", "host", "temporary directory"), facts.system
    if system is None:
        return unknown(rule, facts.unknown.get("system"))
    if system.temporary_error is not None:
        seen = f"{system.temporary}: {system.temporary_error}"
        return warned(
            rule,
            seen,
            "a writable directory",
            "set TMPDIR to a writable directory",
            fixes.TEMPORARY,
        )
    free = system.temporary_free_bytes
    if free is None:
        return unknown(rule, None)
    seen = f"{system.temporary}: {format_bytes(free)} free"
    if free < MIN_TEMPORARY_BYTES:
        return warned(
            rule, seen, "at least 1 GiB free", "free space, or set TMPDIR", fixes.TEMPORARY
        )
    return passed(rule, seen)


def home_directory(facts: NodeFacts) -> Check:
    """Caches of Triton and model hubs can be written in the home directory."""
    rule, system = ("home", "host", "home directory"), facts.system
    if system is None:
        return unknown(rule, facts.unknown.get("system"))
    seen = system.home or "not set"
    if system.home_error is not None:
        advice = "set HOME to a writable directory: caches of Triton and model hubs lie there"
        return warned(
            rule, f"{seen}: {system.home_error}", "a writable directory", advice, fixes.HOME
        )
    return passed(rule, seen)


def text_locale(facts: NodeFacts) -> Check:
    """The locale exists and writes UTF-8: logs and names of models hold more than ASCII."""
    rule, system = ("locale", "host", "locale"), facts.system
    if system is None:
        return unknown(rule, facts.unknown.get("system"))
    if system.locale_error is not None:
        return warned(
            rule, system.locale_error, "an installed locale", "set LC_ALL=C.UTF-8", fixes.LOCALE
        )
    encoding = system.encoding or "unknown"
    if encoding.lower().replace("-", "") != "utf8":
        return warned(rule, encoding, "UTF-8", "set LC_ALL=C.UTF-8", fixes.LOCALE)
    return passed(rule, encoding)


def clock(facts: NodeFacts) -> Check:
    """The clock is plausible and, where other nodes can be reached over RDMA, follows a
    reference."""
    rule, system = ("clock", "host", "clock"), facts.system
    if system is None or system.time is None:
        return unknown(rule, facts.unknown.get("system"))
    now = datetime.fromtimestamp(system.time, timezone.utc)
    seen = f"{now:%Y-%m-%d %H:%M} UTC"
    if now < EARLIEST:
        advice = "set the clock: records are ordered by it, and certificates are refused"
        return warned(rule, seen, f"after {EARLIEST:%Y-%m-%d}", advice, fixes.CLOCK)
    if system.clock_synchronized is False:
        seen += ", not synchronized"
        if facts.host is not None and facts.host.rdma_ports:
            return warned(
                rule, seen, "synchronized", "logs of several nodes do not fit together", fixes.CLOCK
            )
    return passed(rule, seen)


def local_ports(facts: NodeFacts) -> Check:
    """Enough ports for the connections between ranks."""
    rule, system = ("local_ports", "host", "local ports"), facts.system
    if system is None:
        return unknown(rule, facts.unknown.get("system"))
    if system.local_ports is None:
        return not_applicable(rule, "not reported by the kernel")
    seen = f"{system.local_ports:,}"
    if system.local_ports < MIN_PORTS:
        advice = (
            "widen net.ipv4.ip_local_port_range: ranks fail with `Cannot assign requested address`"
        )
        return warned(rule, seen, f"at least {MIN_PORTS:,}", advice, fixes.PORTS)
    return passed(rule, seen)


def governor(facts: NodeFacts) -> Check:
    """CPUs run at full frequency at once."""
    rule, system = ("cpu_governor", "host", "CPU frequency governor"), facts.system
    if system is None:
        return unknown(rule, facts.unknown.get("system"))
    if not system.governors:
        return not_applicable(rule, "not reported by the kernel")
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
        return warned(rule, seen, "performance", advice, fixes.GOVERNOR)
    return passed(rule, seen)


def huge_pages(facts: NodeFacts) -> Check:
    """An allocation does not wait until the kernel has made huge pages, which takes milliseconds at
    random."""
    rule, system = ("huge_pages", "host", "huge page defragmentation"), facts.system
    if system is None:
        return unknown(rule, facts.unknown.get("system"))
    if system.huge_page_defrag is None:
        return not_applicable(rule, "not reported by the kernel")
    if system.huge_page_defrag == "always":
        advice = (
            "allocations wait for memory to be compacted: single slow steps on CPUs and in loaders"
        )
        return warned(rule, "always", "madvise or defer", advice, fixes.HUGE_PAGES)
    return passed(rule, system.huge_page_defrag)


def numa_balancing(facts: NodeFacts) -> Check:
    """The kernel does not move pages between NUMA nodes: ranks are bound to theirs, and each move
    is a page fault."""
    rule, system = ("numa_balancing", "host", "NUMA balancing"), facts.system
    if system is None:
        return unknown(rule, facts.unknown.get("system"))
    nodes = None
    if facts.host is not None:
        nodes = facts.host.numa_nodes
    if nodes == 1:
        return not_applicable(rule, "one NUMA node")
    if system.numa_balancing is None or nodes is None or nodes < 2:
        return not_applicable(rule, "not reported by the kernel")
    if system.numa_balancing:
        advice = (
            "turn it off: it samples memory by page faults, while ranks are bound to their nodes "
            "anyway"
        )
        return warned(rule, f"on, {nodes} nodes", "off", advice, fixes.NUMA_BALANCING)
    return passed(rule, "off")


SYSTEM_RULES: tuple[Callable[[NodeFacts], Check], ...] = (
    memory,
    cpu_limit,
    tasks,
    load,
    temporary_directory,
    home_directory,
    text_locale,
    clock,
    local_ports,
    governor,
    huge_pages,
    numa_balancing,
)
