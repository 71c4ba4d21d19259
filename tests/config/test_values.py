from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchscale.config.choices import Rerun
from torchscale.config.experiment import Experiment
from torchscale.config.load import load_experiment, load_experiment_from
from torchscale.config.values import ConfigValue
from torchscale.errors import ConfigError

MEASURE = ConfigValue("measure", ["hardware", "collectives"])
TRAINED: dict[str, object] = {"models": ["gpt2"], "batch_sizes": 4}


def load(*values: ConfigValue, overrides: tuple[str, ...] = ()) -> Experiment:
    return load_experiment(None, overrides, values=(MEASURE, *values))


def complaint(*values: ConfigValue, overrides: tuple[str, ...] = ()) -> str:
    with pytest.raises(ConfigError) as caught:
        load(*values, overrides=overrides)
    return caught.value.message


@settings(max_examples=150)
@given(
    st.text(st.characters(), max_size=60)
    | st.sampled_from(["true", "null", "1e3", "'", "[1, 2]", "a: b", "&a", ""])
)
def test_text_arrives_unchanged_or_as_one_clear_line(text: str) -> None:
    try:
        experiment = load(ConfigValue("hardware.disk_path", text, "--disk"))
    except ConfigError as error:
        assert "\0" in text or any("\ud800" <= char <= "\udfff" for char in text)
        assert error.message.startswith("--disk")
        assert "NUL character" in error.message or "surrogate" in error.message
        assert error.message.isprintable()
    else:
        assert experiment.hardware.disk_path == text


@settings(max_examples=60)
@given(st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.binary(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
))  # fmt: skip
def test_any_value_of_any_key_is_taken_or_gives_printable_lines(value: object) -> None:
    for key in (
        "hardware.link",
        "gpu_counts",
        "collectives.algorithms",
        "launch.env",
        "launch",
        "memory.limit",
    ):
        try:
            load(ConfigValue(key, value, "--option"))
        except ConfigError as error:
            assert all(
                line.startswith("--option") and line.isprintable()
                for line in error.message.split("\n")
            )


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (ConfigValue("hardware.link", "true", "--link"), "--link true: unknown link; known: "),
        (
            ConfigValue("hardware.seconds", -1.0, "--seconds"),
            "--seconds -1.0: expected a number above 0, got -1.0",
        ),
        (
            ConfigValue("gpu_counts", [1, 0], "--gpus"),
            "--gpus 1,0: expected a number of at least 1, got 0",
        ),
        (ConfigValue("gpu_counts", 2**63, "--gpus"), "--gpus: 9.223e+18 is too large a number"),
        (
            ConfigValue("gpu_counts", 10**5000, "--gpus"),
            "a number of more than 300 digits is too large a number",
        ),
        (ConfigValue("hardware.link", object(), "--link"), "a list or a mapping, got object"),
        (ConfigValue("hardware.lnik", "pcie4", "--link"), "unknown key; did you mean 'link'?"),
        (ConfigValue("device.kind", "cpu"), "device.kind=cpu: "),
        (ConfigValue("launch.env", {1: "x"}), "keys must be text, got 1"),
        (ConfigValue("memory.limit", "12 apples", "--limit"), "--limit 12 apples: "),
    ],
)
def test_an_error_names_the_option_and_its_value(value: ConfigValue, message: str) -> None:
    assert message in complaint(value)
    assert "\n" not in complaint(value)


def test_a_long_value_is_cut_in_the_message() -> None:
    assert len(complaint(ConfigValue("hardware.link", "x\n" * 500, "--link"))) < 500


def test_the_error_of_a_section_names_the_option_that_caused_it() -> None:
    values = (
        ConfigValue("collectives.min_bytes", "4KiB", "--min"),
        ConfigValue("collectives.max_bytes", 8, "--max"),
    )
    assert complaint(*values).startswith("--max 8: max_bytes 8 is below min_bytes 4096")


def test_paths_tuples_and_enum_members_are_taken() -> None:
    values = (
        ConfigValue("hardware.disk_path", Path("/mnt/ann's disk")),
        ConfigValue("gpu_counts", (1, 2)),
    )
    experiment = load(*values, ConfigValue("experiment_name", Rerun.ALL))
    assert experiment.hardware.disk_path == "/mnt/ann's disk"
    assert experiment.gpu_counts == (1, 2)
    assert experiment.experiment_name == "all"


def test_an_override_wins_over_a_value_and_is_named() -> None:
    value = ConfigValue("hardware.link", "true", "--link")
    assert load(value, overrides=("--hardware.link=null",)).hardware.link is None
    assert complaint(value, overrides=("--hardware.link=x",)).startswith(
        "--hardware.link=x: unknown link"
    )


def test_a_mapping_is_a_config() -> None:
    data: dict[str, object] = {
        **TRAINED,
        "training": {"precision": ("bf16", "fp32")},
        "launch": {"env": {"A": "1"}},
    }
    experiment = load_experiment_from(data)
    assert experiment == load_experiment(None, ["--models=gpt2", "--batch_sizes=4", "--training.precision=[bf16,fp32]",
                                                "--launch.env.A=1"])  # fmt: skip
    assert data["training"] == {"precision": ("bf16", "fp32")}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"trainin": {}}, r"config: trainin: unknown key; did you mean 'training'\?"),
        (
            {"gpu_counts": [1, 0]},
            r"config: gpu_counts\[1\]: expected a number of at least 1, got 0",
        ),
        (
            {"data": {"data_dir": "a\0b"}},
            r"config: data.data_dir: text must not contain a NUL character",
        ),
        ({"data": object()}, r"config: data: expected text, a number, .* got object"),
        ({3: 4}, r"config: keys must be text, got 3"),
        ({"batch_sizes": "4"}, r"config: batch_sizes: expected a whole number, got '4'"),
    ],
)
def test_a_mapping_has_the_error_messages_of_a_file(
    changes: Mapping[str, object], message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load_experiment_from({**TRAINED, **changes})
    assert re.match(message, caught.value.message)


def test_a_mapping_that_contains_itself_is_refused() -> None:
    data: dict[str, object] = dict(TRAINED)
    data["launch"] = data
    with pytest.raises(ConfigError, match="nested more than 20 levels deep"):
        load_experiment_from(data)
