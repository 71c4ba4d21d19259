"""What processes of a job leave as they end, as their collectors write it."""

from __future__ import annotations

from typing import Any

from tests.features.watch.job.folders import FACTS
from torchscale.features.watch.ends.failed_attempt import FailedAttempt
from torchscale.schema.watch.ends import ProcessEnd
from torchscale.schema.watch.rank import RankFacts

LOST = (
    "[pair.cc:553] Connection closed by peer [127.0.0.1]:30348. This is typically caused by a "
    "remote worker crashing."
)
TRAIN = "/home/me/train.py"


def left(kind: str, rank: int | None, time: float, **fields: Any) -> ProcessEnd:
    """A file of a process whose PID is 100 and its rank."""
    known = {"pid": 100 + (rank or 0), "host": "here", "rank": rank, "world_size": 4}
    return ProcessEnd.model_validate({"format": 1, "kind": kind, "time": time, **known, **fields})


def raised(rank: int | None, time: float, type: str, text: str, **fields: Any) -> ProcessEnd:
    """An exception in ``load`` of ``train.py``."""
    frames = ((TRAIN, 30, "<module>"), (TRAIN, 12, "load"))
    return left("raised", rank, time, type=type, text=text, **{"frames": frames, **fields})


def exited(rank: int | None, time: float, code: int, **fields: Any) -> ProcessEnd:
    """What torchrun saw."""
    return left("exited", rank, time, exit_code=code, **fields)


def facts(rank: int, **fields: Any) -> RankFacts:
    """Of a rank that has reported."""
    sizes = {"rank": rank, "world_size": 4, "local_world_size": 4}
    return RankFacts.model_validate({**FACTS, **sizes, "pid": 100 + rank, **fields})


def attempt(*ends: ProcessEnd, **fields: Any) -> FailedAttempt:
    """Of four ranks, whose program exits with 1."""
    known = {"number": 0, "ends": ends, "exit_code": 1, "program": "train.py", **fields}
    return FailedAttempt(**known)
