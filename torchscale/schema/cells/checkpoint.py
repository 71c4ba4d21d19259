"""How fast a training state is saved and loaded, and how long training stops for it: the cell, and
what each rank measured in it."""

from __future__ import annotations

from functools import cached_property
from typing import Literal

from pydantic import Field

from torchscale.config.choices import DeviceRequest
from torchscale.config.strategy import strategy_label
from torchscale.schema.base import (
    SCHEMA_VERSION,
    Count,
    Frozen,
    PositiveCount,
    PositiveSeconds,
    Seconds,
    Share,
)
from torchscale.schema.cells.training import TrainingCell
from torchscale.schema.ident import content_hash, file_name
from torchscale.schema.launch.rank import HostLoad
from torchscale.schema.node.environment import RankIdentity


class CheckpointCell(Frozen):
    """Parameters and optimizer states of a training cell, saved and loaded.

    Attributes:
        training: What is trained.
        path: Directory on the disk or mount to be judged; ``None`` for the folder of the launch.
        repeats: Times that each figure is measured within a launch.
        asynchronous: Whether asynchronous saves are measured as well.
        steps: Steps before and after each asynchronous save, which those during it are held
            against.
        threads: Threads, and files, with which each rank writes.
    """

    kind: Literal["checkpoint"] = "checkpoint"
    training: TrainingCell
    path: str | None = None
    repeats: PositiveCount = 3
    asynchronous: bool = True
    steps: PositiveCount = 10
    threads: PositiveCount = 1

    @property
    def world_size(self) -> int:
        """World size of the training cell."""
        return self.training.world_size

    @property
    def device(self) -> DeviceRequest:
        """Device of the training cell."""
        return self.training.device

    @cached_property
    def id(self) -> str:
        """``checkpoint-gpt2-b8-n2-1a2b3c4d``."""
        name = file_name(self.training.model) or "model"
        content = self.model_dump(mode="json", exclude={"training"})
        digest = content_hash({**content, "training": self.training.id})
        return f"checkpoint-{name}-b{self.training.batch_size}-n{self.world_size}-{digest}"

    @property
    def title(self) -> str:
        """Short name for tables and live lines."""
        return f"checkpoint of {self.training.title}"

    @property
    def settings(self) -> tuple[str, ...]:
        """What sets it apart, in words: precision, strategy and place, which the title does not
        name."""
        cell, strategy = self.training, strategy_label(self.training.strategy)
        words = ((cell.precision, "fp32"), (strategy, "ddp"), (self.path, None))
        return (*(word for word, default in words if word and word != default), *cell.settings)

    @property
    def deterministic(self) -> bool:
        """Whether the training cell asks for deterministic algorithms."""
        return self.training.deterministic


class SaveSample(Frozen):
    """A synchronous save, as one rank saw it.

    Attributes:
        payload_bytes: What this rank wrote.
        write_seconds: How long this rank wrote, until the disk had its files (fsync).
        write_cpu_seconds: Processor time of the rank meanwhile, the kernel's copies included.
        seconds: The whole call, which all ranks begin together: planning, writing, and the metadata
            once every rank has written.
        stop_seconds: From the end of the last step until the next can begin.
    """

    payload_bytes: Count
    write_seconds: Seconds
    write_cpu_seconds: Seconds
    seconds: PositiveSeconds
    stop_seconds: PositiveSeconds


class AsyncSaveSample(Frozen):
    """An asynchronous save, as one rank saw it.

    Attributes:
        payload_bytes: What this rank wrote.
        stop_seconds: From the end of the last step until the next can begin: the state is copied
            meanwhile.
        durable_seconds: From the end of the last step until the disk had the checkpoint.
        before, during, after: Seconds of each step, with the question to all ranks whether the save
            goes on. Steps at whose end it was over on all ranks are in neither.
        host_bytes: Of the copy of this rank's state in the host's memory, which it writes from.
    """

    payload_bytes: Count
    stop_seconds: PositiveSeconds
    durable_seconds: PositiveSeconds
    before: tuple[PositiveSeconds, ...]
    during: tuple[PositiveSeconds, ...]
    after: tuple[PositiveSeconds, ...]
    host_bytes: Count


class LoadSample(Frozen):
    """A load, as one rank saw it.

    Attributes:
        payload_bytes: What this rank read from files.
        read_seconds: How long it read.
        read_cpu_seconds: Processor time of the rank meanwhile.
        seconds: The whole call, which all ranks begin together.
        resident_share: Share of the files' pages in this host's memory when it began; ``None``
            where the kernel does not say.
        device_bytes: What the kernel fetched from a device for this rank meanwhile; ``None`` where
            it does not count.
        restored: Whether what was loaded is what was saved, to the bit.
    """

    payload_bytes: Count
    read_seconds: Seconds
    read_cpu_seconds: Seconds
    seconds: PositiveSeconds
    resident_share: Share | None = None
    device_bytes: Count | None = None
    restored: bool


class CheckpointRank(RankIdentity):
    """What one rank measured: ``rank-R.json``.

    Attributes:
        place: Directory on the disk or mount.
        filesystem: Its type (``ext4``, ``nfs4``); empty where it is not known.
        state_bytes: Parameters, buffers and optimizer states of the whole model, as they were
            predicted before anything was written.
        saves, async_saves, loads: Each repeat.
        not_async: Why asynchronous saves were not measured; empty where they were, or not asked
            for.
        host_load: Of all that was measured.
    """

    kind: Literal["checkpoint"] = "checkpoint"
    schema_version: Count = SCHEMA_VERSION
    place: str
    filesystem: str = ""
    state_bytes: PositiveCount
    saves: tuple[SaveSample, ...] = Field(min_length=1)
    async_saves: tuple[AsyncSaveSample, ...] = ()
    loads: tuple[LoadSample, ...] = Field(min_length=1)
    not_async: str = ""
    host_load: HostLoad | None = None


class CheckpointResult(Frozen):
    """What all ranks measured of their checkpoints: records of those that left one, by rank."""

    kind: Literal["checkpoint"] = "checkpoint"
    ranks: tuple[CheckpointRank, ...] = ()
