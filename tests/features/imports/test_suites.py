"""JSON with a model's size and degrees of parallelism."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.features.imports.foreign import loaded, translate
from torchscale.config.translate import Translation


def suite(tmp_path: Path, **sections: Mapping[str, object]) -> Translation:
    usual: dict[str, Mapping[str, object]] = {
        "hardware": {"device_type": "cuda", "num_devices": 4},
        "model": {"model_type": "transformer", "size": "medium"},
        "parallelization": {"strategy": "data", "data_parallel_size": 4},
    }
    return translate(tmp_path, json.dumps({**usual, **sections}), "suite.json")


def test_a_decoder_of_this_size_on_these_devices(tmp_path: Path) -> None:
    translation = suite(
        tmp_path,
        hardware={
            "device_type": "metal",
            "num_devices": 4,
            "interconnect": "unified",
            "network_bandwidth_gbps": 25,
            "memory_per_device_gb": 64,
        },
    )
    assert translation.data == {
        "device": "mps",
        "gpu_counts": [4],
        "hardware": {"link_bytes_per_second": 25e9 / 8},
        "memory": {"limit": "64GiB"},
        "models": ["decoder-medium"],
        "parallel": {"strategy": "ddp"},
        "batch_sizes": [32],
    }
    assert "hardware.interconnect" in translation.left_out
    assert any("32 is torchscale's own choice" in note for note in translation.notes)
    assert loaded(tmp_path, translation).hardware.link_bytes_per_second == 3.125e9


def test_layers_and_width_are_those_of_the_file(tmp_path: Path) -> None:
    model = {"model_type": "transformer", "size": "large", "layers": 12, "hidden_size": 1024}
    assert suite(tmp_path, model=model).data["models"] == [
        {"name": "decoder-large", "num_layers": 12, "hidden_size": 1024}
    ]
    odd = suite(tmp_path, model={**model, "hidden_size": 320, "size": "small"})
    assert odd.data["models"] == [{"name": "decoder-small", "hidden_size": 320, "num_heads": 5}]
    assert "num_heads is not set: 5, of 64 each" in odd.notes
    none = suite(tmp_path, model={**model, "hidden_size": 1001})
    assert "1001 is no multiple of 16 heads" in none.left_out["model.hidden_size"]


@pytest.mark.parametrize(
    ("parallelization", "strategy"),
    [
        ({"strategy": "data"}, "ddp"),
        ({"strategy": "model", "model_parallel_size": 4}, "model"),
        (
            {"strategy": "pipeline", "pipeline_parallel_size": 2},
            {"name": "pipeline", "degree": 2},
        ),
        (
            {"strategy": "pipeline", "micro_batches": 8},
            {"name": "pipeline", "microbatches": 8},
        ),
        ({"strategy": "tensor", "model_parallel_size": 2}, {"name": "tensor", "degree": 2}),
        (
            {"strategy": "hybrid", "data_parallel_size": 2, "model_parallel_size": 2},
            {"name": "hybrid", "data": 2, "tensor": 2},
        ),
    ],
)
def test_strategies_and_degrees(
    tmp_path: Path, parallelization: Mapping[str, object], strategy: object
) -> None:
    translation = suite(tmp_path, parallelization=parallelization)
    assert translation.data["parallel"] == {"strategy": strategy}
    assert not translation.missing
    loaded(tmp_path, translation)


def test_degrees_that_the_devices_do_not_have_do_not_run_yet(tmp_path: Path) -> None:
    translation = suite(
        tmp_path,
        parallelization={"strategy": "hybrid", "data_parallel_size": 3, "model_parallel_size": 2},
    )
    assert "does not multiply to 4" in translation.missing[0]
    loaded(tmp_path, translation)


def test_other_strategies_models_and_keys_are_named(tmp_path: Path) -> None:
    translation = suite(
        tmp_path,
        model={"model_type": "rnn", "size": "small"},
        parallelization={"strategy": "quantum", "model_parallel_size": 2},
        training={"batch_size": 16, "coolant": "water"},
    )
    assert translation.left_out["parallelization.strategy"].startswith("quantum: see ")
    assert translation.left_out["training.coolant"] == "unknown key"
    assert translation.data["batch_sizes"] == 16
    assert translation.missing[0].startswith("unknown model 'rnn'")
    assert "model.size" in translation.left_out


def placed(translation: Translation, key: str) -> str:
    """Where a key went; it must not be said to have had no effect too."""
    assert not any(note.startswith("without effect") and key in note for note in translation.notes)
    return translation.renamed[key]


def test_options_of_a_model_that_are_used_are_said_to_be(tmp_path: Path) -> None:
    model = {"model_type": "gpt", "size": "small", "num_layers": 20, "d_model": "1024"}
    translation = suite(tmp_path, model=model)
    assert placed(translation, "model.num_layers") == "models.num_layers"
    assert placed(translation, "model.d_model") == "models.hidden_size"
    assert placed(translation, "model.size") == "models"
    assert not translation.left_out


def test_options_of_a_model_that_have_no_place_are_left_out_by_name(tmp_path: Path) -> None:
    twice = suite(tmp_path, model={"model_type": "llm", "layers": 20, "num_layers": 10})
    assert twice.data["models"] == [{"name": "decoder-small", "num_layers": 20}]
    assert twice.left_out == {"model.num_layers": "10: num_layers is 20 already"}
    image = suite(tmp_path, model={"model_type": "resnet50", "size": "big", "hidden_size": 64})
    assert image.left_out == {
        "model.size": "big: resnet50 has one size here",
        "model.hidden_size": "resnet50 has no hidden_size here",
    }
    unknown = suite(tmp_path, model={"model_type": "rnn", "layers": 2})
    assert unknown.left_out["model.layers"] == "is of rnn, which is unknown here"
    untyped = suite(tmp_path, model={"size": "small", "layers": 2})
    assert untyped.left_out["model.size"] == "small: model.model_type is not set"
    assert "model.layers" in untyped.left_out


@pytest.mark.parametrize("written", [200, "200", "2e2", " 200.0 "])
def test_numbers_may_be_written_as_text(tmp_path: Path, written: object) -> None:
    hardware = {"network_bandwidth_gbps": written, "memory_per_device_gb": written}
    translation = suite(tmp_path, hardware=hardware, parallelization={"strategy": "data"})
    assert translation.data["hardware"] == {"link_bytes_per_second": 25e9}
    assert translation.data["memory"] == {"limit": "200GiB"}
    assert not translation.left_out


@pytest.mark.parametrize("written", ["fast", "80 GB", 0, "-1", "nan", "inf", True, [1]])
def test_what_is_no_number_is_left_out_by_name(tmp_path: Path, written: object) -> None:
    hardware = {"network_bandwidth_gbps": written, "memory_per_device_gb": written}
    translation = suite(tmp_path, hardware=hardware)
    for key in hardware:
        assert "expected a number above 0, got" in translation.left_out[f"hardware.{key}"]
    assert "hardware" not in translation.data


@pytest.mark.parametrize(
    ("parallelization", "key", "reason"),
    [
        (
            {"strategy": "model", "model_parallel_size": 4},
            "model_parallel_size",
            "4: strategy model has no degree of tensor parallelism; strategies tensor and hybrid "
            "have one",
        ),
        (
            {"strategy": "tensor", "pipeline_stages": 2},
            "pipeline_stages",
            "2: strategy tensor has no degree of pipeline parallelism; strategies pipeline and "
            "hybrid have one",
        ),
        (
            {"strategy": "data", "data_parallel_size": 2},
            "data_parallel_size",
            "2: strategy ddp has no degree of data parallelism; strategy hybrid has one",
        ),
        (
            {"strategy": "hybrid", "tensor_parallel_size": 2, "model_parallel_size": 4},
            "tensor_parallel_size",
            "2: tensor is 4 already",
        ),
    ],
)
def test_degrees_without_a_place_are_explained(
    tmp_path: Path, parallelization: Mapping[str, object], key: str, reason: str
) -> None:
    translation = suite(tmp_path, parallelization=parallelization)
    assert translation.left_out == {f"parallelization.{key}": reason}


def test_degrees_that_change_nothing_are_not_left_out(tmp_path: Path) -> None:
    translation = suite(
        tmp_path,
        parallelization={"strategy": "data", "data_parallel_size": 4, "pipeline_stages": 1},
    )
    assert not translation.left_out
