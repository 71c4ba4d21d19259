"""What a burn-in saw: each rank's parts of each round, and what they add up to."""

from __future__ import annotations

from torchscale.schema.base import (
    Count,
    Frozen,
    IntervalEnd,
    Name,
    NotNegative,
    Positive,
    Real,
    Seconds,
)
from torchscale.schema.launch.telemetry import GpuUse


class WrongValue(Frozen):
    """The first wrong element of a part.

    Attributes:
        offset_bytes: Distance from the start of the buffer.
        address: Address of the element, in the address space of the process; for a GPU, a device
            address.
        expected, seen: The bytes of the element as hexadecimal numbers.
    """

    offset_bytes: Count
    address: Count
    expected: str
    seen: str


class PartResult(Frozen):
    """One part of a round on one rank. ``work`` is in ``unit``: floating-point operations or
    bytes."""

    part: str
    unit: str
    seconds: Positive
    work: Positive
    wrong: Count = 0
    first: WrongValue | None = None


class BurnInRound(Frozen):
    """One round of one rank, a line of its file.

    Attributes:
        time: Its begin, in seconds since the rank's first round.
        seconds: How long it took, with comparisons and waits.
    """

    rank: Count
    device: Name
    number: Count
    time: NotNegative
    seconds: Positive
    parts: tuple[PartResult, ...]


class WrongResult(Frozen):
    """A part that gave wrong elements: where, how many, and the first of them."""

    rank: Count
    device: Name
    round: Count
    part: str
    wrong: Count
    first: WrongValue | None = None


class PartRate(Frozen):
    """The rate of one part on one rank over the whole burn-in.

    Attributes:
        rate: Work per second, mean over rounds by time.
        change: Relative change from start to end, by a line through the logarithms of the rates.
        change_low, change_high: 95 % interval of the change; ``None`` with too few rounds for one.
    """

    rank: Count
    device: Name
    part: str
    unit: str
    rounds: Count
    rate: Real
    change: Real | None = None
    change_low: IntervalEnd | None = None
    change_high: IntervalEnd | None = None


class BurnIn(Frozen):
    """A whole burn-in.

    Attributes:
        backend: Backend of the collective.
        seconds: Time from the first to the last round.
        rounds: Number of rounds that every rank finished.
        interrupted: Ended by the user before its time.
        error: Why it ended without being asked to; ``None`` where it did not.
        product_share: Share of the time that products of matrices took, over all ranks; ``None``
            without a round.
        wrong_results: How many parts gave wrong elements; ``wrong`` holds the first of them.
        gpus: What the driver reported meanwhile.
    """

    backend: str
    world_size: Count
    seconds: Seconds
    rounds: Count
    interrupted: bool = False
    error: str | None = None
    product_share: Real | None = None
    wrong_results: Count = 0
    wrong: tuple[WrongResult, ...] = ()
    rates: tuple[PartRate, ...] = ()
    gpus: tuple[GpuUse, ...] = ()
