"""Every strategy trains the same model: for one seed and global batch, the losses of the first
steps on two and four ranks are those of a single process. A strategy that silently does not train
gives other losses from the fifth step on, when samples come again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.campaign import WHOLE, cases
from tests.worker.forks import Forks
from tests.worker.trainers import STEPS, cell, run_trainers
from torchscale.config.strategy import STRATEGIES
from torchscale.schema.cells.training import TrainingCell

TOLERANCE = 2e-5
STRATEGIES_ON_TWO: list[Any] = [
    "ddp",
    {"name": "ddp", "static_graph": True, "gradient_as_bucket_view": True, "bucket_cap_mb": 1},
    "zero1",
    "fsdp",
    {"name": "fsdp", "reshard_after_forward": False, "offload": True},
    "tensor",
    "sequence",
    "pipeline",
    {"name": "pipeline", "schedule": "gpipe", "microbatches": 2},
    {"name": "pipeline", "schedule": "interleaved"},
    "model",
    "cp",
    {"name": "cp", "parameters": "fsdp"},
    {"name": "hybrid", "tensor": 2},
]
STRATEGIES_ON_FOUR: list[Any] = cases(
    [
        {"name": "fsdp", "shard": 2},
        {"name": "hybrid", "shard": 2, "tensor": 2, "sequence": True},
        {"name": "hybrid", "tensor": 2, "pipeline": 2},
        {"name": "pipeline", "degree": 2, "schedule": "gpipe", "microbatches": 2},
    ],
    [
        {"name": "hybrid", "data": 2, "pipeline": 2},
        "ddp",
        "zero1",
        "fsdp",
        "tensor",
        {"name": "tensor", "degree": 2},
        "sequence",
        {"name": "sequence", "degree": 2},
        "pipeline",
        {"name": "pipeline", "degree": 2},
        "model",
        {"name": "hybrid", "shard": 2, "tensor": 2},
        {"name": "hybrid", "shard": 2, "pipeline": 2},
    ],
)
SEQUENCES_ON_FOUR: list[Any] = cases(
    [
        "cp",
        {"name": "cp", "degree": 2},
        {"name": "cp", "degree": 2, "parameters": "fsdp"},
        {"name": "hybrid", "tensor": 2, "cp": 2, "sequence": True},
        {"name": "hybrid", "pipeline": 2, "cp": 2},
    ],
    [
        {"name": "cp", "parameters": "fsdp"},
        {"name": "hybrid", "data": 2, "cp": 2},
        {"name": "hybrid", "shard": 2, "cp": 2},
    ],
)
EXPERTS = {"models": {"name": "tiny-moe", "seq_len": 16}}
SPREAD_ON_TWO: list[Any] = [
    "ddp",
    "fsdp",
    "ep",
    {"name": "ep", "dense": "fsdp"},
    {"name": "hybrid", "ep": 2},
    "cp",
    {"name": "cp", "parameters": "fsdp"},
    "tensor",
    "pipeline",
    {"name": "pipeline", "schedule": "gpipe", "microbatches": 2},
]
SPREAD_ON_FOUR: list[Any] = cases(
    [
        {"name": "ep", "degree": 2},
        {"name": "ep", "degree": 2, "dense": "fsdp"},
        {"name": "hybrid", "shard": 2, "ep": 2},
        {"name": "hybrid", "cp": 2, "ep": 2},
        {"name": "hybrid", "tensor": 2, "ep": 2},
        {"name": "hybrid", "pipeline": 2, "ep": 2},
        {"name": "hybrid", "data": 2, "tensor": 2},
    ],
    [
        "ep",
        {"name": "ep", "dense": "fsdp"},
        {"name": "hybrid", "data": 2, "ep": 2},
        "cp",
        {"name": "hybrid", "pipeline": 2, "tensor": 2},
        {"name": "hybrid", "shard": 2, "tensor": 2},
    ],
)
SPREAD_VARIATIONS: list[tuple[Any, dict[str, Any]]] = cases(
    [
        ({"name": "ep", "degree": 2}, {"gradient_clipping": 0.1}),
        ({"name": "hybrid", "tensor": 2, "ep": 2}, {"gradient_clipping": 0.1}),
        ({"name": "hybrid", "tensor": 2, "data": 2}, {"gradient_clipping": 0.1}),
        ({"name": "hybrid", "pipeline": 2, "ep": 2}, {"gradient_clipping": 0.1}),
        ({"name": "hybrid", "shard": 2, "ep": 2}, {"gradient_accumulation": 2}),
        ({"name": "ep", "dense": "fsdp"}, {"activation_checkpointing": "full"}),
        ("ep", {"activation_checkpointing": "selective"}),
        ({"name": "ep", "dense": "fsdp"}, {"precision": "bf16"}),
        ("ep", {"optimizer": "adamw", "fused": True, "learning_rate": 0.001}),
    ],
    [
        ({"name": "ep", "degree": 2}, {"gradient_accumulation": 2}),
        ({"name": "hybrid", "shard": 2, "ep": 2}, {"gradient_clipping": 0.1}),
        ({"name": "hybrid", "tensor": 2, "ep": 2}, {"activation_checkpointing": "full"}),
        ("ep", {"activation_checkpointing": "full"}),
        ("ep", {"precision": "bf16"}),
    ],
)
TWO_LAYERS = {"name": "tiny-decoder", "num_layers": 2, "seq_len": 16}
SMALL_ENCDEC = {
    "name": "encdec",
    "d_model": 32,
    "nhead": 2,
    "dim_feedforward": 64,
    "vocab_size": 100,
    "seq_len": 6,
}
FULL, SELECTIVE = {"activation_checkpointing": "full"}, {"activation_checkpointing": "selective"}
CLIPPED, FUSED = (
    {"gradient_clipping": 0.1},
    {"optimizer": "adamw", "fused": True, "learning_rate": 0.001},
)
ACCUMULATED, BF16, FP16 = {"gradient_accumulation": 2}, {"precision": "bf16"}, {"precision": "fp16"}
LLAMA = {"models": {"name": "tiny-llama", "sequence_length": 16}}


def settings(training: dict[str, Any], *strategies: str) -> list[tuple[str, dict[str, Any]]]:
    return [(strategy, {"training": training}) for strategy in strategies]


VARIATIONS: list[tuple[Any, dict[str, Any]]] = cases(
    [
        *settings(FULL, "fsdp"),
        *settings(SELECTIVE, "ddp", "tensor"),
        *settings(CLIPPED, "fsdp", "tensor", "pipeline"),
        *settings(FUSED, "zero1"),
        *settings(ACCUMULATED, "ddp", "fsdp"),
        *settings(BF16, "fsdp"),
        *settings(FP16, "fsdp"),
        (
            "ddp",
            {
                "training": {"deterministic": True},
                "data": {"source": "synthetic-host", "workers": 1},
            },
        ),
        ("tensor", LLAMA),
        ("fsdp", {"models": SMALL_ENCDEC}),
        *settings(ACCUMULATED, "cp"),
        *settings(SELECTIVE, "cp"),
        *settings(CLIPPED, "cp"),
        *settings(BF16, "cp"),
        ("cp", LLAMA),
        ({"name": "cp", "parameters": "fsdp"}, {"training": {**FULL, **BF16}}),
    ],
    [
        *settings(FULL, "ddp", "tensor", "zero1", "pipeline"),
        *settings(SELECTIVE, "fsdp", "pipeline", "zero1"),
        *settings(CLIPPED, "ddp", "zero1"),
        *settings(FUSED, "ddp", "tensor", "pipeline", "fsdp"),
        *settings(ACCUMULATED, "tensor", "zero1"),
        *settings(BF16, "tensor", "pipeline", "ddp"),
        *settings(FP16, "ddp"),
        ("ddp", {"training": {"deterministic": True}}),
        ("ddp", {"data": {"source": "synthetic-host", "workers": 1}}),
        ("fsdp", LLAMA),
        ("ddp", {"models": SMALL_ENCDEC}),
        ("fsdp", {"models": "tiny-vit"}),
        *settings(FP16, "cp"),
        *settings(FUSED, "cp"),
        *settings(FULL, "cp"),
        ({"name": "cp", "parameters": "fsdp"}, {"training": CLIPPED}),
        ({"name": "cp", "parameters": "fsdp"}, {"training": ACCUMULATED}),
        ({"name": "cp", "parameters": "fsdp"}, LLAMA),
    ],
)
DOCUMENTS_ON_TWO: list[tuple[Any, dict[str, Any], dict[str, Any]]] = [
    ("ddp", {}, {}),
    ("ddp", {}, ACCUMULATED),
    ("ddp", {"source": "synthetic-host", "workers": 1}, {}),
    ("fsdp", {}, FULL),
    ("tensor", {}, {}),
    ("sequence", {}, FULL),
]
RECOMPUTED = "fsdp with recomputation"
LOOSER = {"bf16": 2e-3, "fp16": 2e-4}


@pytest.fixture(scope="module")
def alone(forks: Forks, tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    """The losses of a single process."""
    (found,) = run_trainers(forks, tmp_path_factory.mktemp("alone"), [cell(1)])
    losses: list[float] = found["losses"]
    assert losses[0] - losses[8] > 0.1  # the same samples, twice updated
    return losses


@pytest.mark.parametrize(
    ("world_size", "strategies"),
    [(2, STRATEGIES_ON_TWO), (4, STRATEGIES_ON_FOUR), (4, SEQUENCES_ON_FOUR)],
)
def test_every_strategy_trains_what_one_process_trains(
    forks: Forks, tmp_path: Path, alone: list[float], world_size: int, strategies: list[Any]
) -> None:
    if world_size == 2:
        assert {one if isinstance(one, str) else one["name"] for one in strategies} == set(
            STRATEGIES
        ) - {"none", "ep"}  # needs experts
    wanted = [cell(world_size, strategy) for strategy in strategies]
    for one, found in zip(wanted, run_trainers(forks, tmp_path, wanted), strict=True):
        assert found["losses"] == pytest.approx(alone, abs=TOLERANCE), one.id
        assert all(rank["changed"] for rank in found["ranks"]), one.id
        assert_copies_are_equal(one, found)
        kind = STRATEGIES[one.strategy.name]
        declared = {signal.value for signal in kind.signals}
        if one.degrees.pipeline == 1:
            declared -= {"bubble"}
        if one.strategy.name not in ("ddp", "zero1") and one.degrees.pipeline == 1:
            declared |= {"waits"}
        for rank in found["ranks"]:
            assert set(rank["signals"]) == declared, one.id
            for phases, seconds in rank["phases"]:
                assert phases == pytest.approx(seconds, rel=1e-6), one.id


def assert_copies_are_equal(one: TrainingCell, found: dict[str, Any]) -> None:
    """Parameters that lie on several ranks are equal there; of copies these are all, in whole or in
    part."""
    assert found["differing"] is None, one.id
    if one.degrees.replicate > 1:
        assert found["compared"] >= max(rank["parameters"] for rank in found["ranks"]), one.id


@pytest.fixture(scope="module")
def alone_with_experts(forks: Forks, tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    """The losses of a model with experts in a single process."""
    directory = tmp_path_factory.mktemp("alone-with-experts")
    (found,) = run_trainers(forks, directory, [cell(1, **EXPERTS)])
    losses: list[float] = found["losses"]
    assert losses[0] - losses[8] > 0.1
    return losses


@pytest.mark.parametrize(("world_size", "strategies"), [(2, SPREAD_ON_TWO), (4, SPREAD_ON_FOUR)])
def test_spread_experts_train_what_one_process_trains(
    forks: Forks,
    tmp_path: Path,
    alone_with_experts: list[float],
    world_size: int,
    strategies: list[Any],
) -> None:
    wanted = [cell(world_size, strategy, **EXPERTS) for strategy in strategies]
    for one, found in zip(wanted, run_trainers(forks, tmp_path, wanted), strict=True):
        assert found["losses"] == pytest.approx(alone_with_experts, abs=TOLERANCE), one.id
        assert all(rank["changed"] for rank in found["ranks"]), one.id
        assert_copies_are_equal(one, found)
        for rank in found["ranks"]:
            waits = one.strategy.name in ("ep", "hybrid", "fsdp", "cp", "tensor")
            assert ("waits" in rank["signals"]) == waits, one.id
            for phases, seconds in rank["phases"]:
                assert phases == pytest.approx(seconds, rel=1e-6), one.id


def test_settings_of_a_step_change_no_result_of_spread_experts(
    forks: Forks, tmp_path: Path
) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "four").mkdir()
    alone = [cell(1, "none", training=training, **EXPERTS) for _, training in SPREAD_VARIATIONS]
    singly = {one.id: one for one in alone}
    losses = run_trainers(forks, tmp_path / "one", list(singly.values()))
    expected = dict(zip(singly, losses, strict=True))
    on_four = [
        cell(4, strategy, training=training, **EXPERTS) for strategy, training in SPREAD_VARIATIONS
    ]
    for setting, one, found in zip(
        SPREAD_VARIATIONS, alone, run_trainers(forks, tmp_path / "four", on_four), strict=True
    ):
        tolerance = LOOSER.get(one.precision, TOLERANCE)
        assert found["losses"] == pytest.approx(expected[one.id]["losses"], abs=tolerance), setting
        assert found["differing"] is None, setting


def test_settings_of_a_step_change_no_result(forks: Forks, tmp_path: Path) -> None:
    """Against one process with the same settings: recomputation, accumulation, clipping, fused
    updates, precisions."""
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    variations = [(strategy, {"models": TWO_LAYERS, **content}) for strategy, content in VARIATIONS]
    alone = [cell(1, "none", **content) for _, content in variations]
    wanted = {one.id: one for one in alone}  # several strategies are held against the same one
    losses = run_trainers(forks, tmp_path / "one", list(wanted.values()))
    single = dict(zip(wanted, losses, strict=True))
    on_two = [cell(2, strategy, **content) for strategy, content in variations]
    several = run_trainers(forks, tmp_path / "two", on_two)
    for (strategy, content), one, two in zip(
        variations, [single[one.id] for one in alone], several, strict=True
    ):
        precision = content.get("training", {}).get("precision")
        tolerance = LOOSER.get(precision, TOLERANCE)
        assert two["losses"] == pytest.approx(one["losses"], abs=tolerance), (strategy, content)
        assert len(set(one["losses"])) == STEPS
        assert two["differing"] is None


@pytest.mark.parametrize("packing", ["padded", "packed"])
def test_documents_of_different_lengths_train_the_same_on_ranks(
    forks: Forks, tmp_path: Path, packing: str
) -> None:
    """Ranks have different numbers of tokens; the loss is the mean over those of all."""
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    text = {"lengths": {"median": 8, "sigma": 1.0}, "packing": packing}
    models = {"name": "tiny-decoder", "seq_len": 32}
    (alone,) = run_trainers(forks, tmp_path / "one", [cell(1, "none", models=models, data=text)])
    wanted = [
        cell(2, strategy, models=models, data={**text, **data}, training=training)
        for strategy, data, training in DOCUMENTS_ON_TWO
    ]
    for one, found in zip(wanted, run_trainers(forks, tmp_path / "two", wanted), strict=True):
        assert found["losses"] == pytest.approx(alone["losses"], abs=TOLERANCE), one.id
        assert found["differing"] is None, one.id


@pytest.mark.campaign
@pytest.mark.parametrize(
    ("model", "strategies"),
    [
        ("tiny-decoder", cases(["ddp", "cp"], ["tensor", RECOMPUTED, "fsdp", "pipeline"])),
        ("tiny-moe", cases(["ep"], ["ddp"])),
    ],
    ids=["decoder", "experts"],
)
def test_a_compiled_model_trains_the_same(
    forks: Forks, tmp_path: Path, model: str, strategies: list[str]
) -> None:
    """Whole under DDP and split matrices, block by block elsewhere, also with recomputation;
    expert layers as they are."""
    layers = 2 if WHOLE else 1  # half as much to compile
    small = {"models": {"name": model, "num_layers": layers}, "model": {"compile": True}}
    recomputed = {"training": {"activation_checkpointing": "full"}}
    wanted = [
        cell(2, "fsdp", **small, **recomputed) if name == RECOMPUTED else cell(2, name, **small)
        for name in strategies
    ]
    plain = {key: value for key, value in small.items() if key != "model"}
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    (single,) = run_trainers(forks, tmp_path / "one", [cell(1, "none", **plain)])
    # The C++ compiler takes most of the time, and most of that is optimization, which this test
    # does not need.
    compiler = tmp_path / "g++-O0"
    compiler.write_text('#!/bin/sh\nexec g++ "$@" -O0\n')
    compiler.chmod(0o755)
    compiling = Forks({"CXX": str(compiler), "TORCHINDUCTOR_COMPILE_THREADS": "1"})
    try:
        several = run_trainers(compiling, tmp_path / "two", wanted)
    finally:
        compiling.end()
    for one, found in zip(wanted, several, strict=True):
        assert found["losses"] == pytest.approx(single["losses"], abs=1e-4), one.id


@pytest.mark.quiet
def test_a_bubble_shrinks_with_more_micro_batches_and_is_whole_for_one(
    forks: Forks, tmp_path: Path
) -> None:
    """(p - 1) ÷ (m + p - 1) of a pass is bubble: with two stages, half for one micro-batch, a ninth
    for eight."""
    wide = {
        "models": {"name": "tiny-decoder", "hidden_size": 256, "seq_len": 128},
        "batch_sizes": 16,
    }
    wanted = [cell(2, "model", **wide), cell(2, {"name": "pipeline", "microbatches": 8}, **wide)]
    one, eight = run_trainers(forks, tmp_path, wanted, steps=6)
    share = [
        sum(sum(rank["bubble"][1:]) for rank in found["ranks"])
        / sum(sum(seconds for _, seconds in rank["phases"][1:]) for rank in found["ranks"])
        for found in (one, eight)
    ]
    assert 0.3 < share[0] < 0.8
    assert share[1] < 0.75 * share[0]
