"""``python -m torchscale.worker.probe DIRECTORY`` prints the node's facts as JSON, one line per group of facts.

Each line holds all facts so far, and the last one is the whole: what a crash or a hang leaves behind is still known.
Each group of facts stands alone: one that cannot be looked at is named with its reason and spoils no other. torch is
imported inside its own group, so that a broken torch is a fact and not a traceback.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from torchscale.schema.base import Frozen
from torchscale.schema.probe import PROBE_GROUPS, NodeFacts, SoftwareFacts
from torchscale.worker.probe_gpu import driver_facts
from torchscale.worker.probe_host import disk_facts, host_facts, nsys_facts


def probe(directory: Path) -> Iterator[NodeFacts]:
    """The facts after each group, in the order of ``PROBE_GROUPS``; the collective needs processes of its own."""
    looks: dict[str, Callable[[], Frozen]] = {
        "host": host_facts,
        "nsys": nsys_facts,
        "disk": lambda: disk_facts(directory),
        "driver": driver_facts,
        "software": software_facts,
    }
    found: dict[str, Frozen] = {}
    unknown: dict[str, str] = {}
    for name in PROBE_GROUPS:
        try:
            found[name] = looks[name]()
        except Exception as error:  # noqa: BLE001 - whatever a driver or a broken install raises is this group's fact
            unknown[name] = f"{type(error).__name__}: {error}"[:500]
        yield NodeFacts.model_validate({**found, "unknown": unknown})


def software_facts() -> SoftwareFacts:
    """Python, torch and what torch was built with."""
    python = platform.python_version()
    try:
        import torch  # noqa: PLC0415 - a torch that cannot be imported is a fact

        available = bool(torch.cuda.is_available())
        return SoftwareFacts(
            python=python,
            torch=str(torch.__version__),
            cuda_built=torch.version.cuda,
            cuda_available=available,
            cuda_devices=torch.cuda.device_count(),
            nccl=_nccl_version() if available else None,
        )
    except Exception as error:  # noqa: BLE001 - shared libraries fail in many ways
        return SoftwareFacts(python=python, torch_error=f"{type(error).__name__}: {error}"[:500])


def _nccl_version() -> str | None:
    from torchscale.worker.environment import nccl_version  # noqa: PLC0415 - imports torch

    return nccl_version()


if __name__ == "__main__":
    for facts in probe(Path(sys.argv[1] if len(sys.argv) > 1 else os.curdir)):
        sys.stdout.write(facts.model_dump_json() + "\n")
        sys.stdout.flush()
