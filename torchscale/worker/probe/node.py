"""The node's facts, group by group.

Groups are independent: one that fails is listed with its reason, and the others are collected.
torch is imported inside its own group, so that a broken torch is reported as a fact and not as a
traceback.
"""

from __future__ import annotations

import platform
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

from torchscale.schema.base import Frozen
from torchscale.schema.node.probe import PROBE_GROUPS, NodeFacts, SoftwareFacts
from torchscale.util.installation import install_command
from torchscale.util.namesake import namesakes, repairs
from torchscale.worker.probe.gpu import driver_facts
from torchscale.worker.probe.host import disk_facts, host_facts, nsys_facts
from torchscale.worker.probe.kernel_log import kernel_log_facts
from torchscale.worker.probe.system import system_facts


def probe(directory: Path) -> Iterator[NodeFacts]:
    """Yields the facts after each group, in the order of ``PROBE_GROUPS``. ``directory`` is where
    the disk is probed. The collective is not among them: it needs two processes."""
    collectors: dict[str, Callable[[], Frozen]] = {
        "host": host_facts,
        "system": system_facts,
        "kernel": kernel_log_facts,
        "nsys": nsys_facts,
        "disk": lambda: disk_facts(directory),
        "driver": driver_facts,
        "software": software_facts,
    }
    facts: dict[str, Frozen] = {}
    unknown: dict[str, str] = {}
    for name in PROBE_GROUPS:
        try:
            facts[name] = collectors[name]()
        except Exception as error:  # noqa: BLE001 - whatever a driver or a broken install raises is this group's fact
            unknown[name] = " ".join(f"{type(error).__name__}: {error}".split())[:500]
        yield NodeFacts.model_validate({**facts, "unknown": unknown})


def software_facts() -> SoftwareFacts:
    """Versions of Python, torch, CUDA and NCCL; ``torch_error`` where torch cannot be imported,
    ``cuda_error`` where it was built with CUDA and cannot use it."""
    others = namesakes()
    return _torch_facts().model_copy(
        update={
            "namesakes": others,
            "namesake_fixes": repairs(others),
            "torch_command": install_command("train"),
        }
    )


def _torch_facts() -> SoftwareFacts:
    """All but what else is installed."""
    python = platform.python_version()
    try:
        import torch  # noqa: PLC0415 - a torch that cannot be imported is a fact

        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            available = bool(torch.cuda.is_available())  # says in a warning why not
        facts = SoftwareFacts(
            python=python,
            torch=str(torch.__version__),
            cuda_built=torch.version.cuda,
            rocm_built=torch.version.hip,
            cuda_available=available,
            cuda_devices=torch.cuda.device_count(),
        )
        if available:
            devices = {"cuda_uuids": _cuda_uuids(), "nccl": _nccl_version()}
            return facts.model_copy(update=devices)
        if torch.version.cuda is None:
            return facts
        return facts.model_copy(update={"cuda_error": _cuda_error(caught)})
    except Exception as error:  # noqa: BLE001 - shared libraries fail in many ways
        return SoftwareFacts(python=python, torch_error=f"{type(error).__name__}: {error}"[:500])


def _cuda_error(caught: list[warnings.WarningMessage]) -> str | None:
    """What CUDA said when torch asked for its devices; ``None`` where it said nothing."""
    import torch  # noqa: PLC0415 - imported by the caller

    texts = [str(warning.message) for warning in caught]
    try:
        torch.cuda.init()  # type: ignore[no-untyped-call]
    except Exception as error:  # noqa: BLE001 - whatever the driver makes torch raise is the reason
        texts.append(str(error))
    # The text names the error in its last sentence: "… Error 802: system not yet initialized
    # (Triggered internally …)".
    plain = [
        " ".join(text.partition("(Triggered internally")[0].split())
        for text in texts
        if text.strip()
    ]
    if plain:
        return max(plain, key=lambda text: "Error " in text)[-500:]
    return None


def _cuda_uuids() -> tuple[str, ...]:
    """UUIDs of the devices in torch's order; empty where this torch does not tell them."""
    from torchscale.worker.probe.devices import collect_devices  # noqa: PLC0415 - imports torch

    uuids = [info.uuid for info in collect_devices()]
    if None not in uuids:
        return tuple(uuid for uuid in uuids if uuid is not None)
    return ()


def _nccl_version() -> str | None:
    from torchscale.worker.probe.devices import nccl_version  # noqa: PLC0415 - imports torch

    return nccl_version()
