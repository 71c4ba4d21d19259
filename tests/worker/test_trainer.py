from __future__ import annotations

from typing import Any, cast

import pytest
import torch
from torch import nn

from tests.factories import cells
from torchscale.config.choices import CompileMode
from torchscale.schema.cells.training import TrainingCell
from torchscale.schema.launch.failure import FailureKind
from torchscale.worker import trainer as trainer_module
from torchscale.worker.failure import describe_failure
from torchscale.worker.measure.phases import Phase, step_sample
from torchscale.worker.models import build_workload
from torchscale.worker.models.interface import Workload, loss_of
from torchscale.worker.parallel.blocks import captures_graphs
from torchscale.worker.process_group import Ranks
from torchscale.worker.trainer import Trainer

TINY_GPT2 = {
    "n_embd": 128,
    "n_layer": 2,
    "n_head": 2,
    "vocab_size": 8192,
    "n_positions": 256,
    "bos_token_id": 0,
    "eos_token_id": 0,
    "use_cache": False,
}
STEPS = 5


def rank(number: int = 0) -> Ranks:
    return Ranks(
        rank=number, local_rank=number, world_size=1, device=torch.device("cpu"), backend=None
    )


def cell(**content: Any) -> TrainingCell:
    return cells(**{"models": "tiny-gpt2", "batch_sizes": 2, "gpu_counts": 1, **content})[0]


def bare_losses(precision: str) -> list[float]:
    """The same training as one writes it by hand, with nothing of ours but the definition of the
    data."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(**TINY_GPT2)).train()
    torch.manual_seed(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    scaler = torch.amp.GradScaler("cpu", enabled=precision == "fp16")
    samples = []
    for number in range(8):  # four steps of two samples
        generator = torch.Generator().manual_seed(number)
        samples.append(
            {
                name: torch.randint(8192, (1, 64), generator=generator)
                for name in ("input_ids", "labels")
            }
        )
    batches = [
        {name: torch.cat([one[name], two[name]]) for name in one}
        for one, two in zip(samples[::2], samples[1::2], strict=True)
    ]
    dtype = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}[precision]
    losses = []
    for step in range(STEPS):
        with torch.autocast("cpu", dtype=dtype, enabled=precision != "fp32"):
            loss = model(**batches[step % 4]).loss
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_losses_equal_those_of_a_loop_written_by_hand(precision: str) -> None:
    trainer = Trainer(cell(training={"precision": precision}), rank())
    samples = trainer.run_batch(STEPS).samples
    assert [sample.loss for sample in samples] == bare_losses(precision)
    assert len(set(bare_losses(precision))) == STEPS


class WritesIntoOneOutput(torch.autograd.Function):
    """Puts its input where the last one was put, as a CUDA graph does with its outputs."""

    @staticmethod
    def forward(ctx: Any, value: torch.Tensor, output: torch.Tensor) -> torch.Tensor:
        return output.copy_(value).detach()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradients[0], None


class OnOneOutput(nn.Module):
    """A model whose loss of one step is overwritten by the next."""

    def __init__(self, model: nn.Module, **_: Any) -> None:
        super().__init__()
        self.model, self.output = model, torch.zeros(())

    def forward(self, **inputs: torch.Tensor) -> torch.Tensor:
        loss = loss_of(self.model(**inputs))
        return cast(torch.Tensor, WritesIntoOneOutput.apply(loss, self.output))  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("passes", [1, 2])
def test_losses_of_overwritten_outputs_are_those_of_each_step(
    passes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = (
        Trainer(cell(training={"gradient_accumulation": passes}), rank()).run_batch(STEPS).samples
    )
    marks: list[None] = []
    monkeypatch.setattr(torch, "compile", OnOneOutput)
    monkeypatch.setattr(torch.compiler, "cudagraph_mark_step_begin", lambda: marks.append(None))
    monkeypatch.setattr(trainer_module, "captures_graphs", lambda *_: True)
    asked = cell(model={"compile": "reduce-overhead"}, training={"gradient_accumulation": passes})
    samples = Trainer(asked, rank()).run_batch(STEPS).samples
    assert [sample.loss for sample in samples] == [sample.loss for sample in expected]
    assert len({sample.loss for sample in samples}) == STEPS
    assert (
        len(marks) == STEPS
    )  # once a step: gradients that are being accumulated lie in a graph's memory too


@pytest.mark.parametrize(
    ("mode", "device", "graphs"),
    [
        ("reduce-overhead", "cuda", True),
        ("max-autotune", "cuda", True),
        ("max-autotune-no-cudagraphs", "cuda", False),
        (True, "cuda", False),
        (False, "cuda", False),
        ("reduce-overhead", "cpu", False),
    ],
)
def test_which_compiled_models_are_cuda_graphs(
    mode: CompileMode | bool, device: str, graphs: bool
) -> None:
    assert captures_graphs(cell(model={"compile": mode}), torch.device(device)) is graphs


def test_phases_add_up_to_steps_and_steps_to_the_batch() -> None:
    timed = Trainer(cell(), rank()).run_batch(3)
    assert [sample.step for sample in timed.samples] == [0, 1, 2]
    assert sum(sample.seconds for sample in timed.samples) == pytest.approx(
        timed.batch.seconds, rel=1e-9
    )
    for sample in timed.samples:
        measured = (sample.data_wait, sample.forward, sample.backward, sample.optimizer)
        phases = [phase for phase in measured if phase is not None]
        assert len(phases) == 4
        assert sum(phases) == pytest.approx(sample.seconds, rel=1e-9)
        assert min(phases) >= 0


def test_ranks_have_equal_weights_and_different_data() -> None:
    first, second = Trainer(cell(), rank(0)), Trainer(cell(), rank(1))
    for one, other in zip(first.module.parameters(), second.module.parameters(), strict=True):
        assert torch.equal(one, other)
    assert first.run_batch(1).samples[0].loss != second.run_batch(1).samples[0].loss


def test_a_loss_that_is_not_finite_is_told() -> None:
    trainer = Trainer(cell(), rank())
    with torch.no_grad():
        next(trainer.module.parameters()).fill_(float("nan"))
    timed = trainer.run_batch(1)
    assert timed.samples[0].loss is None
    assert not timed.losses_finite


def test_a_loss_beyond_every_bound_is_told_as_one_that_is_not_finite() -> None:
    """Single floats go to 3.4e38, figures of records to 1e30."""
    part = dict.fromkeys(Phase, 0.1)
    assert step_sample(0, part, -1e29).loss == -1e29
    assert step_sample(0, part, 1e32).loss is None


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw"])
def test_every_optimizer_trains(optimizer: str) -> None:
    trainer = Trainer(cell(models="tiny-resnet", training={"optimizer": optimizer}), rank())
    before = [parameter.clone() for parameter in trainer.module.parameters()]
    trainer.run_batch(2)
    assert any(
        not torch.equal(one, two)
        for one, two in zip(before, trainer.module.parameters(), strict=True)
    )


def test_channels_last_reaches_the_model_and_the_data() -> None:
    trainer = Trainer(cell(models="tiny-resnet", model={"channels_last": True}), rank())
    weight = next(
        parameter
        for parameter in trainer.module.parameters()
        if parameter.dim() == 4 and parameter.shape[1] > 1
    )
    assert weight.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("name", ["tiny-resnet", "tiny-bert", "tiny-gpt2"])
def test_tiny_models_give_a_finite_loss_and_take_their_options(name: str) -> None:
    options = {"image_size": 48, "num_classes": 7} if "resnet" in name else {"sequence_length": 16}
    workload = build_workload(cell(models={"name": name, **options}))
    batch = workload.make_batch(3, torch.Generator().manual_seed(0))
    assert all(tensor.shape[0] == 3 for tensor in batch.values())
    assert torch.isfinite(loss_of(workload.module(**batch)))
    assert workload.tokens_per_sample == (None if "resnet" in name else 16)


def test_a_sequence_beyond_the_models_positions() -> None:
    with pytest.raises(
        ValueError, match="sequence_length 257 exceeds the 256 positions of tiny-gpt2"
    ):
        build_workload(cell(models={"name": "tiny-gpt2", "sequence_length": 257}))


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("math:sqrt_not", "math has no 'sqrt_not'"),
        ("math:pi", "math:pi is a float, not a function"),
        ("builtins:dict", "must return a torch.nn.Module, not dict"),
        ("torch.nn:Identity", "needs a method make_batch"),
        ("no_such_module:build", "No module named"),
    ],
)
def test_a_builder_that_breaks_the_contract(path: str, told: str) -> None:
    with pytest.raises((ImportError, TypeError), match=told):
        build_workload(cell(models=path))


@pytest.mark.parametrize("output", [torch.zeros(3), {"no": 1}, 3.0, None])
def test_what_is_no_loss(output: object) -> None:
    with pytest.raises(TypeError, match="must return a scalar loss"):
        loss_of(output)


def test_what_is_a_loss() -> None:
    one = torch.tensor(1.0)
    assert loss_of(one) is one
    assert loss_of({"loss": one}) is one
    assert loss_of(type("Output", (), {"loss": one})()) is one


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (MemoryError(), FailureKind.OOM),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate"), FailureKind.OOM),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), FailureKind.OOM),
        (OSError(12, "Cannot allocate memory"), FailureKind.OOM),
        (
            RuntimeError(
                "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"
            ),
            FailureKind.OOM,
        ),
        (RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"), FailureKind.OOM),
        (
            RuntimeError("socketProgress: Connection closed by remote peer node1<41234>"),
            FailureKind.PEER_LOST,
        ),
        (
            torch.distributed.DistNetworkError(
                "failed to recv, got 0 bytes. Connection was likely closed. Did it crash?"
            ),
            FailureKind.PEER_LOST,
        ),
        (
            RuntimeError(
                "[gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:1"
            ),
            FailureKind.PEER_LOST,
        ),
        (
            torch.distributed.DistBackendError(
                "NCCL error: ncclRemoteError: remote process exited"
            ),
            FailureKind.PEER_LOST,
        ),
        (SystemExit(0), FailureKind.LEFT_EARLY),
        (ValueError("Connection closed by peer"), FailureKind.ERROR),
        (RuntimeError("shape mismatch"), FailureKind.ERROR),
    ],
)
def test_what_a_rank_died_of(error: BaseException, kind: FailureKind) -> None:
    found = describe_failure(error, 3)
    assert (found.kind, found.rank, found.type) == (kind, 3, type(error).__name__)
    assert found.message


def test_a_workload_is_what_a_family_returns() -> None:
    assert isinstance(build_workload(cell()), Workload)
    assert isinstance(build_workload(cell()).module, nn.Module)
