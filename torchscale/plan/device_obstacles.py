"""Why a training cell cannot run on a kind of device or with a version of torch, or in a precision
there."""

from __future__ import annotations

from torchscale.catalog.devices import BLOCK_SCALED, MIN_CAPABILITY, TORCHAO
from torchscale.config.choices import DeviceKind
from torchscale.config.strategies.data_parallel import Ddp
from torchscale.config.strategy import sharding
from torchscale.plan.execution_target import ExecutionTarget
from torchscale.schema.cells.training import TrainingCell
from torchscale.util.versions import version_numbers

_CUDA_ONLY = ("tf32", "fp8", *BLOCK_SCALED)
_LEAST_TORCHAO = tuple(map(int, TORCHAO.split(".")))

_FSDP_ON_CPUS = (2, 7)
"""The first torch whose CPU streams record events, which FSDP needs."""
_PIPELINES_ON_CPUS = (2, 8)
"""Earlier schedules of torch wait only for the last transfer of a batch
(torch/distributed/pipelining/schedules.py); on gloo they hung with 2.6 and 2.7. Those of 2.8 wait
for all, according to their source."""


def device_obstacle(cell: TrainingCell, device: DeviceKind) -> str | None:
    """What a kind of device does not support; ``None`` where nothing is in the way."""
    if device == "mps" and cell.world_size > 1:
        return "mps has a single device; use world size 1"
    staged = cell.degrees.pipeline > 1
    if staged and (device == "xpu" or (device == "cuda" and cell.measurement.sync_cuda)):
        return (
            "sync_cuda (and the clock for xpu) would synchronize the device between a pipeline's "
            "micro-batches"
        )
    if device != "cuda" and isinstance(cell.strategy, Ddp) and cell.strategy.comm_hook == "bf16":
        return "comm_hook bf16 needs NCCL, that is CUDA devices"
    return None


def version_obstacle(cell: TrainingCell, target: ExecutionTarget) -> str | None:
    """A strategy that an older torch does not support on CPUs; ``None`` for others."""
    installed = version_numbers(target.torch)
    if target.device != "cpu" or not installed:
        return None
    degrees = cell.degrees
    needs = []
    if sharding(cell.strategy, degrees) is not None:
        needs.append(("FSDP", _FSDP_ON_CPUS))
    if degrees.pipeline > 1:
        needs.append(("a pipeline", _PIPELINES_ON_CPUS))
    for what, needed in needs:
        if installed < needed:
            return (
                f"{what} on CPUs needs PyTorch {'.'.join(map(str, needed))}; this is {target.torch}"
            )
    return None


def precision_obstacle(cell: TrainingCell, target: ExecutionTarget) -> str | None:
    """A precision that the devices or the strategy do not support; ``None`` for others."""
    if cell.precision in ("fp8", *BLOCK_SCALED) and cell.degrees.tensor > 1:
        return f"{cell.precision} cannot be combined with tensor parallelism; use bf16"
    if cell.precision == "fp16" and cell.degrees.tensor * cell.degrees.pipeline > 1:
        return "fp16's gradient scaler does not support models that are split over ranks; use bf16"
    if cell.precision == "fp16" and cell.degrees.expert > 1:
        return (
            "fp16's gradient scaler does not know of gradients that overflow in another rank's "
            "experts; use bf16"
        )
    if target.device != "cuda":
        if cell.precision in _CUDA_ONLY:
            return f"{cell.precision} needs a CUDA device"
        return None
    needed = MIN_CAPABILITY.get(cell.precision)
    if needed is None:
        return None
    for info in target.devices:
        if info.index not in target.indices[: cell.world_size] or info.compute_capability is None:
            continue
        capability = tuple(int(part) for part in info.compute_capability.split("."))
        if capability < needed:
            minimum = ".".join(map(str, needed))
            return (
                f"{cell.precision} needs compute capability {minimum}; {info.name} has "
                f"{info.compute_capability}"
            )
    return _torchao_obstacle(cell, target)


def _torchao_obstacle(cell: TrainingCell, target: ExecutionTarget) -> str | None:
    """A precision whose products come from torchao, which is missing or too old."""
    if cell.precision not in BLOCK_SCALED:
        return None
    needs, install = (
        f"{cell.precision} needs torchao {TORCHAO}",
        f"pip install 'torchao>={TORCHAO}'",
    )
    if target.torchao is None:
        return f"{needs}, which is not installed: {install}"
    installed = version_numbers(target.torchao)
    if installed and installed < _LEAST_TORCHAO:
        return f"{needs}; this is {target.torchao}: {install}"
    return None
