"""``python -m torchscale.worker.probe DIRECTORY`` prints the node's facts as one JSON line.

Each group of facts stands alone: one that cannot be looked at is named with its reason and spoils no other. torch is
imported inside its own group, so that a broken torch is a fact and not a traceback.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from torchscale.schema.probe import NodeFacts, SoftwareFacts
from torchscale.worker.probe_gpu import driver_facts
from torchscale.worker.probe_host import disk_facts, host_facts, nsys_facts

T = TypeVar("T")


def probe(directory: Path) -> NodeFacts:
    """All facts but the collective's, which needs processes of its own."""
    unknown: dict[str, str] = {}

    def group(name: str, look: Callable[[], T]) -> T | None:
        try:
            return look()
        except Exception as error:  # noqa: BLE001 - whatever a driver or a broken install raises is this group's fact
            unknown[name] = f"{type(error).__name__}: {error}"[:500]
            return None

    return NodeFacts(
        software=group("software", software_facts),
        driver=group("driver", driver_facts),
        host=group("host", host_facts),
        disk=group("disk", lambda: disk_facts(directory)),
        nsys=group("nsys", nsys_facts),
        unknown=unknown,
    )


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
            nccl=_nccl_version() if available else None,
        )
    except Exception as error:  # noqa: BLE001 - shared libraries fail in many ways
        return SoftwareFacts(python=python, torch_error=f"{type(error).__name__}: {error}"[:500])


def _nccl_version() -> str | None:
    from torchscale.worker.environment import nccl_version  # noqa: PLC0415 - imports torch

    return nccl_version()


if __name__ == "__main__":
    sys.stdout.write(probe(Path(sys.argv[1] if len(sys.argv) > 1 else os.curdir)).model_dump_json() + "\n")
