"""Entries of ``models`` that are programs of the user's own."""

from __future__ import annotations

from typing import Any

import pytest

from torchscale.config.dump import to_yaml
from torchscale.config.experiment import Experiment
from torchscale.config.load import load_experiment, load_experiment_from
from torchscale.config.script import ScriptChoice, filled_arguments
from torchscale.errors import ConfigError


def _experiment(*models: object, **content: object) -> Experiment:
    return load_experiment_from({"models": list(models), "gpu_counts": [1, 2], **content})


def _choice(**keys: Any) -> ScriptChoice:
    return ScriptChoice.model_validate(keys)


def test_a_value_with_spaces_stays_one_argument() -> None:
    text = "train.py --name {name} '--json={\"a\": 1}' 'x y'"

    assert filled_arguments(text, {"name": "two words"}) == [
        "train.py",
        "--name",
        "two words",
        '--json={"a": 1}',
        "x y",
    ]


@pytest.mark.parametrize(
    ("keys", "name"),
    [
        ({"script": "src/train.py --lr 1"}, "train.py"),
        ({"module": "package.train --lr 1"}, "package.train"),
        ({"command": "accelerate launch -n {gpus} src/train.py"}, "train.py"),
        ({"command": "/opt/run.sh {gpus}"}, "run.sh"),
    ],
)
def test_a_script_has_the_name_of_its_file(keys: dict[str, str], name: str) -> None:
    assert _choice(**keys).name == name


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"script": "a.py", "module": "b"}, "one of script, module and command"),
        ({"script": "a.py --lr {lr}"}, "{lr} has no value: add the key 'lr'"),
        ({"script": "a.py", "lr": 1}, "nothing uses the key 'lr': write {lr}"),
        ({"script": "a.py {seed}", "seed": 1}, "'seed' is set by the sweep"),
        ({"script": "a.py 'x"}, "not a command line: No closing quotation"),
        ({"script": ""}, "expected a program"),
        ({"script": "a.py", "steps": 0}, "a number of at least 1"),
        ({"script": "a.py", "steps": "some"}, "'auto'"),
        ({"command": "python a.py"}, "names no {world_size}"),
    ],
)
def test_a_mistake_is_told_with_its_key(entry: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        _experiment(entry)

    assert message in raised.value.message
    assert "models[0]" in raised.value.message


def test_batch_sizes_may_be_left_out_where_no_script_is_told_one() -> None:
    assert _experiment({"script": "a.py"}).batch_sizes == ()
    with pytest.raises(ConfigError, match="batch_sizes: this key is required"):
        _experiment({"script": "a.py {batch_size}"})
    with pytest.raises(ConfigError, match="batch_sizes: this key is required"):
        _experiment({"script": "a.py"}, "tiny-resnet")


def test_the_same_program_twice_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"runs the same program as models\[0\]"):
        _experiment({"script": "a.py"}, {"script": "a.py", "steps": 100})


def test_epochs_of_a_script_are_not_seen() -> None:
    with pytest.raises(ConfigError, match="epochs of a script of your own"):
        _experiment({"script": "a.py"}, training={"epochs": 1})


def test_what_is_shown_loads_to_the_same_experiment(tmp_path: Any) -> None:
    experiment = _experiment(
        {"script": "a.py --lr {lr}", "lr": [0.1, 0.2], "steps": 100}, {"module": "b"}
    )
    path = tmp_path / "shown.yaml"
    path.write_text(to_yaml(experiment))

    assert load_experiment(path) == experiment


def test_a_secret_in_the_command_line_is_kept_apart() -> None:
    address = "https://me:hunter2-hunter2@host/data"
    experiment = _experiment({"script": f"a.py --data {address}"})

    (choice,) = experiment.models
    assert isinstance(choice, ScriptChoice)
    assert "hunter2" not in choice.text
    assert address in str(experiment.hidden[choice.text])
