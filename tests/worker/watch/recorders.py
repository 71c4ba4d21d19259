"""Flight recorders as a torch of another build has them."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from torchscale.worker.watch import rings

Dump = Callable[..., bytes]


def entry(number: int, operation: str, *, backend: str, **changes: Any) -> dict[str, Any]:
    """A collective under ``number`` as torch writes it; NCCL's is done and has no duration."""
    return {
        "record_id": number - 1,
        "pg_id": 0,
        "process_group": ("0", "default_pg"),
        "collective_seq_id": number,
        "p2p_seq_id": 0,
        "op_id": number,
        "profiling_name": f"{backend}:{operation}",
        "time_created_ns": 1_700_000_000_000_000_000 + number * 1_000_000,
        "input_sizes": [[256]],
        "input_dtypes": ["Float"],
        "output_sizes": [[256]],
        "output_dtypes": ["Float"],
        "state": "scheduled" if backend == "gloo" else "completed",
        "time_discovered_started_ns": None,
        "time_discovered_completed_ns": None,
        "retired": True,
        "timeout_ms": 600_000,
        "is_p2p": False,
        **changes,
    }


def dumps(*entries: dict[str, Any], version: str = "2.10") -> Dump:
    """A function that dumps a ring with these entries."""
    content = {
        "version": version,
        "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}},
        "pg_status": {},
        "entries": list(entries),
    }
    return lambda *_, **__: pickle.dumps(content)


def fails(*_: object, **__: object) -> bytes:
    """A function of a recorder that does not work."""
    raise RuntimeError("CUDA error")


def dumps_by_name(of_name: Mapping[str, Dump], otherwise: Dump) -> Dump:
    """torch 2.15's: a ring for each backend that is recorded by hooks, asked for by its name."""

    def function(*_: object, backend: str = "gloo") -> bytes:
        """dump(includeCollectives, includeStackTraces, onlyActive, backend: str = 'gloo')"""
        return of_name.get(backend, otherwise)()

    return function


def has_recorders(monkeypatch: pytest.MonkeyPatch, **functions: Dump) -> None:
    """From now on torch has these dump functions and no others, in this order."""
    build = SimpleNamespace(
        _C=SimpleNamespace(_distributed_c10d=SimpleNamespace(**functions)),
        cuda=torch.cuda,
        __version__=torch.__version__,
    )
    monkeypatch.setattr(rings, "torch", build)
