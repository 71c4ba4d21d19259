"""DeepSpeed's JSON: batches, precision, stages of ZeRO, what is tuning of its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.features.imports.foreign import loaded, translate
from torchscale.config.translate import Translation


def deepspeed(tmp_path: Path, **keys: object) -> Translation:
    translation = translate(tmp_path, json.dumps({"steps_per_print": 10, **keys}), "ds.json")
    assert translation.suite == "DeepSpeed"
    loaded(tmp_path, translation)
    return translation


def test_a_whole_config(tmp_path: Path) -> None:
    translation = deepspeed(
        tmp_path,
        train_batch_size=64,
        train_micro_batch_size_per_gpu=4,
        gradient_accumulation_steps=2,
        gradient_clipping=1.0,
        bf16={"enabled": True},
        fp16={"enabled": False, "loss_scale": 0},
        optimizer={"type": "AdamW", "params": {"lr": 2e-4, "betas": [0.9, 0.95]}},
        zero_optimization={"stage": 3, "offload_param": {"device": "cpu"}, "overlap_comm": True},
    )
    assert translation.data == {
        "training": {
            "precision": "bf16",
            "gradient_accumulation": 2,
            "gradient_clipping": 1.0,
            "optimizer": "adamw",
            "learning_rate": 2e-4,
        },
        "batch_sizes": 8,
        "gpu_counts": [8],
        "parallel": {"strategy": {"name": "fsdp", "offload": True}},
        "models": ["my_package.my_module:build_model"],
    }
    assert translation.missing == [
        "this config of DeepSpeed names no model; put yours in the place of "
        "my_package.my_module:build_model"
    ]
    assert {"fp16", "optimizer", "zero_optimization"} <= set(translation.left_out)
    assert "steps_per_print is for the log alone" in translation.notes


@pytest.mark.parametrize(
    ("stage", "strategy"),
    [
        (0, "ddp"),
        (1, "zero1"),
        (2, {"name": "fsdp", "reshard_after_forward": False}),
        (3, "fsdp"),
        ("0", "ddp"),
        ("2", {"name": "fsdp", "reshard_after_forward": False}),
        (3.0, "fsdp"),
    ],
)
def test_stages(tmp_path: Path, stage: float | str, strategy: object) -> None:
    translation = deepspeed(tmp_path, zero_optimization={"stage": stage})
    assert translation.data["parallel"] == {"strategy": strategy}


def test_a_stage_as_text_offloads_as_well(tmp_path: Path) -> None:
    section = {"stage": "3", "offload_param": {"device": "cpu"}}
    translation = deepspeed(tmp_path, zero_optimization=section)
    assert translation.data["parallel"] == {"strategy": {"name": "fsdp", "offload": True}}


@pytest.mark.parametrize("stage", [4, "4", "three", True, None, [3]])
def test_no_stage(tmp_path: Path, stage: object) -> None:
    translation = deepspeed(tmp_path, zero_optimization={"stage": stage, "x": 1})
    assert "parallel" not in translation.data
    assert any(key.startswith("zero_optimization") for key in translation.left_out)


def test_a_batch_of_all_devices_alone_is_strong_scaling(tmp_path: Path) -> None:
    translation = deepspeed(tmp_path, train_batch_size=256)
    assert (translation.data["scaling"], translation.data["batch_sizes"]) == ("strong", 256)


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({"train_micro_batch_size_per_gpu": 4}, "256: passes × devices is 64; neither is named"),
        (
            {"train_micro_batch_size_per_gpu": 3, "gradient_accumulation_steps": 1},
            "256 is no multiple of 3 samples × 1 passes",
        ),
    ],
)
def test_a_batch_that_does_not_tell_the_devices(
    tmp_path: Path, keys: dict[str, int], reason: str
) -> None:
    translation = deepspeed(tmp_path, train_batch_size=256, **keys)
    assert translation.left_out["train_batch_size"] == reason


def test_auto_is_no_value(tmp_path: Path) -> None:
    translation = deepspeed(
        tmp_path, train_micro_batch_size_per_gpu="auto", gradient_clipping="auto"
    )
    assert translation.left_out["train_micro_batch_size_per_gpu"] == "has no value there"
    assert translation.left_out["gradient_clipping"] == "has no value there"


@pytest.mark.parametrize(
    ("optimizer", "here"),
    [
        ({"type": "Adam"}, "adamw"),
        ({"type": "Adam", "params": {"adam_w_mode": False}}, "adam"),
        ({"type": "SGD"}, "sgd"),
    ],
)
def test_optimizers(tmp_path: Path, optimizer: object, here: str) -> None:
    translation = deepspeed(tmp_path, optimizer=optimizer)
    assert translation.data["training"] == {"optimizer": here}


def test_an_optimizer_that_is_not_here_is_named(tmp_path: Path) -> None:
    translation = deepspeed(tmp_path, optimizer={"type": "OneBitAdam", "params": {"lr": 1e-3}})
    assert translation.left_out["optimizer.type"] == "onebitadam: sgd, adam or adamw here"
    assert translation.data["training"] == {"learning_rate": 1e-3}
