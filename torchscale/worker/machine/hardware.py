"""Peak rates of a device: matrix products, copies, disk. All ranks measure the same operation at
the same time."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter

import torch
from torch import Tensor

from torchscale.catalog.devices import MIN_CAPABILITY
from torchscale.config.choices import MatmulType
from torchscale.schema.cells.hardware import (
    CopySample,
    DiskSample,
    HardwareCell,
    HardwareRank,
    MatmulSample,
)
from torchscale.schema.launch.progress import Progress
from torchscale.schema.launch.task import LaunchTask
from torchscale.util.units import format_bytes
from torchscale.worker.identity import rank_identity
from torchscale.worker.measure.clock import make_clock
from torchscale.worker.measure.host import host_load_meter
from torchscale.worker.measure.page_cache import drop_from_cache, resident_share
from torchscale.worker.process_group import Ranks
from torchscale.worker.rank_files import RankFiles

_GROUP_SECONDS = 1e-3
"""Calls are timed in groups of at least this length: a mark takes microseconds, which is less than
1 % of it."""
_MIN_TIMES, _MAX_TIMES = 5, 200
"""Five samples are the fewest with a useful median; beyond 200, a longer measurement adds nothing
to it."""
_COLD_TIMES = 5
"""Each first overwrites the caches, which takes longer than the call; a median needs no more."""
_CACHE_BYTES = 256 << 20
"""Written to empty the caches: larger than the last-level cache of GPUs (50 MB on an H100) and of
most CPUs."""
_LONGEST_PRODUCT_SECONDS = 2.0
"""A product is timed at least five times warm and five times cold: at 2 s each a shape would take
20 s."""
_DISK_CHUNK = 8 << 20
"""Large enough that system calls do not limit a fast disk, small against any file that is
measured."""
_HOST_COPY_BYTES = 256 << 20
"""Maximum memory that is pinned: a transfer reaches its full rate far below it."""
_DTYPES: dict[MatmulType, torch.dtype] = {
    "fp64": torch.float64,
    "fp32": torch.float32,
    "tf32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
}


def measure_hardware(
    task: LaunchTask, cell: HardwareCell, ranks: Ranks, files: RankFiles
) -> HardwareRank:
    """Measure every rate that the cell asks for. Returns the record of this rank; dtypes that the
    device cannot multiply are listed in it with the error.

    Raises:
        OSError: the disk path cannot be written.
    """
    bench, load = _Bench(cell, ranks, files), host_load_meter(task)
    unsupported: dict[str, str] = {}
    matmuls: list[MatmulSample] = []
    for dtype in cell.matmul_dtypes:
        if lacking := _lacking(dtype, ranks.device):
            unsupported[dtype] = lacking
            continue
        ranks.barrier()
        try:
            matmuls += bench.products(dtype)
        except (RuntimeError, NotImplementedError) as error:
            unsupported[dtype] = str(error).partition("\n")[0][:200]
    copies = [sample for kind in (bench.device_copies, bench.host_copies) for sample in kind()]
    ranks.barrier()
    if ranks.rank == 0:
        for index in dict.fromkeys(task.device_indices):
            try:
                copies += bench.peer_copy(index)
            except RuntimeError as error:  # in exclusive mode a GPU takes no second process
                unsupported[f"copy to GPU {index}"] = str(error).partition("\n")[0][:200]
    host_load = load.read()
    disk = None
    if cell.disk_path is not None and ranks.rank == 0:
        files.progress(Progress(phase="measuring", detail="disk"))
        disk = measure_disk(Path(cell.disk_path), cell.disk_bytes)
    ranks.barrier()
    return HardwareRank(
        **dict(rank_identity(task, ranks)),
        matmuls=tuple(matmuls),
        copies=tuple(copies),
        disk=disk,
        unsupported=unsupported,
        host_load=host_load,
    )


class _Bench:
    """Times operations on one device."""

    def __init__(self, cell: HardwareCell, ranks: Ranks, files: RankFiles) -> None:
        self._cell, self._ranks, self._files = cell, ranks, files
        self._device = ranks.device
        self._clock = make_clock(ranks.device, sync_cuda=False)

    def products(self, dtype: MatmulType) -> Iterator[MatmulSample]:
        """Time products of every shape, smallest first; shapes that would take more than 2 s each
        are left out."""
        sizes = sorted(self._cell.matmul_sizes)
        shapes = [(size, size, size) for size in sizes]
        if sizes[-1] >= 4:
            shapes.append((sizes[-1], sizes[-1] // 4, sizes[-1] // 4))
        rate = 0.0
        for m, n, k in shapes:
            operations = 2.0 * m * n * k
            if rate and operations / rate > _LONGEST_PRODUCT_SECONDS:
                continue
            self._report_progress(f"{dtype} {m}×{n}×{k}")
            with _tf32(dtype == "tf32"):
                multiply = _product(dtype, m, n, k, self._device)
                warm = self._times(multiply)
                cold = self._cold_times(multiply)
            rate = max(rate, operations / min(warm))
            yield MatmulSample(dtype=dtype, m=m, n=n, k=k, warm_seconds=warm, cold_seconds=cold)

    def device_copies(self) -> Iterator[CopySample]:
        """Time a copy within the device's memory."""
        self._report_progress(f"copy of {format_bytes(self._cell.copy_bytes)}")
        source = torch.randint(
            0, 255, (self._cell.copy_bytes,), dtype=torch.uint8, device=self._device
        )
        target = torch.empty_like(source)
        self._ranks.barrier()
        yield self._copy("device", lambda: target.copy_(source))

    def host_copies(self) -> Iterator[CopySample]:
        """Time copies between host and GPU in both directions, with pinned and with pageable
        memory."""
        if self._device.type != "cuda":
            return
        count = min(self._cell.copy_bytes, _HOST_COPY_BYTES)
        on_device = torch.empty(count, dtype=torch.uint8, device=self._device)
        for pinned in (True, False):
            self._report_progress("host and device, " + ("pinned" if pinned else "pageable"))
            pageable = torch.randint(0, 255, (count,), dtype=torch.uint8)
            on_host = pageable.pin_memory() if pinned else pageable
            self._ranks.barrier()
            to_device = self._copy(
                "host_to_device", functools.partial(on_device.copy_, on_host, non_blocking=True)
            )
            self._ranks.barrier()
            to_host = self._copy(
                "device_to_host", functools.partial(on_host.copy_, on_device, non_blocking=True)
            )
            for sample in (to_device, to_host):
                yield sample.model_copy(update={"payload_bytes": count, "pinned": pinned})

    def peer_copy(self, index: int) -> Iterator[CopySample]:
        """Time a copy from this GPU to another of the launch."""
        if self._device.type != "cuda" or index == self._device.index:
            return
        self._report_progress(f"GPU {self._device.index} to {index}")
        source = torch.empty(self._cell.copy_bytes, dtype=torch.uint8, device=self._device)
        target = torch.empty_like(source, device=torch.device("cuda", index))
        sample = self._copy("device_to_device", functools.partial(target.copy_, source))
        yield sample.model_copy(update={"peer": index})

    def _copy(self, kind: str, call: Callable[[], object]) -> CopySample:
        return CopySample.model_validate(
            {"kind": kind, "payload_bytes": self._cell.copy_bytes, "seconds": self._times(call)}
        )

    def _times(self, call: Callable[[], object]) -> tuple[float, ...]:
        """Seconds of a call, repeated for about ``cell.seconds`` after an untimed first call."""
        call()
        self._clock.mark()
        call()
        self._clock.mark()
        estimate = max(self._clock.read()[-1], 1e-7)
        group = max(1, round(_GROUP_SECONDS / estimate))
        times = min(_MAX_TIMES, max(_MIN_TIMES, int(self._cell.seconds / (estimate * group))))
        self._clock.mark()
        for _ in range(times):
            for _ in range(group):
                call()
            self._clock.mark()
        return tuple(
            (after - before) / group for before, after in itertools.pairwise(self._clock.read())
        )

    def _cold_times(self, call: Callable[[], object]) -> tuple[float, ...]:
        """Seconds of single calls, with the caches overwritten before each."""
        waste = torch.empty(_CACHE_BYTES, dtype=torch.uint8, device=self._device)
        for _ in range(_COLD_TIMES):
            waste.fill_(1)
            self._clock.mark()
            call()
            self._clock.mark()
        marks = self._clock.read()
        return tuple(after - before for before, after in zip(marks[::2], marks[1::2], strict=True))

    def _report_progress(self, what: str) -> None:
        self._files.progress(Progress(phase="measuring", detail=what))


def _lacking(dtype: MatmulType, device: torch.device) -> str | None:
    """Why this device's products in ``dtype`` are not measured; ``None`` where it has the type, or
    torch refuses by itself what it lacks."""
    needed = MIN_CAPABILITY.get(dtype)
    if device.type != "cuda" or needed is None:
        return None
    capability = torch.cuda.get_device_capability(device)
    if capability >= needed:
        return None
    return (
        f"{dtype} needs compute capability {needed[0]}.{needed[1]}; this device has "
        f"{capability[0]}.{capability[1]}"
    )


def _product(
    dtype: MatmulType, m: int, n: int, k: int, device: torch.device
) -> Callable[[], Tensor]:
    """An m×k times a k×n matrix of normally distributed numbers: zeros would take less power, and
    run faster."""
    if dtype == "fp8":
        unit_scale = torch.ones((), device=device)
        left8 = torch.randn(m, k, device=device).to(torch.float8_e4m3fn)
        right8 = (
            torch.randn(n, k, device=device).to(torch.float8_e4m3fn).t()
        )  # the hardware wants it by columns
        return lambda: torch._scaled_mm(
            left8,
            right8,
            scale_a=unit_scale,
            scale_b=unit_scale,
            out_dtype=torch.bfloat16,
            use_fast_accum=True,
        )
    left = torch.randn(m, k, device=device).to(_DTYPES[dtype])
    right = torch.randn(k, n, device=device).to(_DTYPES[dtype])
    out = torch.empty(m, n, dtype=left.dtype, device=device)
    return lambda: torch.mm(left, right, out=out)


@contextlib.contextmanager
def _tf32(wanted: bool) -> Iterator[None]:
    """Allow or forbid tf32 in fp32 products within this context."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if wanted else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def measure_disk(directory: Path, size: int) -> DiskSample:
    """Write a file of ``size`` bytes with fsync, drop it from the page cache, read it back, and
    remove it.

    Raises:
        OSError: the file cannot be written in ``directory``.
    """
    path = directory / f".torchscale-disk-{os.getpid()}"
    chunk = os.urandom(min(_DISK_CHUNK, size))
    buffer = bytearray(len(chunk))
    try:
        began = perf_counter()
        with path.open("wb", buffering=0) as file:
            for start in range(0, size, len(chunk)):
                file.write(memoryview(chunk)[: size - start])
            os.fsync(file.fileno())
        written = perf_counter() - began
        drop_from_cache([path])
        resident = resident_share([path])
        began = perf_counter()
        with path.open("rb", buffering=0) as file:
            while file.readinto(buffer):
                pass
        read = perf_counter() - began
    finally:
        path.unlink(missing_ok=True)
    return DiskSample(
        path=str(directory),
        payload_bytes=size,
        write_seconds=written,
        read_seconds=read,
        resident_share=resident,
    )
