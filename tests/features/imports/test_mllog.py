"""Logs of MLPerf Training: settings are found among results and damaged lines."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.features.imports.foreign import loaded, translate
from torchscale.errors import ConfigError


def log(**values: object) -> str:
    lines = [
        ":::MLLOG "
        + json.dumps({"namespace": "", "time_ms": 1, "event_type": "X", "key": key, "value": value})
        for key, value in values.items()
    ]
    return "".join(f"0: {line}\n" for line in ["starting …", *lines])


def test_settings_become_keys_and_results_are_listed(tmp_path: Path) -> None:
    text = log(
        submission_benchmark="resnet",
        submission_org="someone",
        global_batch_size=4096,
        gradient_accumulation_steps=2,
        opt_base_learning_rate=0.5,
        opt_name="sgd",
        seed=7,
        run_start=None,
        eval_accuracy=0.7,
        lars_epsilon=0,
    )
    translation = translate(tmp_path, text + ':::MLLOG {"namespace"\n', "result_0.txt")
    assert translation.data == {
        "models": ["resnet50"],
        "training": {
            "gradient_accumulation": 2,
            "learning_rate": 0.5,
            "seed": 7,
            "optimizer": "sgd",
        },
        "scaling": "strong",
        "batch_sizes": 4096,
    }
    assert translation.left_out == {
        ":::MLLOG": "1 of its lines are no JSON with a key",
        "submission_org": "is of the submission",
        "run_start": "is an event of the run",
        "eval_accuracy": "is a result of the run",
        "lars_epsilon": "has no place here",
    }
    assert loaded(tmp_path, translation).scaling == "strong"


def test_parallelism_and_devices(tmp_path: Path) -> None:
    text = log(
        submission_benchmark="llama31_8b",
        number_of_nodes=2,
        accelerators_per_node=8,
        tensor_parallelism=4,
        pipeline_parallelism=2,
        context_parallelism=1,
        micro_batch_size=1,
        gradient_accumulation_steps=4,
        global_batch_size=8,
    )
    translation = translate(tmp_path, text, "x.log")
    assert translation.data["models"] == ["llama-8b"]
    assert translation.data["gpu_counts"] == [16]
    assert translation.data["launch"] == {"nodes": 2}
    assert translation.data["parallel"] == {
        "strategy": {"name": "hybrid", "tensor": 4, "pipeline": 2}
    }
    assert loaded(tmp_path, translation).batch_sizes == (4,)


@pytest.mark.parametrize("name", ["rnnt", "llama2_70b_lora", "dlrm_dcnv2"])
def test_a_benchmark_without_its_model_here_does_not_run_yet(tmp_path: Path, name: str) -> None:
    translation = translate(tmp_path, log(submission_benchmark=name, global_batch_size=8), "x.log")
    assert translation.missing[0].startswith(f"unknown model {name!r}")
    loaded(tmp_path, translation)


def test_a_log_of_too_many_keys_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="more than 1,000 different keys"):
        translate(tmp_path, log(**{f"key_{number}": 1 for number in range(1100)}), "x.log")
