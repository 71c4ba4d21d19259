"""DistributedDataParallel: gradients are averaged over ranks in buckets while the backward pass
still runs."""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Container, Iterator
from time import perf_counter

import torch
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.device_mesh import DeviceMesh
from torch.nn.parallel import DistributedDataParallel

from torchscale.config.strategies.data_parallel import CommHook, Ddp
from torchscale.worker.dtensors import as_dtensor
from torchscale.worker.parallel.interface import Parallel
from torchscale.worker.process_group import Ranks

_READY_STEPS = 50
"""Enough for a median; steps before them ran with buckets that DDP had not yet put into the order
of the gradients."""


def wrap(module: nn.Module, options: Ddp, ranks: Ranks) -> Parallel:
    """``module``, which is already on the rank's device, replicated over all ranks by DDP."""
    device_ids = None if ranks.device.type == "cpu" else [ranks.device.index]
    model = DistributedDataParallel(
        module,
        device_ids=device_ids,
        bucket_cap_mb=options.bucket_cap_mb,
        static_graph=options.static_graph,
        gradient_as_bucket_view=options.gradient_as_bucket_view,
    )
    times = ReadyTimes() if ranks.device.type == "cpu" and not options.exchanges_gradients else None
    _register_hook(model, options.comm_hook, ranks, times)
    return Parallel(
        module,
        model,
        no_sync=model.no_sync,
        quiet=True,
        gradients_first=True,
        bucket_bytes=lambda: _bucket_bytes(model),
        bucket_ready_seconds=None if times is None else times.medians,
    )


def replicate(module: nn.Module, mesh: DeviceMesh) -> DistributedDataParallel:
    """``module`` replicated over one dimension of a mesh. DDP gets the mesh and not its process
    group, since the module's parameters may be DTensors."""
    return DistributedDataParallel(module, device_mesh=mesh)


def replicate_beside_experts(
    module: nn.Module, experts: list[str], mesh: DeviceMesh
) -> DistributedDataParallel:
    """``module`` replicated over one dimension of a mesh, without the parameters of ``experts``,
    which differ between ranks."""
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(module, experts)  # type: ignore[no-untyped-call]
    if any(as_dtensor(one) is not None for one in _other_parameters(module, experts)):
        return DistributedDataParallel(module, device_mesh=mesh)
    return DistributedDataParallel(module, process_group=mesh.get_group())


def _other_parameters(module: nn.Module, names: Container[str]) -> Iterator[nn.Parameter]:
    return (one for name, one in module.named_parameters() if name not in names)


class ReadyTimes:
    """When each bucket of a step is ready, after the first one of the step. On a CPU alone: on a
    device, the host is ahead of the kernels."""

    def __init__(self) -> None:
        self._steps: deque[list[float]] = deque(maxlen=_READY_STEPS)

    def note(self, *, is_first: bool) -> None:
        """A bucket is ready now."""
        if is_first or not self._steps:
            self._steps.append([])
        self._steps[-1].append(perf_counter())

    def medians(self) -> tuple[float, ...]:
        """Median times over the last steps of as many buckets as the last one had; empty before
        any."""
        if not self._steps:
            return ()
        whole = [step for step in self._steps if len(step) == len(self._steps[-1])]
        return tuple(
            statistics.median(step[index] - step[0] for step in whole)
            for index in range(len(whole[-1]))
        )


def _register_hook(
    model: DistributedDataParallel, hook: CommHook, ranks: Ranks, times: ReadyTimes | None
) -> None:
    if hook == "fp16":
        model.register_comm_hook(None, default_hooks.fp16_compress_hook)
    elif hook == "bf16":
        model.register_comm_hook(None, default_hooks.bf16_compress_hook)
    elif hook == "powersgd":
        # Rank 1 compresses most. PowerSGD may start only once DDP has rebuilt its buckets; ten
        # steps are well beyond.
        state = powerSGD_hook.PowerSGDState(
            process_group=None, matrix_approximation_rank=1, start_powerSGD_iter=10
        )
        one_by_one = ranks.device.type == "cpu"
        compress = powerSGD_hook.powerSGD_hook
        if one_by_one:
            model.register_comm_hook(state, lambda *bucket: _waited(compress(*bucket)))
        else:
            model.register_comm_hook(state, compress)
    elif hook == "noop":
        # DDP refuses a hook whose annotations are text, as all are here; a lambda has none.
        model.register_comm_hook(
            None, lambda _, bucket: _completed(bucket.buffer(), bucket.index(), times)
        )


def _waited(future: torch.futures.Future[Tensor]) -> torch.futures.Future[Tensor]:
    """A bucket after its communication. PowerSGD's further all-reduces of a bucket are called by
    gloo's threads as the ones before them complete: with several buckets under way, in another
    order on each rank, so that ranks hang or crash. NCCL's are called by the thread of the backward
    pass."""
    done: torch.futures.Future[Tensor] = torch.futures.Future()
    done.set_result(future.wait())
    return done


def _completed(
    buffer: Tensor, index: int, times: ReadyTimes | None
) -> torch.futures.Future[Tensor]:
    """A bucket as it is on this rank, at once."""
    if times is not None:
        times.note(is_first=index == 0)
    future: torch.futures.Future[Tensor] = torch.futures.Future()
    future.set_result(buffer)
    return future


def _bucket_bytes(model: DistributedDataParallel) -> tuple[int, ...]:
    """Sizes of DDP's buckets in bytes; they are rebuilt after the first step, in the order of the
    gradients.

    Empty where this torch does not report them: the method is not public.
    """
    logged: dict[str, object] = getattr(model, "_get_ddp_logging_data", dict)()
    sizes = logged.get("rebuilt_bucket_sizes") or logged.get("bucket_sizes") or ""
    parts = [part.strip() for part in str(sizes).split(",")]
    return tuple(int(part) for part in parts if part.isdigit())
