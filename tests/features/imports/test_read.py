"""Which suite a file is of, and what no suite has."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.features.imports.foreign import loaded, translate
from torchscale.config.yaml_reader import read_yaml
from torchscale.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "suite"),
    [
        ("superbench: {benchmarks: {}}", "SuperBench"),
        ("defaults: [benchmark, {backend: pytorch}]", "optimum-benchmark"),
        ("backend: {model: gpt2}", "optimum-benchmark"),
        ("per_device_train_batch_size: 2", "Hugging Face Trainer"),
        ("base_model: gpt2\nfsdp_config: {a: 1}", "Hugging Face Trainer"),
        ("distributed_type: FSDP", "accelerate"),
        ("num_processes: 2\nmixed_precision: fp16", "accelerate"),
        ("zero_optimization: {stage: 1}\ngradient_accumulation_steps: 2", "DeepSpeed"),
        ("bf16: {enabled: true}", "DeepSpeed"),
        ("models: [resnet50]\nbatch_sizes: 2", ""),
        ("./all_reduce_perf -g 2", "nccl-tests"),
        (':::MLLOG {"key": "seed", "value": 1}', "MLPerf log"),
    ],
)
def test_a_suite_is_known_by_its_form(tmp_path: Path, text: str, suite: str) -> None:
    translation = translate(tmp_path, text)
    assert translation.suite == suite
    loaded(tmp_path, translation)


def test_a_file_with_nothing_known_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no key of it is known here"):
        translate(tmp_path, "a: 1\n")


def test_anchors_are_read_and_keys_listed_twice_are_said(tmp_path: Path) -> None:
    translation = translate(
        tmp_path, "x: &x 8\nbatch_size: *x\nmodel: resnet50\nseed: 1\nseed: 2\ntraining: {lr: 0.1}"
    )
    assert translation.data["batch_sizes"] == 8
    assert translation.left_out["seed"].startswith("is listed twice (first in line 4)")


def test_json_with_tabs_under_any_name(tmp_path: Path) -> None:
    translation = translate(
        tmp_path, '\n{\n\t"model": "resnet50",\n\t"batch_size": 4\n}\n', "config.txt"
    )
    assert translation.data == {"models": "resnet50", "batch_sizes": 4}


@pytest.mark.parametrize(
    ("name", "here"),
    [
        ("resnet101", "torchvision:resnet101"),
        ("BERT-Large", "bert-large"),
        ("openai-community/gpt2-xl", "gpt2-xl"),
        ("timm/vit_tiny", "timm:vit_tiny"),
    ],
)
def test_models_of_an_unknown_form_have_their_names_here(
    tmp_path: Path, name: str, here: str
) -> None:
    translation = translate(tmp_path, f"model: {name}\nbatch_size: 4\n")
    assert translation.data["models"] == [here]
    assert translation.renamed[name] == here


def test_words_of_an_unknown_form_have_their_names_here(tmp_path: Path) -> None:
    translation = translate(
        tmp_path,
        "model: resnet50\nbatch_size: 4\nstrategy: data_parallel\ndtype: bfloat16\n"
        "device: gpu\nwarmup: 7\noptimizer: {name: sgd, lr: 0.1}\n",
    )
    assert translation.data["parallel"] == {"strategy": "ddp"}
    assert translation.data["device"] == "cuda"
    assert translation.data["benchmark"] == {"warmup_steps": 7}
    assert translation.data["training"] == {
        "precision": "bf16",
        "optimizer": "sgd",
        "learning_rate": 0.1,
    }
    assert not translation.left_out


def test_a_name_that_breaks_lines_stays_in_its_comment(tmp_path: Path) -> None:
    translation = translate(
        tmp_path,
        'base_model: "a\\nmodels: evil"\n"k\\ndevice: evil": 1\noptim: "x\\ndevice: evil"\n',
    )
    written = read_yaml(translation.to_yaml("o\nld.yaml"), "new").data
    assert isinstance(written, dict)
    assert "device" not in written


def test_a_large_file_is_no_config(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="larger than 1,000,000 bytes"):
        translate(tmp_path, "a: " + "x" * 1_000_001)
