"""What the options of the machine's commands become: typed config values, never text that is parsed
as YAML."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.factories import experiment, experiment_file, machine
from torchscale.cli.main import app
from torchscale.config.experiment import Experiment
from torchscale.errors import ConfigError, TorchscaleError, UsageError
from torchscale.plan.expand import make_plan
from torchscale.store.run_folder import RunFolder


class HandedOver(Exception):
    """Ends a command where the application layer would start."""

    def __init__(self, experiment: Experiment, options: dict[str, Any]) -> None:
        super().__init__()
        self.experiment, self.options = experiment, options


@pytest.fixture(autouse=True)
def no_application_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    def hand_over(experiment: Experiment, **options: Any) -> None:
        raise HandedOver(experiment, options)

    for name in (
        "features.machine.measure.measure_collectives",
        "features.machine.measure.measure_hardware",
        "features.machine.measure.measure_memory",
        "features.machine.max_batch.find_max_batch",
        "features.trace.profile.profile_workload",
        "measure.benchmark.benchmark",
        "measure.dry_run.dry_run",
    ):
        monkeypatch.setattr(f"torchscale.{name}", hand_over)
    monkeypatch.setattr("torchscale.measure.detection.start_detection", nullcontext)
    monkeypatch.setattr("torchscale.measure.early_start.started_ahead", lambda *_: nullcontext())


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
        assert (
            handed_over("measure", "hardware", "--disk", path).experiment.hardware.disk_path == path
        )


def test_text_that_looks_like_a_boolean_is_text() -> None:
    error = refused("measure", "collectives", "--link", "true")
    assert isinstance(error, ConfigError)
    assert error.message.startswith("--link true: ")
    assert "'true'" in error.message
    assert "nvlink4" in error.message


def test_options_of_collectives() -> None:
    experiment = handed_over(
        "measure", "collectives", "--op", "all_reduce,barrier", "--op", "broadcast", "-b", "8", "-e", "1MiB",
        "-d", "fp32,bf16", "--iters", "3", "-w", "1", "--algo", "Ring,Tree", "--proto", "Simple", "--link", "nvlink4",
        "-n", "2", "--device", "cpu",
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
    passed = handed_over(
        "measure", "hardware", "-d", "bf16", "--size", "64,128", "--seconds", "2", "-o", "out"
    )
    hardware = passed.experiment.hardware
    assert (hardware.matmul_dtypes, hardware.matmul_sizes, hardware.seconds) == (
        ("bf16",),
        (64, 128),
        2.0,
    )
    assert passed.experiment.gpu_counts == "auto"
    assert passed.options["output_dir"] == Path("out")
    error = refused("measure", "hardware", "--size", "big")
    assert isinstance(error, UsageError)
    assert error.message == "--size big: expected a whole number"


def test_options_of_memory() -> None:
    experiment = handed_over(
        "measure", "memory", "-m", "gpt2,bert-base", "-b", "4", "-b", "8", "--precision", "bf16", "--optimizer", "sgd",
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
    assert [model.name for model in handed_over("measure", "memory").experiment.models] == [
        "resnet18"
    ], "as profile has it"


def test_the_search_for_the_largest_batch_starts_at_one() -> None:
    passed = handed_over("measure", "memory", "-m", "gpt2", "--find-max-batch", "--largest", "64")
    assert passed.experiment.batch_sizes == (1,)
    assert passed.options["largest"] == 64


def test_options_of_profile(tmp_path: Path) -> None:
    passed = handed_over(
        "profile", "--model", "resnet50", "--batch-size", "4", "-n", "2", "--duration", "2m"
    )
    assert [model.name for model in passed.experiment.models] == ["resnet50"]
    assert (passed.experiment.batch_sizes, passed.experiment.gpu_counts) == ((4,), (2,))
    assert passed.options["seconds"] == 120.0
    config = tmp_path / "one.yaml"
    config.write_text("models: [gpt2]\nbatch_sizes: [2]\n")
    assert handed_over("profile", "-c", str(config)).experiment.batch_sizes == (2,)
    assert "--duration" in refused("profile", "--duration", "soon").message
    assert "nothing follows --" in refused("profile", "--").message
    assert (
        "are for torchscale's own workloads"
        in refused("profile", "--gpus", "2", "--", "train.py").message
    )


def test_a_config_and_overrides_of_benchmark_come_in_any_order(tmp_path: Path) -> None:
    config = tmp_path / "one.yaml"
    config.write_text("models: [gpt2]\nbatch_sizes: [2]\n")
    passed = handed_over(
        "benchmark", "--training.precision=bf16", str(config), "--rerun", "failed", "-o", "out"
    )
    assert passed.experiment.training.precision == ("bf16",)
    assert (passed.options["output_dir"], passed.options["rerun"].value) == (Path("out"), "failed")
    assert (
        handed_over("benchmark", "-c", str(config), "--dry-run", "--no-predict").options["predict"]
        is False
    )


@pytest.mark.parametrize("command", ["collectives", "hardware", "memory"])
def test_an_argument_that_is_no_option_is_refused(command: str) -> None:
    model = ["-m", "gpt2"] if command == "memory" else []
    error = refused("measure", command, *model, "stray")
    assert error.message == "unexpected argument 'stray'"
    assert error.hint == f"see `torchscale measure {command} --help`"
    assert "did you mean" in refused("measure", command, *model, "--devcie=cpu").message


def in_directory(
    directory: Path, monkeypatch: pytest.MonkeyPatch, *arguments: str
) -> tuple[HandedOver, str]:
    """What was handed over, and what was said before."""
    monkeypatch.chdir(directory)
    result = CliRunner().invoke(app, list(arguments))
    assert isinstance(result.exception, HandedOver), (result.exception, result.output)
    return result.exception, result.output


def test_a_benchmark_of_options_alone_reads_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = (
        "benchmark",
        "--models",
        "resnet50",
        "--batch-sizes",
        "64",
        "--gpus",
        "1,2,4",
        "--optimizer",
        "sgd",
    )
    passed, said = in_directory(tmp_path, monkeypatch, *line)
    asked = passed.experiment
    assert [model.name for model in asked.models] == ["resnet50"]
    assert (asked.batch_sizes, asked.gpu_counts) == ((64,), (1, 2, 4))
    assert (asked.experiment_name, asked.training.optimizer) == ("resnet50", ("sgd",))
    assert "Config: from the options alone" in said
    (tmp_path / "benchmark_config.yaml").write_text(
        "models: [gpt2]\nbatch_sizes: [2]\ntraining: {precision: bf16}\n"
    )
    passed, said = in_directory(tmp_path, monkeypatch, *line)
    assert passed.experiment == asked
    assert "benchmark_config.yaml is not used" in said


def test_options_change_a_config_that_is_named_or_lies_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "benchmark_config.yaml").write_text(
        "models: [gpt2]\nbatch_sizes: [2]\ntraining: {precision: bf16}\n"
    )
    passed, said = in_directory(tmp_path, monkeypatch, "benchmark", "-b", "4,8")
    assert [model.name for model in passed.experiment.models] == ["gpt2"]
    assert (passed.experiment.batch_sizes, passed.experiment.training.precision) == (
        (4, 8),
        ("bf16",),
    )
    assert "Config: benchmark_config.yaml" in said
    passed, _ = in_directory(
        tmp_path, monkeypatch, "benchmark", "benchmark_config.yaml", "-m", "tiny-resnet,tiny-vit"
    )
    assert [model.name for model in passed.experiment.models] == ["tiny-resnet", "tiny-vit"]
    assert passed.experiment.batch_sizes == (2,)


def test_models_with_options_may_be_written_as_in_a_config() -> None:
    models = "--models=[tiny-resnet, {name: gpt2, sequence_length: 64}]"
    passed = handed_over("benchmark", models, "-g", "auto").experiment
    assert [(model.name, model.options) for model in passed.models] == [
        ("tiny-resnet", {}),
        ("gpt2", {"sequence_length": 64}),
    ]
    assert (passed.experiment_name, passed.gpu_counts) == ("tiny-resnet-and-1-more", "auto")


def test_an_option_is_named_as_it_was_typed() -> None:
    assert refused("benchmark", "-m", "resnet51").message.startswith("-m resnet51: unknown model")
    assert refused("benchmark", "--models", "resnet51").message.startswith(
        "--models resnet51: unknown model"
    )
    assert (
        refused("measure", "memory", "--batch-sizes", "x").message
        == "--batch-sizes x: expected a whole number"
    )
    assert (
        refused("measure", "collectives", "-g", "1").message
        == "-g 1: a collective needs at least two devices"
    )


@pytest.mark.parametrize(
    ("argument", "line"),
    [
        ("--epochs=3", "write --training.epochs=3"),
        ("--d-model=512", "write --model.options.d_model=512"),
        ("--name=my run", "write '--experiment_name=my run'"),
    ],
)
def test_options_of_other_tools_answer_with_the_line_to_type(argument: str, line: str) -> None:
    assert refused("benchmark", "--model", "gpt2", argument).hint == line
    assert refused("benchmark", "--model", "gpt2", *argument.split("=")).hint == line


@pytest.mark.parametrize(
    ("argument", "line"),
    [
        ("--data.batch_size=8", "--batch_sizes=8"),
        ("--model.d_model=512", "--model.options.d_model=512"),
        ("--hardware.gpus=[1, 2]", "'--gpu_counts=[1, 2]'"),
    ],
)
def test_keys_of_other_tools_answer_with_the_override_to_type(argument: str, line: str) -> None:
    """In quotes where a shell would split it."""
    assert (
        refused("benchmark", "--model", "gpt2", argument).message
        == f"{argument}: unknown key; write {line}"
    )


def test_profile_takes_overrides_and_a_config_as_argument(tmp_path: Path) -> None:
    config = tmp_path / "one.yaml"
    config.write_text("models: [gpt2]\nbatch_sizes: [2]\n")
    passed = handed_over(
        "profile", str(config), "-g", "4", "-d", "30s", "-t", "kernels", "--training.precision=bf16"
    )
    assert (passed.experiment.training.precision, passed.experiment.gpu_counts) == (("bf16",), (4,))
    assert (passed.options["seconds"], passed.options["target"].value) == (30.0, "kernels")
    assert "unexpected argument" in refused("profile", str(config), "other.yaml").message


def test_profile_in_a_benchmarks_folder_takes_what_was_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = experiment(
        models=["tiny-vit", "tiny-bert"], benchmark={"preset": "quick"}, gpu_counts=[2]
    )
    plan = make_plan(measured, machine(cores=2))
    folder = RunFolder.create(tmp_path / "run", experiment_file(measured, plan.cells))
    for arguments in (("-o", str(folder.path)), (str(folder.path),)):
        passed = handed_over("profile", *arguments)
        assert passed.experiment == measured
        assert (passed.options["output_dir"], passed.options["any_workload"]) == (folder.path, True)
    (tmp_path / "results").mkdir()
    folder.path.rename(tmp_path / "results" / "demo")
    monkeypatch.chdir(tmp_path)
    assert handed_over("profile", "demo").options["output_dir"] == Path("results/demo"), (
        "as `runs` lists it"
    )
    chosen = handed_over("profile", "results/demo", "--model", "tiny-bert").experiment
    assert [model.name for model in chosen.models] == ["tiny-bert"]
    assert chosen.benchmark == measured.benchmark


def test_a_machine_is_named_for_a_dry_run_alone() -> None:
    assert (
        handed_over("benchmark", "-m", "gpt2", "--dry-run", "--hardware", "8xh100").options[
            "hardware"
        ]
        == "8xh100"
    )
    error = refused("benchmark", "-m", "gpt2", "--hardware", "8xh100")
    assert error.message.startswith("--hardware 8xh100 is for --dry-run")


def test_the_value_of_an_override_may_be_the_next_argument(tmp_path: Path) -> None:
    config = tmp_path / "one.yaml"
    config.write_text("models: [gpt2]\nbatch_sizes: [2]\n")
    for arguments in (
        ("--training.precision", "bf16", str(config)),
        (str(config), "--training.precision", "bf16"),
        ("--training.precision", "bf16", "-m", "gpt2", "-b", "2", "--hardware.link", "nvlink4"),
    ):
        assert handed_over("benchmark", *arguments).experiment.training.precision == ("bf16",)
