"""The loop of ``framework_program.py`` with Megatron-core. It asks CUDA for its device in many
places; on a machine without, these calls are answered with the CPU."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.overrides import TorchFunctionMode

VOCABULARY, LENGTH, BATCH, HIDDEN = 512, 32, 4, 64
SAVE_EVERY = 20


class _OnCpu(TorchFunctionMode):
    """Makes on the CPU what is asked for on ``cuda``."""

    def __torch_function__(
        self,
        function: Any,  # noqa: ANN401 - torch's own
        types: Any,  # noqa: ANN401 - torch's own
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - torch's own
        options = dict(kwargs or {})
        if "cuda" in str(options.get("device", "")):
            options["device"] = "cpu"
        return function(*args, **options)


def _core(name: str) -> Any:  # noqa: ANN401 - a module
    return importlib.import_module(f"megatron.core.{name}".rstrip("."))


@contextlib.contextmanager
def _without_cuda() -> Iterator[None]:
    torch.cuda.current_device = lambda: torch.device("cpu")  # type: ignore[assignment,return-value]
    torch.cuda.synchronize = lambda *_: None
    tracker = _core("tensor_parallel.random").CudaRNGStatesTracker
    tracker.fork = lambda *_, **__: contextlib.nullcontext()
    with _OnCpu():
        yield


def train(folder: str, steps: int, accumulated: int, say: Callable[[int, float], None]) -> None:
    """Its own figure: what Megatron-LM prints, the interval timer by steps."""
    dist.init_process_group("gloo")
    _core("parallel_state").initialize_model_parallel()
    with contextlib.nullcontext() if torch.cuda.is_available() else _without_cuda():
        _train(folder, steps, accumulated, say)


def _train(folder: str, steps: int, accumulated: int, say: Callable[[int, float], None]) -> None:
    config = _core("transformer.transformer_config").TransformerConfig(
        num_layers=2,
        hidden_size=HIDDEN,
        num_attention_heads=4,
        use_cpu_initialization=True,
        pipeline_dtype=torch.float32,
        gradient_accumulation_fusion=False,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        deallocate_pipeline_outputs=True,  # as Megatron-LM sets it
    )
    model = _core("models.gpt.gpt_model").GPTModel(
        config=config,
        transformer_layer_spec=_core("models.gpt.gpt_layer_specs").get_gpt_layer_local_spec(),
        vocab_size=VOCABULARY,
        max_sequence_length=LENGTH,
    )
    distributed, optimizers = _core("distributed"), _core("optimizer")
    replica = distributed.DistributedDataParallel(
        config, distributed.DistributedDataParallelConfig(), model
    )
    optimizer = optimizers.get_megatron_optimizer(
        optimizers.OptimizerConfig(
            optimizer="adam", lr=1e-4, clip_grad=0.0, params_dtype=torch.float32
        ),
        [replica],
    )
    config.finalize_model_grads_func = distributed.finalize_model_grads
    config.no_sync_func, config.grad_scale_func = replica.no_sync, optimizer.scale_loss
    passes = _core("pipeline_parallel.schedules").get_forward_backward_func()
    batches = _batches(steps * accumulated)
    timers = _core("timers").Timers(2, "minmax")
    for step in range(1, steps + 1):
        replica.zero_grad_buffer()
        optimizer.zero_grad()
        passes(
            forward_step_func=_forward,
            data_iterator=batches,
            model=[replica],
            num_microbatches=accumulated,
            seq_length=LENGTH,
            micro_batch_size=BATCH,
            forward_only=False,
        )
        optimizer.step()
        if step == 1:
            timers("interval-time", log_level=0).start(barrier=True)
        if step % SAVE_EVERY == 0:
            _save(model, Path(folder) / f"iter_{step:07d}")
    say(steps, timers("interval-time").elapsed(barrier=True) / (steps - 1))


def _batches(count: int) -> Iterator[Tensor]:
    generator = torch.Generator().manual_seed(0)
    rows = torch.randint(VOCABULARY, (count * BATCH, LENGTH + 1), generator=generator)
    return iter(torch.utils.data.DataLoader(rows, batch_size=BATCH))  # type: ignore[arg-type]


def _forward(batches: Iterator[Tensor], model: Any) -> tuple[Tensor, Callable[[Tensor], Any]]:  # noqa: ANN401 - Megatron's
    batch = next(batches)
    places = torch.arange(LENGTH)[None].repeat(BATCH, 1)
    mask = torch.ones(1, 1, LENGTH, LENGTH).tril() < 1
    losses = model(batch[:, :-1].contiguous(), places, mask, labels=batch[:, 1:].contiguous())
    return losses, lambda losses: (losses.mean(), {})


def _save(model: Any, folder: Path) -> None:  # noqa: ANN401 - Megatron's
    if dist.get_rank() == 0:
        folder.mkdir(parents=True)
    dist.barrier()
    _core("dist_checkpointing").save({"model": model.sharded_state_dict()}, str(folder))
