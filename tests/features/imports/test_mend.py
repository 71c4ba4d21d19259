"""What is written loads: values that the loader refuses are left out with its reason."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from torchscale.config.load import config_problems
from torchscale.config.translate import Translation
from torchscale.config.yaml_reader import Data
from torchscale.features.imports.mend import mend
from torchscale.features.imports.names import PLACEHOLDER_MODEL


def mended(**data: Data) -> Translation:
    translation = Translation(data={"models": ["resnet50"], "batch_sizes": [8], **data})
    mend(translation)
    assert not config_problems(translation.data)
    return translation


@pytest.mark.parametrize(
    ("data", "key", "reason"),
    [
        ({"training": {"precision": ["fp16", "int8"]}}, "training.precision[1]", "got 'int8'"),
        ({"training": {"precision": "int8"}}, "training.precision", "got 'int8'"),
        ({"benchmark": {"warmup_steps": 0}}, "benchmark.warmup_steps", "at least 1"),
        ({"nonsense": {"a": 1}}, "nonsense", "unknown key"),
        ({"training": "fast"}, "training", "expected a mapping"),
        ({"experiment_name": "a/b"}, "experiment_name", "must be a plain file name"),
        ({"parallel": {"strategy": {"name": "warp"}}}, "parallel.strategy", "got"),
        ({"model": {"options": {"colour": 1}}}, "model.options.colour", "no model of this config"),
    ],
)
def test_a_value_that_is_refused_is_left_out(
    data: Mapping[str, Data], key: str, reason: str
) -> None:
    translation = mended(**data)
    assert reason in translation.left_out[key]
    assert translation.data["models"] == ["resnet50"]
    assert not translation.missing


def test_a_value_that_is_refused_is_listed_by_its_own_key() -> None:
    translation = Translation(
        data={"models": ["resnet50"], "batch_sizes": [8], "training": {"precision": True}},
        renamed={"mixed": "training.precision"},
    )
    mend(translation)
    assert "got true" in translation.left_out["mixed"]
    assert not translation.renamed


def test_of_two_keys_that_exclude_each_other_the_one_that_is_kept_is_named() -> None:
    translation = mended(training={"epochs": 2}, benchmark={"measure_steps": 100})
    assert translation.left_out == {
        "training.epochs": "cannot be combined with benchmark.measure_steps or "
        "benchmark.measure_seconds; kept: benchmark.measure_steps"
    }
    assert translation.data["benchmark"] == {"measure_steps": 100}


def test_without_a_known_model_a_placeholder_loads_and_does_not_run_yet() -> None:
    translation = mended(models=["resnot50"])
    assert translation.data["models"] == [PLACEHOLDER_MODEL]
    assert translation.missing == [
        "unknown model 'resnot50'; did you mean 'resnet50'?; put yours in the place of "
        f"{PLACEHOLDER_MODEL}"
    ]
    empty = Translation(data={"device": "cpu"})
    mend(empty)
    assert empty.missing[0].startswith("it names no model")
    assert "32 is torchscale's own choice" in empty.notes[0]


def test_a_known_model_beside_an_unknown_one_runs() -> None:
    translation = mended(models=["resnet50", {"name": "resnot50", "x": 1}])
    assert translation.data["models"] == ["resnet50"]
    assert not translation.missing
    assert any("unknown model 'resnot50'" in reason for reason in translation.left_out.values())


def test_degrees_that_no_count_has_do_not_run_yet() -> None:
    strategy: Data = {"name": "hybrid", "data": 2, "tensor": 2}
    decoder: Data = ["decoder-small"]
    kept = mended(models=decoder, gpu_counts=[2, 4], parallel={"strategy": strategy})
    assert not kept.missing
    refused = mended(models=decoder, gpu_counts=[8], parallel={"strategy": strategy})
    assert "does not multiply to 8" in refused.missing[0]


def test_a_model_that_cannot_be_split_so_does_not_run_yet() -> None:
    tensor: Data = {"strategy": "tensor"}
    refused = mended(models=["bert-large"], gpu_counts=[2], parallel=tensor)
    assert refused.missing == ["bert-large does not support tensor parallelism"]
    assert not mended(models=["bert-large"], gpu_counts=[1], parallel=tensor).missing
    assert not mended(models=["bert-large", "llama-1b"], gpu_counts=[2], parallel=tensor).missing
    assert not mended(models=["a.b:c"], gpu_counts=[2], parallel=tensor).missing
