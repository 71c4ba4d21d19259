"""Configs of optimum-benchmark, alone and composed of the files beside them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.features.imports.foreign import loaded, translate
from torchscale.errors import ConfigError


def test_training_over_torchrun(tmp_path: Path) -> None:
    translation = translate(
        tmp_path,
        """
        defaults:
          - benchmark
          - scenario: training
          - launcher: torchrun
          - backend: pytorch
          - _self_
        name: two ranks
        launcher: {nproc_per_node: 2}
        backend:
          {device: cuda, device_ids: "0,1", model: openai-community/gpt2, no_weights: true,
           torch_dtype: bfloat16}
        scenario:
          max_steps: 30
          warmup_steps: 10
          dataset_shapes: {sequence_length: 256}
          training_arguments: {per_device_train_batch_size: 4, gradient_accumulation_steps: 2}
        """,
    )
    assert not translation.missing
    assert translation.data == {
        "experiment_name": "two ranks",
        "models": ["gpt2"],
        "device": "cuda",
        "training": {"precision": "bf16", "gradient_accumulation": 2},
        "gpu_counts": [2],
        "launch": {"devices": [0, 1]},
        "benchmark": {"warmup_steps": 10, "measure_steps": 20},
        "batch_sizes": 8,
        "model": {"options": {"sequence_length": 256}},
    }
    assert not translation.left_out
    assert "backend.no_weights needs no key: weights are random here" in translation.notes
    loaded(tmp_path, translation)


def test_an_inference_is_said_to_become_a_training(tmp_path: Path) -> None:
    translation = translate(
        tmp_path,
        """
        defaults: [benchmark, {scenario: inference}, {backend: onnxruntime}, _self_]
        backend: {device: cpu, model: bert-base-uncased}
        scenario:
          input_shapes: {batch_size: 3}
          iterations: 50
          warmup_runs: 7
          generate_kwargs: {max_new_tokens: 2}
        """,
    )
    assert translation.differs == [
        "it runs PyTorch: the backend there is onnxruntime",
        "it trains: the scenario there is inference, and torchscale measures training",
    ]
    assert "it trains: " in translation.summary("out", "source")[0]
    assert translation.data["models"] == ["bert-base"]
    assert translation.data["batch_sizes"] == [3]
    assert translation.data["benchmark"] == {"warmup_steps": 7, "min_steps": 50}
    assert translation.left_out["scenario.generate_kwargs"] == "torchscale generates no text"


def test_the_config_that_it_writes_beside_results(tmp_path: Path) -> None:
    translation = translate(
        tmp_path,
        '{"name": "x", "backend": {"name": "pytorch", "model": "timm/resnet50.a1_in1k", '
        '"_target_": "a.B"}, "scenario": {"name": "training"}, "launcher": {"name": "process"}}',
        "benchmark_config.json",
    )
    assert translation.data["models"] == ["timm:resnet50.a1_in1k"]
    assert translation.data["batch_sizes"] == 2
    assert translation.data["benchmark"] == {"warmup_steps": 40, "measure_steps": 100}


def test_files_beside_it_are_read_in_their_order(tmp_path: Path) -> None:
    (tmp_path / "_model_.yaml").write_text("backend: {model: gpt2, device: cuda}\n")
    (tmp_path / "_cpu_.yaml").write_text("backend: {device: cpu}\nname: from the file\n")
    (tmp_path / "_train_.yaml").write_text(
        "defaults: [override scenario: training]\nscenario: {max_steps: 5, warmup_steps: 2}\n"
    )
    translation = translate(
        tmp_path,
        "defaults: [_model_, _cpu_, _train_, _not_here_, _self_, {backend: pytorch}]\nname: own\n",
    )
    assert translation.data["models"] == ["gpt2"]
    assert translation.data["device"] == "cpu"
    assert translation.data["experiment_name"] == "own"
    assert translation.data["benchmark"] == {"warmup_steps": 2, "measure_steps": 3}
    assert translation.left_out["defaults"] == "_not_here_: other files, which are not read"


def test_no_file_of_another_directory_is_read(tmp_path: Path) -> None:
    (tmp_path / "secret.yaml").write_text("backend: {model: gpt2}\n")
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "link.yaml").symlink_to(tmp_path / "secret.yaml")
    text = "defaults: [../secret, link, {backend: pytorch}]\nbackend: {device: cpu}\n"
    translation = translate(inside, text)
    assert "gpt2" not in translation.to_yaml("x").replace("gpt2-", "")
    assert translation.left_out["defaults"].startswith("../secret, link: other files")


def test_files_that_name_each_other_are_read_once(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("defaults: [b]\nbackend: {model: gpt2}\n")
    (tmp_path / "b.yaml").write_text("defaults: [a]\nbackend: {device: cpu}\n")
    translation = translate(tmp_path, "defaults: [a, {backend: pytorch}]\n")
    assert (translation.data["models"], translation.data["device"]) == (["gpt2"], "cpu")


def test_a_damaged_file_beside_it_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("backend: [\n")
    with pytest.raises(ConfigError, match=r"a\.yaml:2:1: not valid YAML"):
        translate(tmp_path, "defaults: [a, {backend: pytorch}]\n")
