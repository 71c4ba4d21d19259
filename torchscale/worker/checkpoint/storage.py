"""torch's readers and writers of checkpoints on a file system, with the time of what they do."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter
from typing import Any

from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.planner import LoadPlan, LoadPlanner, SavePlan, SavePlanner
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

from torchscale.worker.checkpoint.state import State, tensors_of
from torchscale.worker.memory.model_memory import tensor_bytes


class TimedWriter(FileSystemWriter):
    """Writes with fsync: a file counts as written when the disk has it.

    Attributes:
        payload_bytes: What this rank has written.
        seconds: How long it wrote.
        staged_bytes: Of the copy in the host's memory that an asynchronous save writes from.
    """

    def __init__(self, directory: Path, *, threads: int) -> None:
        super().__init__(directory, sync_files=True, thread_count=threads)
        self.payload_bytes, self.seconds, self.staged_bytes = 0, 0.0, 0

    def stage(self, state_dict: State) -> State:
        """Copy the state, so that training can go on."""
        staged: State = super().stage(state_dict)
        self.staged_bytes = tensor_bytes(tensors_of(staged))
        return staged

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """Write this rank's part of the plan; it is on the disk when this returns."""
        began = perf_counter()
        written = super().write_data(plan, planner)
        results = written.wait()
        self.seconds += perf_counter() - began
        self.payload_bytes += sum(result.size_in_bytes for result in results)
        return written


class TimedReader(FileSystemReader):
    """Reads what this rank needs.

    Attributes:
        payload_bytes: What this rank has read.
        seconds: How long it read.
    """

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.payload_bytes, self.seconds = 0, 0.0

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Read this rank's part of the plan into its tensors."""
        began = perf_counter()
        done = super().read_data(plan, planner)
        done.wait()
        self.seconds += perf_counter() - began
        lengths: dict[tuple[str, int], int] = {}
        for item in plan.items:
            where: Any = self.storage_data[item.storage_index]
            lengths[where.relative_path, where.offset] = where.length
        self.payload_bytes += sum(lengths.values())
        return done
