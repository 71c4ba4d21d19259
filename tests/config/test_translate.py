"""Configs of other tools, with the keys of this one."""

from __future__ import annotations

from pathlib import Path

from torchscale.config.load import load_experiment_from
from torchscale.config.translate import Translation, translated
from torchscale.config.yaml_reader import read_yaml

OLD = """
experiment: {name: old sweep}
model: {name: tiny-resnet}
hardware: {gpus: [1, 2], precision: float16, cooling: water}
training: {batch_size: 8, lr: 1e-3}
benchmark: {warmup_steps: 5}
runs: 3
"""


def test_earlier_keys_find_their_place_and_the_result_loads() -> None:
    translation = translated(read_yaml(OLD, "old").data)  # type: ignore[arg-type]
    assert translation.data == {
        "experiment_name": "old sweep",
        "models": "tiny-resnet",
        "gpu_counts": [1, 2],
        "training": {"precision": "fp16", "learning_rate": 0.001},
        "batch_sizes": 8,
        "benchmark": {"warmup_steps": 5, "repeats": 3},
    }
    assert translation.renamed["training.batch_size"] == "batch_sizes"
    assert "benchmark.warmup_steps" not in translation.renamed
    assert list(translation.left_out) == ["hardware.cooling"]
    experiment = load_experiment_from(translation.data)
    assert experiment.experiment_name == "old sweep"
    assert experiment.benchmark.repeats == 3


def test_a_config_of_this_version_stays_as_it_is() -> None:
    for path in sorted(Path("configs").glob("*.yaml")):
        data = read_yaml(path.read_text(), path.name).data
        assert isinstance(data, dict)
        translation = translated(data)
        assert translation.data == data, path
        assert not translation.renamed
        assert not translation.left_out


def test_the_shortest_config_of_another_tool() -> None:
    assert translated({"model": "resnet50", "batch_size": 64}).data == {
        "models": "resnet50",
        "batch_sizes": 64,
    }


def test_two_keys_for_one_place_keep_the_first() -> None:
    translation = translated({"gpus": 2, "num_gpus": 4})
    assert translation.data == {"gpu_counts": 2}
    assert translation.left_out == {"num_gpus": "gpu_counts has a value already"}


def test_a_key_below_one_that_has_a_value_is_left_out() -> None:
    translation = translated({"training": "fast", "lr": 0.1, "training.lr": 0.1})
    assert translation.data == {"training": "fast"}
    assert translation.left_out["training.lr"] == "training.learning_rate has a value already"


def test_a_name_that_only_resembles_a_key_is_left_out_with_the_key_it_resembles() -> None:
    translation = translated({"batch_sizez": 8, "models": "resnet50"})
    assert translation.left_out == {"batch_sizez": "unknown key; did you mean 'batch_sizes'?"}


def test_options_and_variables_keep_names_that_are_the_users_own() -> None:
    data = {
        "model": {"options": {"gpus": 4}},
        "launch": {"env": {"runs": "1"}},
        "models": "resnet50",
    }
    assert translated(data).data == data  # type: ignore[arg-type]


def test_a_key_of_several_lines_stays_in_its_comment() -> None:
    text = translated({"a\nmodels: evil": 1, "gpus\x1b[31m": 1, "gpus": 2}).to_yaml("o\nld.yaml")
    assert read_yaml(text, "new").data == {"gpu_counts": 2}
    assert "\x1b" not in text


def test_the_file_says_what_was_renamed_and_left_out() -> None:
    text = translated({"gpus": 2, "coolant": "water"}).to_yaml("old.yaml")
    assert text.splitlines() == [
        "# A torchscale experiment, from old.yaml.",
        "# Every key: `torchscale docs configuration`",
        "# gpus is gpu_counts here",
        "# left out: coolant: unknown key",
        "gpu_counts: 2",
    ]


def test_the_first_line_says_whether_it_runs_and_whether_it_is_whole() -> None:
    whole = Translation(suite="a suite", renamed={"a": "b"}, notes=["c is d"])
    assert whole.summary("new", "old") == ["Wrote new from old (a suite)", "  c is d", "  a → b"]
    left_out = dict.fromkeys("abcd", "why")
    part = Translation(left_out=left_out, differs=["it trains"])
    assert part.summary("new", "old")[0] == (
        "Wrote new from old; it trains; not in it, with the reason below: a, b, c …"
    )
    assert part.summary("new", "old")[-1] == "  d left out: why"
    waiting = Translation(left_out=left_out, differs=["it trains"], missing=["no model", "no file"])
    first, second, *_ = waiting.summary("new", "old")
    assert first == "new does not run yet: no model; no file"
    assert second == "  it trains"
    assert "# does not run yet: no file\n# it trains\n" in waiting.to_yaml("old")


def test_a_line_break_in_a_reason_stays_in_its_comment() -> None:
    translation = Translation(notes=["a\nmodels: evil"], missing=["b\nmodels: evil"])
    assert read_yaml(translation.to_yaml("old"), "new").data in (None, {})
    assert all("\n" not in line for line in translation.summary("new", "o\nld"))
