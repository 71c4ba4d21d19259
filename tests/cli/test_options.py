"""What the options of the machine's commands become: typed config values, never text that is parsed as YAML."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from torchscale.cli.main import app
from torchscale.config.experiment import Experiment
from torchscale.errors import ConfigError, TorchscaleError, UsageError


class HandedOver(Exception):
    """Ends a command where the application layer would start."""

    def __init__(self, experiment: Experiment, options: dict[str, Any]) -> None:
        super().__init__()
        self.experiment, self.options = experiment, options


@pytest.fixture(autouse=True)
def no_application_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    def hand_over(experiment: Experiment, **options: Any) -> None:
        raise HandedOver(experiment, options)

    for name in ("machine.measure_collectives", "machine.measure_hardware", "machine.measure_memory"):
        monkeypatch.setattr(f"torchscale.run.{name}", hand_over)
    for name in ("max_batch.find_max_batch", "profile.profile_workload", "benchmark.benchmark", "benchmark.dry_run"):
        monkeypatch.setattr(f"torchscale.run.{name}", hand_over)


def handed_over(*arguments: str) -> HandedOver:
    result = CliRunner().invoke(app, list(arguments))
    assert isinstance(result.exception, HandedOver), (result.exception, result.output)
    return result.exception


def refused(*arguments: str) -> TorchscaleError:
    result = CliRunner().invoke(app, list(arguments))
    assert isinstance(result.exception, TorchscaleError), (result.exception, result.output)
    return result.exception


def test_a_path_is_taken_as_typed() -> None:
    for path in ("/mnt/ann's disk", '/mnt/"two" words', "/mnt/[a, b]", "/mnt/a: b #c", "null"):
        assert handed_over("hardware", "--disk", path).experiment.hardware.disk_path == path


def test_text_that_looks_like_a_boolean_is_text() -> None:
    error = refused("comm", "--link", "true")
    assert isinstance(error, ConfigError)
    assert error.message.startswith("--link true: ")
    assert "'true'" in error.message
    assert "nvlink4" in error.message


def test_options_of_comm() -> None:
    experiment = handed_over(
        "comm", "--op", "all_reduce,barrier", "--op", "broadcast", "-b", "8", "-e", "1MiB", "-d", "fp32,bf16",
        "--iters", "3", "-w", "1", "--algo", "Ring,Tree", "--proto", "Simple", "--link", "nvlink4", "-n", "2",
        "--device", "cpu",
    ).experiment  # fmt: skip
    collectives = experiment.collectives
    assert experiment.measure == ("collectives",)
    assert collectives.operations == ("all_reduce", "barrier", "broadcast")
    assert (collectives.min_bytes, collectives.max_bytes) == (8, 2**20)
    assert collectives.dtypes == ("fp32", "bf16")
    assert (collectives.iterations, collectives.warmup) == (3, 1)
    assert (collectives.algorithms, collectives.protocols) == (("Ring", "Tree"), ("Simple",))
    assert experiment.hardware.link == "nvlink4"
    assert (experiment.gpu_counts, experiment.device) == ((2,), "cpu")


def test_options_of_hardware() -> None:
    passed = handed_over("hardware", "-d", "bf16", "--size", "64,128", "--seconds", "2", "-o", "out")
    hardware = passed.experiment.hardware
    assert (hardware.matmul_dtypes, hardware.matmul_sizes, hardware.seconds) == (("bf16",), (64, 128), 2.0)
    assert passed.experiment.gpu_counts == "auto"
    assert passed.options["output_dir"] == Path("out")
    error = refused("hardware", "--size", "big")
    assert isinstance(error, UsageError)
    assert error.message == "--size big: expected a whole number"


def test_options_of_memory() -> None:
    experiment = handed_over(
        "memory", "-m", "gpt2,bert-base", "-b", "4", "-b", "8", "--precision", "bf16", "--optimizer", "sgd",
        "--strategy", "fsdp", "--limit", "8GiB", "--training.activation_checkpointing=full",
    ).experiment  # fmt: skip
    assert [model.name for model in experiment.models] == ["gpt2", "bert-base"]
    assert experiment.batch_sizes == (4, 8)
    assert experiment.training.precision == ("bf16",)
    assert experiment.training.optimizer == ("sgd",)
    assert experiment.training.activation_checkpointing == ("full",)
    assert experiment.parallel.strategy[0].name == "fsdp"
    assert experiment.memory.limit == 2**33
    assert (experiment.gpu_counts, experiment.launch.isolation) == ((1,), "group")
    assert isinstance(refused("memory"), UsageError)


def test_the_search_for_the_largest_batch_starts_at_one() -> None:
    passed = handed_over("memory", "-m", "gpt2", "--find-max-batch", "--largest", "64")
    assert passed.experiment.batch_sizes == (1,)
    assert passed.options["largest"] == 64


def test_options_of_profile(tmp_path: Path) -> None:
    passed = handed_over("profile", "--model", "resnet50", "--batch-size", "4", "-n", "2", "--duration", "2m")
    assert [model.name for model in passed.experiment.models] == ["resnet50"]
    assert (passed.experiment.batch_sizes, passed.experiment.gpu_counts) == ((4,), (2,))
    assert passed.options["seconds"] == 120.0
    config = tmp_path / "one.yaml"
    config.write_text("models: [gpt2]\nbatch_sizes: [2]\n")
    assert handed_over("profile", "-c", str(config)).experiment.batch_sizes == (2,)
    assert "--duration" in refused("profile", "--duration", "soon").message
    assert "nothing follows --" in refused("profile", "--").message
    assert "are for torchscale's own workloads" in refused("profile", "--gpus", "2", "--", "train.py").message


def test_a_config_and_overrides_of_benchmark_come_in_any_order(tmp_path: Path) -> None:
    config = tmp_path / "one.yaml"
    config.write_text("models: [gpt2]\nbatch_sizes: [2]\n")
    passed = handed_over("benchmark", "--training.precision=bf16", str(config), "--rerun", "failed", "-o", "out")
    assert passed.experiment.training.precision == ("bf16",)
    assert (passed.options["output_dir"], passed.options["rerun"].value) == (Path("out"), "failed")
    assert handed_over("benchmark", "-c", str(config), "--dry-run", "--no-predict").options["predict"] is False


@pytest.mark.parametrize("command", ["comm", "hardware", "memory"])
def test_an_argument_that_is_no_option_is_refused(command: str) -> None:
    model = ["-m", "gpt2"] if command == "memory" else []
    error = refused(command, *model, "stray")
    assert error.message == "unexpected argument 'stray'"
    assert error.hint == f"see `torchscale {command} --help`"
    assert "did you mean" in refused(command, *model, "--devcie=cpu").message
