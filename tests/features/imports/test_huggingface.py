"""Arguments of Trainers and configs of accelerate."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.features.imports.foreign import loaded, translate


def test_arguments_of_a_trainer(tmp_path: Path) -> None:
    translation = translate(
        tmp_path,
        """
        model_name_or_path: google-bert/bert-base-uncased
        per_device_train_batch_size: 4
        gradient_accumulation_steps: 8
        learning_rate: 2e-5
        max_grad_norm: 1.0
        bf16: yes
        tf32: true
        gradient_checkpointing: true
        optim: adamw_torch_fused
        torch_compile: true
        dataloader_num_workers: 3
        dataloader_pin_memory: false
        seed: 3
        max_seq_length: 128
        fsdp: full_shard auto_wrap offload
        num_train_epochs: 3
        warmup_steps: 500
        coolant: water
        """,
    )
    assert not translation.missing
    assert translation.data == {
        "models": ["bert-base"],
        "training": {
            "gradient_accumulation": 8,
            "precision": "bf16",
            "learning_rate": 2e-5,
            "gradient_clipping": 1.0,
            "seed": 3,
            "activation_checkpointing": "full",
            "optimizer": "adamw",
            "fused": True,
        },
        "batch_sizes": 32,
        "data": {"workers": 3, "pin_memory": False},
        "model": {"options": {"sequence_length": 128}, "compile": True},
        "parallel": {"strategy": {"name": "fsdp", "offload": True}},
    }
    assert "batch_sizes counts a whole step: 4 samples × 8 passes" in translation.notes
    assert translation.left_out == {
        "tf32": "training.precision has a value already (bf16)",
        "num_train_epochs": "is the length of a training; see training.epochs",
        "warmup_steps": "warms the learning rate up, which is constant here",
        "coolant": "has no place here",
    }
    loaded(tmp_path, translation)


def test_a_model_of_the_hub_is_its_own_configuration_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = "model_name_or_path: someone/some-model\nper_device_train_batch_size: 1\n"
    translation = translate(tmp_path, text)
    assert translation.data["models"] == ["hf:someone/some-model/config.json"]
    assert "hf download someone/some-model config.json" in translation.missing[0]
    loaded(tmp_path, translation)
    (tmp_path / "someone" / "some-model").mkdir(parents=True)
    (tmp_path / "someone" / "some-model" / "config.json").write_text("{}")
    assert not translate(tmp_path, text).missing


def test_the_suites_own_batch_is_said(tmp_path: Path) -> None:
    translation = translate(tmp_path, "base_model: gpt2\nadapter: lora\n")
    assert translation.data["batch_sizes"] == 8
    assert translation.differs == ["all parameters are trained: there adapter is lora"]
    assert translation.left_out["adapter"] == "lora: all parameters are trained here"


@pytest.mark.parametrize(
    ("fsdp", "strategy"),
    [
        ("shard_grad_op", {"name": "fsdp", "reshard_after_forward": False}),
        ("no_shard", "ddp"),
        ("[full_shard, auto_wrap]", "fsdp"),
    ],
)
def test_sharding_of_a_trainer(tmp_path: Path, fsdp: str, strategy: object) -> None:
    translation = translate(tmp_path, f"model_name_or_path: gpt2\nfsdp: {fsdp}\n")
    assert translation.data["parallel"] == {"strategy": strategy}


def test_a_deepspeed_section_and_a_deepspeed_file(tmp_path: Path) -> None:
    inside = translate(
        tmp_path, "model_name_or_path: gpt2\ndeepspeed: {zero_optimization: {stage: 1}}\n"
    )
    assert inside.data["parallel"] == {"strategy": "zero1"}
    beside = translate(tmp_path, "model_name_or_path: gpt2\ndeepspeed: ds.json\n")
    assert "is another file" in beside.left_out["deepspeed"]


ACCELERATE = """
compute_environment: LOCAL_MACHINE
distributed_type: {kind}
mixed_precision: {precision}
num_machines: 2
num_processes: 16
machine_rank: 0
{more}
"""


@pytest.mark.parametrize(
    ("kind", "more", "strategy"),
    [
        ("MULTI_GPU", "", "ddp"),
        ("'NO'", "", "ddp"),
        ("FSDP", "fsdp_config: {fsdp_sharding_strategy: FULL_SHARD}", "fsdp"),
        (
            "FSDP",
            "fsdp_config: {fsdp_sharding_strategy: 2, fsdp_offload_params: true}",
            {"name": "fsdp", "reshard_after_forward": False, "offload": True},
        ),
        ("FSDP", "fsdp_config: {fsdp_reshard_after_forward: true}", "fsdp"),
        (
            "FSDP",
            "fsdp_config: {fsdp_sharding_strategy: HYBRID_SHARD}",
            {"name": "fsdp", "shard": 8},
        ),
        *(
            (
                "FSDP",
                f"fsdp_config: {{fsdp_sharding_strategy: {word}}}",
                {"name": "fsdp", "shard": 8, "reshard_after_forward": False},
            )
            for word in ("HYBRID_SHARD_ZERO2", "5", "'5'", "_HYBRID_SHARD_ZERO2")
        ),
        (
            "FSDP",
            "fsdp_config: {fsdp_sharding_strategy: HYBRID_SHARD, fsdp_reshard_after_forward: no}",
            {"name": "fsdp", "shard": 8, "reshard_after_forward": False},
        ),
        (
            "DEEPSPEED",
            "deepspeed_config: {zero_stage: 3, offload_param_device: cpu}",
            {"name": "fsdp", "offload": True},
        ),
        (
            "FSDP",
            "parallelism_config:\n  parallelism_config_tp_size: 2\n"
            "  parallelism_config_dp_shard_size: 8",
            {"name": "hybrid", "shard": 8, "tensor": 2},
        ),
    ],
)
def test_accelerates_strategies(tmp_path: Path, kind: str, more: str, strategy: object) -> None:
    text = ACCELERATE.format(kind=kind, precision="bf16", more=more)
    translation = translate(tmp_path, text)
    assert translation.suite == "accelerate"
    assert translation.data["parallel"] == {"strategy": strategy}
    assert translation.data["gpu_counts"] == [16]
    assert translation.data["launch"] == {"nodes": 2}
    assert translation.missing[0].startswith("this config of accelerate names no model")
    loaded(tmp_path, translation)


@pytest.mark.parametrize("key", ["fsdp_sharding_strategy", "fsdp_reshard_after_forward"])
def test_a_sharding_strategy_that_is_unknown_is_left_out_by_name(tmp_path: Path, key: str) -> None:
    text = ACCELERATE.format(kind="FSDP", precision="bf16", more=f"fsdp_config: {{{key}: SHARD_X}}")
    translation = translate(tmp_path, text)
    assert translation.data["parallel"] == {"strategy": "fsdp"}
    assert translation.left_out[f"fsdp_config.{key}"].startswith("shard_x: expected one of full_")


def test_parameters_that_are_not_sharded_are_not_offloaded(tmp_path: Path) -> None:
    more = "fsdp_config: {fsdp_sharding_strategy: NO_SHARD, fsdp_offload_params: true}"
    translation = translate(tmp_path, ACCELERATE.format(kind="FSDP", precision="bf16", more=more))
    assert translation.data["parallel"] == {"strategy": "ddp"}
    assert "fsdp_config.fsdp_offload_params" in translation.left_out


def test_nodes_that_do_not_divide_the_devices_give_no_group(tmp_path: Path) -> None:
    more = "fsdp_config: {fsdp_sharding_strategy: HYBRID_SHARD_ZERO2}"
    text = ACCELERATE.format(kind="FSDP", precision="bf16", more=more).replace("16\n", "15\n")
    translation = translate(tmp_path, text)
    strategy = {"name": "fsdp", "reshard_after_forward": False}
    assert translation.data["parallel"] == {"strategy": strategy}
    assert any("shard: GPUs of a node" in note for note in translation.notes)


def test_a_word_of_a_trainers_fsdp_that_is_unknown_is_left_out_by_name(tmp_path: Path) -> None:
    text = "model_name_or_path: gpt2\nfsdp: hybrid_shard_zero2 auto_wrap turbo\n"
    translation = translate(tmp_path, text)
    strategy = {"name": "fsdp", "reshard_after_forward": False}
    assert translation.data["parallel"] == {"strategy": strategy}
    assert list(translation.left_out) == ["fsdp.turbo"]


@pytest.mark.parametrize(
    ("precision", "here"), [("no", "fp32"), ("'no'", "fp32"), ("fp16", "fp16"), ("fp8", "fp8")]
)
def test_accelerates_precisions(tmp_path: Path, precision: str, here: str) -> None:
    text = ACCELERATE.format(kind="MULTI_GPU", precision=precision, more="")
    assert translate(tmp_path, text).data["training"] == {"precision": here}


def test_what_accelerate_leaves_to_other_files_is_named(tmp_path: Path) -> None:
    text = ACCELERATE.format(
        kind="DEEPSPEED",
        precision="int3",
        more="deepspeed_config: {deepspeed_config_file: ds.json}\nuse_cpu: true\ncoolant: water",
    )
    translation = translate(tmp_path, text)
    assert "another file" in translation.left_out["deepspeed_config.deepspeed_config_file"]
    assert translation.left_out["mixed_precision"].startswith("int3: expected ")
    assert translation.left_out["machine_rank"] == "torchscale asks for --node-rank"
    assert translation.left_out["coolant"] == "has no place here"
    assert translation.data["device"] == "cpu"
