"""JSON with a model's size and degrees of parallelism."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.imports.foreign import loaded, translate
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
