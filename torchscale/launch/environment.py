"""Environment variables of all ranks, whatever their cell."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from torchscale.util.processes.subprocesses import inherited_environment

_LOOPBACK = Path("/sys/class/net/lo")


def common_environment(
    threads_per_rank: int, network: Mapping[str, str] | None = None
) -> dict[str, str]:
    """This process's variables, thread counts, no network for model hubs. ``network``: those of
    ranks on several nodes, unless this process has them; by default all ranks are on this
    machine."""
    threads = str(threads_per_rank)
    environment = {
        **inherited_environment(),
        "OMP_NUM_THREADS": threads,
        "MKL_NUM_THREADS": threads,
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_VERBOSITY": "error",
        "TOKENIZERS_PARALLELISM": "false",
    }
    if network is not None:
        return {**network, **environment}
    if _LOOPBACK.exists():
        # All ranks are on this machine; gloo would otherwise resolve the host name.
        environment.setdefault("GLOO_SOCKET_IFNAME", "lo")
    return environment


def nccl_log_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Variables that make NCCL write by what it moves data: lines while it connects ranks, into
    their output, and none for a collective. Empty where ``environment`` has settings of its log."""
    if any(name.startswith("NCCL_DEBUG") for name in environment):
        return {}
    return {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,GRAPH"}


def cpu_environment(threads_per_rank: int, extra: Mapping[str, str]) -> dict[str, str]:
    """Environment of ranks on the CPUs of this machine whose cell needs no variables; ``extra`` are
    the user's."""
    return {**common_environment(threads_per_rank), **extra}
