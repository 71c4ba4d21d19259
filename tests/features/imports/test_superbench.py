"""Configs of SuperBench: groups joined, what differs between them said, what is not measured
listed."""

from __future__ import annotations

from pathlib import Path

from tests.features.imports.foreign import loaded, translate
from torchscale.features.imports.names import PLACEHOLDER_MODEL

WHOLE = """
version: v0.11
superbench:
  enable: null
  var:
    train: &train
      enable: true
      modes: [{name: torch.distributed, proc_num: 4, node_num: 1}]
      frameworks: [pytorch]
    usual: &usual
      duration: 0
      num_warmup: 8
      num_steps: 64
      batch_size: 2
      precision: [float32, bfloat16]
      model_action: [train]
  benchmarks:
    vision_models:
      <<: *train
      models: [resnet50, resnet101, vgg16]
      parameters:
        <<: *usual
        num_classes: 10
    model-benchmarks:text:
      <<: *train
      models: [gpt2-small, bert-base]
      parameters:
        <<: *usual
        seq_len: 128
    off_models:
      <<: *train
      enable: false
      models: [bert-large]
"""


def test_models_of_all_groups_are_joined_with_their_parameters(tmp_path: Path) -> None:
    translation = translate(tmp_path, WHOLE)
    assert translation.suite == "SuperBench"
    assert not translation.missing
    assert translation.data == {
        "models": [
            {"name": "resnet50", "num_classes": 10},
            {"name": "torchvision:resnet101", "num_classes": 10},
            {"name": "torchvision:vgg16", "num_classes": 10},
            {"name": "gpt2", "sequence_length": 128},
            {"name": "bert-base", "sequence_length": 128},
        ],
        "batch_sizes": [2],
        "training": {"precision": ["fp32", "bf16"]},
        "benchmark": {"warmup_steps": 8, "max_steps": 64, "min_steps": 64},
        "gpu_counts": [4],
    }
    assert translation.left_out == {"superbench.benchmarks.off_models": "is not enabled"}
    assert "superbench.var is written out where groups name its anchors" in translation.notes
    assert translation.renamed["parameters.num_steps"] == "benchmark.max_steps"
    assert loaded(tmp_path, translation).benchmark.max_steps == 64


def test_what_groups_set_differently_is_said(tmp_path: Path) -> None:
    translation = translate(
        tmp_path,
        """
        superbench:
          benchmarks:
            a_models:
              enable: true
              models: [resnet50]
              parameters: {batch_size: 64, num_steps: 200, num_warmup: 5, precision: [float16]}
            b_models:
              enable: true
              models: [bert-large]
              parameters: {batch_size: 4, num_steps: 300, num_warmup: 5, precision: [float16, int8]}
        """,
    )
    assert translation.data["batch_sizes"] == [64, 4]
    assert "groups differ in batch_sizes" in translation.summary("out", "source")[0]
    key = "superbench.benchmarks.b_models.parameters.num_steps"
    assert translation.left_out[key] == "300: benchmark.max_steps is 200, for all models"
    assert translation.left_out["precision int8"] == "no such precision of training here"


def test_its_own_defaults_are_written_and_said(tmp_path: Path) -> None:
    translation = translate(
        tmp_path, "superbench: {benchmarks: {x: {enable: true, models: [gpt2-large]}}}"
    )
    assert translation.data["models"] == [{"name": "gpt2-large", "sequence_length": 512}]
    assert translation.data["batch_sizes"] == [32]
    assert translation.data["benchmark"] == {"warmup_steps": 64, "max_steps": 2048}
    assert any("SuperBench's own defaults are written" in note for note in translation.notes)


def test_an_unknown_model_is_left_out_and_no_other_is_put_in_its_place(tmp_path: Path) -> None:
    translation = translate(
        tmp_path,
        "superbench: {benchmarks: {x: {enable: true, models: [lstm, resnet18, llama2-7b]}}}",
    )
    assert translation.data["models"] == ["resnet18"]
    reason = translation.left_out["superbench.benchmarks.x.models.lstm"]
    assert reason.startswith("unknown model 'lstm'")
    alone = translate(tmp_path, "superbench: {benchmarks: {x: {enable: true, models: [lstm]}}}")
    assert alone.missing[0].startswith("unknown model 'lstm'")
    assert loaded(tmp_path, alone).models[0].name == PLACEHOLDER_MODEL


def test_a_size_of_its_own_is_another_model(tmp_path: Path) -> None:
    translation = translate(
        tmp_path,
        "superbench: {benchmarks: {x: {enable: true, models: [bert-large, resnet50], "
        "parameters: {hidden_size: 64}}}}",
    )
    assert translation.data["models"] == ["resnet50"]
    reason = translation.left_out["superbench.benchmarks.x.models.bert-large"]
    assert "hidden_size: bert-large has fixed sizes here" in reason


def test_collectives_and_products_are_measured_too(tmp_path: Path) -> None:
    translation = translate(
        tmp_path,
        """
        superbench:
          enable: [nccl-bw:nvlink, gemm-flops, kernel-launch]
          benchmarks:
            nccl-bw:nvlink:
              enable: false
              modes: [{name: local, proc_num: 1, env: {NCCL_DEBUG: INFO}}]
              parameters: {ngpus: 8, operation: allgather, maxbytes: 1G, stepfactor: 2}
            gemm-flops: {parameters: {precision: [fp16]}}
            kernel-launch: {enable: true}
            resnet_models: {enable: true, models: [resnet50]}
        """,
    )
    assert translation.data == {
        "collectives": {"operations": ["all_gather"], "min_bytes": 8, "max_bytes": "1G"},
        "gpu_counts": [8],
        "launch": {"env": {"NCCL_DEBUG": "INFO"}},
        "measure": ["collectives", "hardware"],
    }
    assert translation.left_out["superbench.benchmarks.resnet_models"] == "is not enabled"
    assert (
        "no step factor"
        in translation.left_out["superbench.benchmarks.nccl-bw:nvlink.parameters.stepfactor"]
    )
    assert loaded(tmp_path, translation).collectives.max_bytes == 1 << 30


def test_modes_over_nodes_and_modes_of_single_processes(tmp_path: Path) -> None:
    text = (
        "superbench: {{benchmarks: {{x: {{enable: true, models: [resnet50], modes: [{mode}]}}}}}}"
    )
    nodes = translate(
        tmp_path, text.format(mode="{name: torch.distributed, proc_num: 8, node_num: 2}")
    )
    assert nodes.data["gpu_counts"] == [16]
    assert nodes.data["launch"] == {"nodes": 2, "devices_per_node": 8}
    local = translate(tmp_path, text.format(mode="{name: local, proc_num: 8, parallel: yes}"))
    assert local.data["gpu_counts"] == [1]
    assert any(note.startswith("mode local: single processes") for note in local.notes)


def test_inference_and_other_frameworks_are_left_out(tmp_path: Path) -> None:
    translation = translate(
        tmp_path,
        """
        superbench:
          benchmarks:
            a: {enable: true, models: [resnet50], parameters: {model_action: [inference]}}
            b: {enable: true, models: [resnet18], frameworks: [onnxruntime]}
            c: {enable: true, models: [bert-base]}
        """,
    )
    assert translation.data["models"] == ["bert-base"]
    assert "torchscale measures training" in translation.left_out["superbench.benchmarks.a"]
    assert "PyTorch" in translation.left_out["superbench.benchmarks.b"]


def test_a_benchmark_that_is_enabled_and_not_there_is_named(tmp_path: Path) -> None:
    text = WHOLE.replace("enable: null", "enable: [vision_models, audio_models]")
    translation = translate(tmp_path, text)
    assert "no benchmark of this name" in translation.left_out["superbench.enable.audio_models"]
    assert "superbench.enable.vision_models" not in translation.left_out
    without_effect = [note for note in translation.notes if note.startswith("without effect")]
    assert not any("superbench.enable" in note for note in without_effect)
