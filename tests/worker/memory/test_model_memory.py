from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed._tools.mem_tracker import MemTracker

from tests.factories import cells, cpu_task
from tests.worker.forks import Forks
from torchscale.schema.cells.memory import MemoryCell, MemoryRank
from torchscale.worker.memory import predicted_memory
from torchscale.worker.memory.model_memory import (
    LimitExceededError,
    SavedTensors,
    measure_memory,
    tensor_bytes,
)
from torchscale.worker.memory.predicted_memory import predict_memory
from torchscale.worker.process_group import Ranks
from torchscale.worker.rank_files import RankFiles

ONE = Ranks(0, 0, 1, torch.device("cpu"), None)


def memory_of(directory: Path, limit: int | None = None, **content: Any) -> MemoryRank:
    """What a cell takes on one CPU rank; keys as in a config."""
    cell = MemoryCell(training=cells(gpu_counts=[1], **content)[0], limit_bytes=limit)
    task = cpu_task(cell)
    return measure_memory(task, cell, ONE, RankFiles(directory, 0))


@pytest.mark.parametrize(
    ("model", "batch", "training"),
    [
        ("tiny-resnet", 16, {"optimizer": "sgd"}),
        ("tiny-gpt2", 8, {"optimizer": "adamw"}),
        ("tiny-llama", 8, {"optimizer": "adamw", "precision": "bf16"}),
        ("tiny-bert", 16, {"optimizer": "adamw"}),
        ("tiny-t5", 8, {"optimizer": "adam"}),
        ("tiny-decoder", 8, {"optimizer": "adamw", "activation_checkpointing": "full"}),
        ("tiny-moe", 8, {"optimizer": "adamw"}),
    ],
)
def test_predicted_against_measured(
    tmp_path: Path, model: str, batch: int, training: dict[str, str]
) -> None:
    found = memory_of(tmp_path, models=model, batch_sizes=[batch], training=training)
    predicted = found.predicted
    assert predicted is not None, found.not_predicted
    for part in ("parameters", "buffers", "gradients"):
        assert getattr(predicted.parts, part) == getattr(found.parts, part), part
    assert predicted.parts.optimizer_states == pytest.approx(found.parts.optimizer_states, rel=1e-3)
    assert predicted.peak_bytes == pytest.approx(found.peak_bytes, rel=0.05)
    states = {"sgd": 1, "adam": 2, "adamw": 2}[training["optimizer"]]
    assert found.parts.gradients == found.parts.parameters
    assert found.parts.optimizer_states == pytest.approx(states * found.parts.parameters, rel=0.01)
    recomputed = "activation_checkpointing" in training
    assert (found.parts.activations is None) == recomputed
    if found.parts.activations is not None and predicted.parts.activations is not None:
        assert found.parts.activations == pytest.approx(predicted.parts.activations, rel=0.3)
        assert found.peak_bytes >= found.parts.parameters + found.parts.activations


_ON_RANKS = """
import os, sys
from pathlib import Path
import torch
from torchscale.schema.launch.task import LaunchTask
from torchscale.worker.memory.model_memory import measure_memory
from torchscale.worker.process_group import joined_ranks
from torchscale.worker.rank_files import RankFiles

torch.set_num_threads(1)
task = LaunchTask.model_validate_json(Path(sys.argv[1]).read_text())
with joined_ranks(task) as ranks:
    files = RankFiles(Path(sys.argv[2]), ranks.rank)
    files.record(measure_memory(task, task.cell, ranks, files))
    ranks.barrier()
os._exit(0)
"""


@pytest.mark.slow
def test_split_matrices_count_in_copies_of_them_too(forks: Forks, tmp_path: Path) -> None:
    """DDP takes them out of the module in its first forward pass."""
    found = {}
    for count in (2, 4):
        strategy = {"name": "tensor", "degree": 2}
        settings: dict[str, Any] = {"models": "tiny-decoder", "batch_sizes": [4]}
        (trained,) = cells(gpu_counts=[count], parallel={"strategy": strategy}, **settings)
        task = cpu_task(MemoryCell(training=trained))
        directory = tmp_path / str(count)
        directory.mkdir()
        (directory / "script.py").write_text(_ON_RANKS)
        (directory / "task.json").write_text(task.model_dump_json())
        arguments = (str(directory / "task.json"), str(directory))
        forks.run(directory / "script.py", *arguments, ranks=count, tasks=[task])
        found[count] = MemoryRank.model_validate_json((directory / "rank-0.json").read_bytes())
    alone, copies = found[2].parts, found[4].parts
    assert copies.parameters == alone.parameters
    assert copies.gradients >= copies.parameters
    assert copies.optimizer_states == alone.optimizer_states
    assert copies.activations == pytest.approx(alone.activations, rel=0.01)


def test_more_samples_take_more_activations_and_nothing_else(tmp_path: Path) -> None:
    small, large = (
        memory_of(tmp_path, models="tiny-gpt2", batch_sizes=[batch]) for batch in (2, 8)
    )
    assert small.parts.activations is not None
    assert large.parts.activations == pytest.approx(4 * small.parts.activations, rel=0.01)
    assert large.parts.model_copy(update={"activations": small.parts.activations}) == small.parts
    assert large.peak_bytes > small.peak_bytes


def test_a_step_above_the_limit_runs_out_of_memory(tmp_path: Path) -> None:
    fits = memory_of(tmp_path, models="tiny-gpt2", batch_sizes=[4])
    assert (
        memory_of(tmp_path, fits.peak_bytes + 4096, models="tiny-gpt2", batch_sizes=[4]).peak_bytes
        > 0
    )
    with pytest.raises(LimitExceededError, match=r"exceed the limit of 20\.0 MiB"):
        memory_of(tmp_path, 20 << 20, models="tiny-gpt2", batch_sizes=[4])


def test_steps_that_fp16_skips_are_not_taken_for_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scaler = torch.amp.GradScaler
    monkeypatch.setattr(torch.amp, "GradScaler", lambda device: scaler(device, init_scale=2.0**24))
    found = memory_of(
        tmp_path, models="tiny-decoder", batch_sizes=[4], training={"precision": "fp16"}
    )
    assert found.parts.gradients == found.parts.parameters
    assert found.parts.optimizer_states == pytest.approx(2 * found.parts.parameters, rel=0.01)


def test_saved_tensors_count_each_storage_once_and_no_parameter() -> None:
    layer = nn.Linear(64, 32, bias=False)
    x = torch.rand(16, 64, requires_grad=True)
    with SavedTensors(layer, list(layer.parameters())) as saved:
        hidden = layer(x)  # keeps x and the weight
        loss = (hidden.exp() * hidden.exp()).sum()  # keeps two results of exp, each twice
        assert saved.peak == 4 * (16 * 64 + 2 * 16 * 32)
        loss.backward()
        assert saved._live == 0
    assert saved.peak == 4 * (16 * 64 + 2 * 16 * 32)


def test_shared_parameters_count_once_and_neighbours_each() -> None:
    weight = torch.zeros(10, 10)
    assert tensor_bytes([weight, weight, weight.view(-1), None]) == 400
    bucket = torch.zeros(100)
    assert tensor_bytes([bucket[:10], bucket[10:30], bucket[:10].view(2, 5)]) == 4 * 30
    assert tensor_bytes([bucket, bucket[50:]]) == 400


@pytest.mark.parametrize(("strategy", "share"), [("ddp", 1), ("zero1", 2), ("fsdp", 2)])
def test_strategies_share_out_by_arithmetic(strategy: str, share: int) -> None:
    settings: dict[str, Any] = {"models": "tiny-decoder", "batch_sizes": [4]}
    alone = predict_memory(cells(gpu_counts=[1], **settings)[0])
    several = predict_memory(cells(gpu_counts=[2], parallel={"strategy": strategy}, **settings)[0])
    assert several.parts.optimizer_states == alone.parts.optimizer_states // share
    assert several.parts.activations == alone.parts.activations
    assert (several.parts.parameters == alone.parts.parameters) == (strategy != "fsdp")
    assert several.method != alone.method
    assert (several.peak_bytes > alone.peak_bytes) == (strategy == "ddp")


@pytest.mark.parametrize(
    ("strategy", "dense_shards", "expert_shards"),
    [
        ("ep", 1, 4),
        ({"name": "ep", "degree": 2}, 1, 2),
        ({"name": "ep", "dense": "fsdp"}, 4, 4),
        ({"name": "hybrid", "shard": 2, "ep": 2}, 4, 4),
        ("fsdp", 4, 4),
    ],
)
def test_experts_and_all_else_are_shared_out_apart(
    strategy: object, dense_shards: int, expert_shards: int
) -> None:
    settings: dict[str, Any] = {"models": "tiny-moe", "batch_sizes": [4]}
    alone = predict_memory(cells(gpu_counts=[1], **settings)[0])
    found = predict_memory(cells(gpu_counts=[4], parallel={"strategy": strategy}, **settings)[0])
    of_experts = 4 * 2 * 8 * 3 * 128 * 128
    beside = alone.parts.parameters - of_experts
    expected = beside / dense_shards + of_experts / expert_shards
    assert found.parts.parameters == pytest.approx(expected, abs=1)
    states = found.parts.optimizer_states / alone.parts.optimizer_states
    assert states == pytest.approx(expected / alone.parts.parameters, rel=1e-3)
    buckets = beside if dense_shards == 1 else 0
    saved = 4 * (alone.parts.parameters - expected)  # parameters, gradients and two states
    assert found.peak_bytes == pytest.approx(alone.peak_bytes - saved + buckets, rel=1e-4)


@pytest.mark.parametrize(
    ("strategy", "shards"),
    [("cp", 1), ({"name": "cp", "degree": 2}, 1), ({"name": "cp", "parameters": "fsdp"}, 4)],
)
def test_a_part_of_each_sequence_takes_its_part_of_activations(
    strategy: object, shards: int
) -> None:
    """Beside them the keys and values of all tokens."""
    settings: dict[str, Any] = {"models": "tiny-decoder", "batch_sizes": [4]}
    (cell,) = cells(gpu_counts=[4], parallel={"strategy": strategy}, **settings)
    found, parts = predict_memory(cell), cell.degrees.context
    alone = predict_memory(cells(gpu_counts=[1], **{**settings, "batch_sizes": [4 * parts]})[0])
    assert found.parts.parameters == alone.parts.parameters // shards
    assert found.parts.activations is not None
    assert alone.parts.activations is not None
    layers, samples, length, hidden = 4, 4 * parts, 64, 128
    gathered = layers * samples * length * 2 * hidden * 4
    rest = found.parts.activations - gathered
    assert 0.5 * alone.parts.activations < parts * rest < alone.parts.activations
    assert f"1/{parts} of each sequence" in found.method


def test_the_memory_format_changes_no_prediction() -> None:
    rows, pixels = (
        predict_memory(cells(gpu_counts=[1], model={"channels_last": last})[0]).peak_bytes
        for last in (False, True)
    )
    assert pixels == pytest.approx(rows, rel=0.05)


def test_what_is_not_predicted_says_so() -> None:
    split = cells(
        models="tiny-decoder", batch_sizes=[4], gpu_counts=[2], parallel={"strategy": "tensor"}
    )[0]
    with pytest.raises(ValueError, match="no prediction for strategy tensor"):
        predict_memory(split)
    compiled = cells(gpu_counts=[1], model={"compile": True})[0]
    with pytest.raises(ValueError, match="compiled models"):
        predict_memory(compiled)


def test_a_prediction_leaves_random_numbers_as_they_were() -> None:
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    predict_memory(cells(gpu_counts=[1], models="tiny-gpt2", batch_sizes=[2])[0])
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize(
    "settings", [{}, {"activation_checkpointing": "full"}, {"gradient_accumulation": 2}]
)
def test_the_whole_is_followed_as_torchs_own_tracker_does(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any]
) -> None:
    cell = cells(gpu_counts=[1], models="tiny-decoder", batch_sizes=[4], training=settings)[0]
    found = predict_memory(cell)
    predicted_memory._track.cache_clear()
    monkeypatch.setattr(predicted_memory, "_WholeTracker", MemTracker)
    assert predict_memory(cell) == found
    predicted_memory._track.cache_clear()
