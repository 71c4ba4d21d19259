"""A sweep of collectives: the cell, and what each rank measured in it."""

from __future__ import annotations

from functools import cached_property
from typing import Literal

from pydantic import Field

from torchscale.config.choices import DeviceRequest, ElementType, Operation
from torchscale.schema.base import SCHEMA_VERSION, Count, Frozen, PositiveCount, PositiveSeconds
from torchscale.schema.ident import content_hash
from torchscale.schema.launch.rank import HostLoad
from torchscale.schema.node.environment import RankIdentity
from torchscale.schema.node.probe import DriverFacts


class CollectivesCell(Frozen):
    """One sweep over operations, dtypes and sizes at one world size.

    Attributes:
        iterations, warmup: Calls in the timed loop of each size, and before it: fewer of large sizes
            where all would take longer than ``seconds``.
        seconds: Time of the sweep; ``None`` for no limit.
        algorithm, protocol: Forced on NCCL; ``None`` lets NCCL choose.
        logs_choices: NCCL logs the algorithm of every call, which slows small ones: its times are
            not shown.
    """

    kind: Literal["collectives"] = "collectives"
    operations: tuple[Operation, ...]
    dtypes: tuple[ElementType, ...]
    min_bytes: Count
    max_bytes: Count
    iterations: Count
    warmup: Count
    world_size: PositiveCount
    device: DeviceRequest
    seconds: PositiveSeconds | None = None
    algorithm: str | None = None
    protocol: str | None = None
    logs_choices: bool = False

    @cached_property
    def id(self) -> str:
        """``collectives-n8-1a2b3c4d``."""
        return f"collectives-n{self.world_size}-{content_hash(self.model_dump(mode='json'))}"

    @property
    def title(self) -> str:
        """Short name for tables and live lines."""
        return "algorithm choices" if self.logs_choices else "collectives"

    @property
    def settings(self) -> tuple[str, ...]:
        """What sets it apart, in words."""
        words = [f"algorithm {self.algorithm}"] if self.algorithm else []
        return (*words, *([f"protocol {self.protocol}"] if self.protocol else []), *self.dtypes)

    @property
    def deterministic(self) -> bool:
        """Nothing of a collective is set once in a process."""
        return False

    @property
    def sizes(self) -> tuple[int, ...]:
        """Bytes, doubling from the smallest to the largest."""
        found, size = [], self.min_bytes
        while size < self.max_bytes:
            found.append(size)
            size *= 2
        return (*found, self.max_bytes)


class CollectiveSample(Frozen):
    """One operation at one size, as one rank timed it; seconds.

    Attributes:
        payload_bytes: Payload as nccl-tests counts it: the buffer; for all-gather and
            reduce-scatter n times the shard; 0 for a barrier.
        elements: Number of elements of that payload.
        in_place: Whether the result overwrites the input.
        mean_seconds: Mean time of a call: one timed loop, divided by its calls.
        call_seconds: Times of calls timed one by one, in a second pass.
        wrong_elements: Elements of this rank's result that are not exactly what they should be;
            ``None`` where there is no result to check.
        host_load: Load of the host, that of the stretch of time in which it was measured, with its
            neighbours where it took too short to be read alone. ``None`` in records of versions
            that did not read it.
    """

    operation: Operation
    dtype: ElementType
    payload_bytes: Count
    elements: Count
    in_place: bool
    mean_seconds: PositiveSeconds
    call_seconds: tuple[PositiveSeconds, ...]
    wrong_elements: Count | None
    host_load: HostLoad | None = None


class PairSample(Frozen):
    """Messages from one rank to another while all others wait, timed by who receives; seconds.

    ``latency_seconds`` is of a message of the sweep's smallest size, ``seconds`` of one of its
    largest.
    """

    source: Count
    target: Count
    payload_bytes: Count
    seconds: PositiveSeconds
    latency_seconds: PositiveSeconds
    wrong_elements: Count


class CollectivesRank(RankIdentity):
    """What one rank measured in a sweep: ``rank-R.json``.

    ``unsupported`` names operations that the backend does not have, each with what it said, and of
    an operation the first size that does not fit into memory: no larger one was measured. On
    NVIDIA GPUs rank 0 adds what the driver says and the ``topology`` as ``nvidia-smi topo -m``
    prints it.
    """

    kind: Literal["collectives"] = "collectives"
    schema_version: Count = SCHEMA_VERSION
    samples: tuple[CollectiveSample, ...]
    pairs: tuple[PairSample, ...] = ()
    unsupported: dict[str, str] = Field(default_factory=dict)
    driver: DriverFacts | None = None
    topology: str = ""


class NcclLog(Frozen):
    """What NCCL wrote about its choices.

    Attributes:
        transports: How channels reach their peers: ``P2P/CUMEM``, ``SHM/direct``,
            ``NET/IB/0/GDRDMA`` …
        choices: Operation, payload in bytes, algorithm and protocol of each call, as rank 0 logged
            them.
        nvls: Whether multicast in the switch is available.
    """

    transports: tuple[str, ...] = ()
    choices: tuple[tuple[str, Count, str, str], ...] = ()
    nvls: bool = False


class CollectivesResult(Frozen):
    """What all ranks of a sweep of collectives measured.

    Attributes:
        ranks: Records of the ranks that left one, by rank.
        nccl_log: What NCCL logged about its choices, where it was asked to.
    """

    kind: Literal["collectives"] = "collectives"
    ranks: tuple[CollectivesRank, ...] = ()
    nccl_log: NcclLog | None = None
