"""What an acceptance asks of a node before it says *keep*."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

from pydantic import Field

from torchscale.schema.base import Frozen


class Subject(str, Enum):
    """A kind of figures, or another thing that can be looked at."""

    COMPUTE = "compute"
    MEMORY = "memory"
    COPIES = "copies"
    LINKS = "links"
    DISK = "disk"
    TRAINING = "training"
    KERNEL_LOG = "kernel log"


Percent = Annotated[float, Field(ge=0, lt=100, strict=True)]

_MOST_MINUTES = 7 * 24 * 60
MIN_ROUNDS = 3
"""The fewest rounds that are judged: two have an interval of twelve standard errors."""


class Policy(Frozen):
    """What *keep* asks for, and from where on a part is tested again or returned.

    Attributes:
        looked_at: What must have been measured or read.
        burn_in_minutes: Minutes of burn-in at least; 0 asks for none.
        rounds: Undisturbed rounds at least. Three may agree by chance.
        compared: Whether every figure must lie within a limit: documented, baseline or peers.
        baseline_loss_percent: A figure further than this below its baseline is low. From session
            to session the figures of a sound machine move by 1 to 3 %.
        flap_percent: A figure with two levels further apart than this is tested again. Of a disk
            and of the cores of a virtual machine, which are also others', limits alone judge the
            lower level.
        return_percent: A part that is slow because of the host is returned from this far below its
            reference on. Sound cards of one name differ by some 8 % in large clusters (Sinha et al.
            2022, "Not All GPUs Are Created Equal").
    """

    looked_at: tuple[Subject, ...] = (
        Subject.COMPUTE,
        Subject.MEMORY,
        Subject.LINKS,
        Subject.DISK,
        Subject.TRAINING,
    )
    burn_in_minutes: Annotated[float, Field(ge=0, le=_MOST_MINUTES, strict=True)] = 0.0
    rounds: Annotated[int, Field(ge=MIN_ROUNDS, le=10_000, strict=True)] = 5
    compared: Annotated[bool, Field(strict=True)] = False
    baseline_loss_percent: Percent = 5.0
    flap_percent: Percent = 25.0
    return_percent: Percent = 10.0
