"""The commands that run no benchmark, through the whole program."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
import yaml

from tests.cli.program import torchscale
from tests.factories import run
from torchscale import __version__
from torchscale.catalog.models import MODELS
from torchscale.catalog.presets import HARDWARE_PRESETS
from torchscale.config.load import load_experiment
from torchscale.store.run_folder import RunFolder

CONFIG = (
    "models: [resnet50, bert-large]\nbatch_sizes: [64, 128, 256]\ngpu_counts: [1, 2, 4, 8]\ndevice: "
    "cpu\n"
)


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    """A run of two cells, written as a sweep writes it."""
    content = run()
    folder = RunFolder.create(tmp_path / "results" / "run", content.experiment)
    for cell_run in content.cells:
        for launch in cell_run.launches:
            folder.begin_launch(cell_run.planned.cell, launch.launch)
            folder.finish_launch(cell_run.planned.cell, launch)
    return folder.path


def test_version_and_help(tmp_path: Path) -> None:
    assert torchscale(tmp_path, "--version").stdout == f"torchscale {__version__}\n"
    done = torchscale(tmp_path, "--help")
    assert done.returncode == 0
    for command in ("validate", "benchmark", "report", "compare", "measure", "init", "docs"):
        assert command in done.stdout


@pytest.mark.parametrize(
    "command",
    [
        "validate",
        "benchmark",
        "submit",
        "report",
        "report serve",
        "runs",
        "compare",
        "runs baselines",
        "init",
        "measure",
        "measure memory",
        "docs",
        "docs names",
        "docs schema",
    ],
)
def test_every_command_has_help_with_an_example(tmp_path: Path, command: str) -> None:
    done = torchscale(tmp_path, *command.split(), "--help")
    assert done.returncode == 0
    assert "Example" in done.stdout
    assert f"torchscale {command}" in done.stdout


@pytest.mark.slow
def test_a_plan_without_a_run(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(CONFIG)
    done = torchscale(
        tmp_path, "benchmark", "config.yaml", "--dry-run", "--no-predict", "--launch.devices=[0]"
    )
    assert done.returncode == 0, done.stderr
    assert "24 cells: 6 to run (6 launches), 18 skipped." in done.stdout
    assert "needs 8 devices" in done.stdout
    assert not (tmp_path / "results").exists()
    plan = json.loads(
        torchscale(
            tmp_path, "benchmark", "config.yaml", "--dry-run", "--no-predict", "--json"
        ).stdout
    )
    assert len(plan["cells"]) == 24
    assert plan["device"] == "cpu"


@pytest.mark.slow
def test_a_plan_of_nothing_exits_as_the_run_would(tmp_path: Path) -> None:
    line = ("benchmark", "--model", "absent_module:build", "--batch-size", "8", "--gpus", "1")
    run, plan = torchscale(tmp_path, *line), torchscale(tmp_path, *line, "--dry-run")
    assert (run.returncode, plan.returncode) == (3, 3)
    assert "1 cell: 0 to run (0 launches), 1 skipped." in plan.stdout
    reason = "error: this machine can run none of 1 cell; the first: absent_module:build: Module"
    assert reason in run.stderr
    assert reason in plan.stderr
    assert "hint" not in plan.stderr, "the table has the reasons"
    assert not (tmp_path / "results").exists()


@pytest.mark.slow
def test_a_plan_for_the_folder_of_another_experiment_is_refused_as_the_run_is(
    tmp_path: Path, run_folder: Path
) -> None:
    line = (
        "benchmark",
        "--model",
        "tiny-gpt2",
        "--batch-size",
        "8",
        "--gpus",
        "1",
        "-o",
        run_folder,
    )
    words = [*map(str, line), "--training.precision=bf16"]
    run, plan = torchscale(tmp_path, *words), torchscale(tmp_path, *words, "--dry-run")
    assert (run.returncode, plan.returncode) == (2, 2)
    assert plan.stderr.splitlines()[-1] in run.stderr


def test_a_plan_for_a_machine_that_is_not_here(tmp_path: Path) -> None:
    said = torchscale(tmp_path, "init", "-o", "h100.yaml", "--hardware", "8xh100").stderr
    line = "benchmark h100.yaml --dry-run --hardware 8xh100"
    assert f"Next: torchscale {line}" in said
    done = torchscale(tmp_path, *line.split(), "--no-predict", "--gpus", "8,16")
    assert done.returncode == 0, done.stderr
    assert "18 cells: 9 to run (9 launches), 9 skipped. On 8 × NVIDIA H100 80GB HBM3" in done.stdout
    assert "planned for 8xh100, not this machine" in done.stdout
    assert "needs 16 devices; there are 8 GPUs" in done.stdout
    v100 = torchscale(
        tmp_path, "benchmark", "h100.yaml", "--dry-run", "--hardware", "8xv100", "--no-predict"
    )
    assert "bf16 needs compute capability 8.0; Tesla V100-SXM2 has 7.0" in v100.stdout
    unknown = torchscale(tmp_path, "benchmark", "h100.yaml", "--dry-run", "--hardware", "8xh10")
    assert (unknown.returncode, "did you mean '8xh100'?" in unknown.stderr) == (2, True)


def test_a_plan_knows_what_was_measured(tmp_path: Path, run_folder: Path) -> None:
    config = "models: tiny-resnet\nbatch_sizes: [8]\ngpu_counts: [1, 2]\n"
    (tmp_path / "config.yaml").write_text(config)
    line = (
        "benchmark",
        "config.yaml",
        "--dry-run",
        "--hardware",
        "cpu",
        "--no-predict",
        "-o",
        str(run_folder),
    )
    assert (
        "2 cells: 2 done, none to run (2 launches: 2 done, 0 left), 0 skipped."
        in torchscale(tmp_path, *line).stdout
    )
    again = torchscale(tmp_path, *line, "--rerun", "all", "--json")
    assert [
        (cell["launches_done"], cell["launches_left"]) for cell in json.loads(again.stdout)["cells"]
    ] == [(0, 1)] * 2
    thrice = torchscale(tmp_path, *line, "--benchmark.repeats=3").stdout
    assert "2 cells: 2 to run (6 launches: 2 done, 4 left), 0 skipped." in thrice


def test_a_config_is_written_as_json_where_its_name_says_so(tmp_path: Path) -> None:
    assert torchscale(tmp_path, "init", "config.json", "--hardware", "4xa100").returncode == 0
    assert load_experiment(tmp_path / "config.json").gpu_counts == (1, 2, 4)
    two = torchscale(tmp_path, "init", "a.yaml", "-o", "b.yaml")
    assert (two.returncode, "two files" in two.stderr) == (2, True)


def test_a_config_of_another_tool_is_translated(tmp_path: Path) -> None:
    (tmp_path / "old.yaml").write_text(
        "model: tiny-resnet\ndata: {batch_size: 8}\ngpus: [1, 2]\ncoolant: water\n"
    )
    done = torchscale(tmp_path, "init", "new.yaml", "--from", "old.yaml", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["left_out"] == {"coolant": "unknown key"}
    assert "data.batch_size → batch_sizes" in done.stderr
    assert load_experiment(tmp_path / "new.yaml").gpu_counts == (1, 2)
    again = torchscale(tmp_path, "init", "new.yaml", "--from", "old.yaml")
    assert (again.returncode, "new.yaml exists" in again.stderr) == (2, True)
    (tmp_path / "wrong.yaml").write_text("model: no-such-model\nbatch_size: 8\n")
    wrong = torchscale(tmp_path, "init", "made.yaml", "--from", "wrong.yaml")
    assert (wrong.returncode, "unknown model 'no-such-model'" in wrong.stderr) == (2, True)
    (tmp_path / "foreign.yaml").write_text("a: 1\n")
    foreign = torchscale(tmp_path, "init", "other.yaml", "--from", "foreign.yaml")
    assert (foreign.returncode, "no key of it is known here" in foreign.stderr) == (2, True)
    both = torchscale(tmp_path, "init", "--from", "old.yaml", "--example", "strong_scaling")
    assert (both.returncode, "--from contradicts" in both.stderr) == (2, True)
    assert not (tmp_path / "other.yaml").exists()


def test_the_first_line_says_whether_a_translated_config_runs(tmp_path: Path) -> None:
    (tmp_path / "whole.yaml").write_text("base_model: gpt2\nmicro_batch_size: 2\n")
    done = torchscale(tmp_path, "init", "new.yaml", "--from", "whole.yaml")
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[0] == "Wrote new.yaml from whole.yaml (Hugging Face Trainer)"
    (tmp_path / "part.yaml").write_text("distributed_type: FSDP\nnum_processes: 2\ncoolant: 1\n")
    for arguments in (("--json",), ("--force", "--quiet")):
        part = torchscale(tmp_path, "init", "made.yaml", "--from", "part.yaml", *arguments)
        assert part.returncode == 2
        first = part.stderr.splitlines()[0]
        assert first.startswith("error: made.yaml does not run yet: this config of accelerate")
    assert "# does not run yet: this config" in (tmp_path / "made.yaml").read_text()
    assert load_experiment(tmp_path / "made.yaml").gpu_counts == (2,)


def test_the_documentation_comes_with_the_program(tmp_path: Path) -> None:
    pages = torchscale(tmp_path, "docs").stdout
    assert {"cli", "configuration", "method"} <= {line.split()[0] for line in pages.splitlines()}
    page = torchscale(tmp_path, "docs", "docs/cli.md").stdout
    assert page == (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
    missing = torchscale(tmp_path, "docs", "configurations")
    assert (missing.returncode, "did you mean 'configuration'?" in missing.stderr) == (2, True)


def test_the_suffix_of_a_file_is_its_format(tmp_path: Path, run_folder: Path) -> None:
    assert torchscale(tmp_path, "report", str(run_folder), "-o", "out.pdf").returncode == 0
    assert (tmp_path / "out.pdf").read_bytes().startswith(b"%PDF")
    done = torchscale(
        tmp_path, "report", str(run_folder), "--format", "html", "--output", "other.pdf"
    )
    assert (done.returncode, (tmp_path / "other.pdf").exists()) == (2, False)


@pytest.mark.slow
def test_nothing_that_can_run_is_the_machines_fault(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(CONFIG)
    done = torchscale(tmp_path, "benchmark", "config.yaml", "--gpu_counts=[4096]")
    assert done.returncode == 3
    assert "this machine can run none of 6 cells; the first: needs 4096 devices" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("benchmark",), "no config: there is no benchmark_config.yaml here"),
        (("benchmark", "none.yaml"), "none.yaml: No such file or directory"),
        (("benchmark", "a.yaml", "b.yaml"), "more than one config: a.yaml, b.yaml"),
        (("benchmark", "config.yaml", "--training.precision=bf61"), "did you mean 'bf16'?"),
        (("benchmark", "config.yaml", "--dry-rnu"), "did you mean '--dry-run'?"),
        (("report",), "no run is named, and there is none in ./results"),
        (("report", "--source", "none"), "there is no run 'none'"),
        (("report", "--source", "."), "is not a results directory"),
        (("report", "config.yaml"), "torchscale compare config.yaml OTHER"),
        (("init", "--hardware", "8xh10"), "did you mean '8xh100'?"),
        (("init", "none/config.yaml"), "none is not a directory"),
        (("validate", "--timeout", "soon"), "'soon' is not a duration"),
        (("validate", "--require", "cuda,tpu"), "--require tpu: expected one of cuda, nccl, nsys"),
        (("validate", "--pairwise"), "--pairwise measures pairs of nodes"),
        (("validate", "--node-rank", "1"), "--node-rank 1 is for several nodes"),
        (("report", "--format", "html,doc"), "--format doc: expected one of html, pdf, md"),
    ],
)
def test_wrong_input_is_told_in_a_line_and_exits_with_2(
    tmp_path: Path, arguments: tuple[str, ...], told: str
) -> None:
    (tmp_path / "config.yaml").write_text(CONFIG)
    done = torchscale(tmp_path, *arguments)
    assert done.returncode == 2
    assert told in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_a_started_config_loads_for_every_machine(tmp_path: Path) -> None:
    for name in HARDWARE_PRESETS:
        assert torchscale(tmp_path, "init", f"{name}.yaml", "--hardware", name).returncode == 0
        experiment = load_experiment(tmp_path / f"{name}.yaml")
        assert [model.name for model in experiment.models] == list(HARDWARE_PRESETS[name].models)
        assert (tmp_path / f"{name}.yaml").read_text().count("#") > 10
    done = torchscale(tmp_path, "init")
    assert "Next: torchscale benchmark" in done.stderr
    again = torchscale(tmp_path, "init")
    assert (again.returncode, "benchmark_config.yaml exists" in again.stderr) == (2, True)
    assert torchscale(tmp_path, "init", "--force").returncode == 0


def test_a_config_is_shown_with_every_default_and_has_a_schema(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(CONFIG)
    shown = torchscale(
        tmp_path, "benchmark", "config.yaml", "--training.precision=amp", "--show-config"
    )
    assert yaml.safe_load(shown.stdout)["training"]["precision"] == ["fp16"]
    assert "models: [resnet50, bert-large]\n" in shown.stdout
    (tmp_path / "again.yaml").write_text(shown.stdout)
    assert torchscale(tmp_path, "benchmark", "again.yaml", "--show-config").stdout == shown.stdout
    as_json = torchscale(tmp_path, "benchmark", "config.yaml", "--show-config", "--json")
    assert json.loads(as_json.stdout)["batch_sizes"] == [64, 128, 256]
    assert (
        json.loads(torchscale(tmp_path, "docs", "schema", "config").stdout)["title"] == "Experiment"
    )


def test_ready_made_experiments_are_listed_and_written(tmp_path: Path) -> None:
    ready = sorted((Path(__file__).parents[2] / "configs").glob("*.yaml"))
    listed = torchscale(tmp_path, "init", "--list", columns=400).stdout.splitlines()
    assert [line.split(maxsplit=1)[0] for line in listed] == [path.stem for path in ready]
    assert all(line.split(maxsplit=1)[1].endswith((".", "?")) for line in listed), "whole sentences"
    done = torchscale(tmp_path, "init", "--example", "hybrid")
    assert (done.returncode, "torchscale benchmark hybrid.yaml --dry-run" in done.stderr) == (
        0,
        True,
    )
    assert (tmp_path / "hybrid.yaml").read_text() == ready[
        [path.stem for path in ready].index("hybrid")
    ].read_text()
    assert torchscale(tmp_path, "init", "--example", "hybrid").returncode == 2, "it exists"
    assert torchscale(tmp_path, "init", "mine.json", "--example", "llm_fsdp").returncode == 0
    assert [model.name for model in load_experiment(tmp_path / "mine.json").models] == [
        "llama-1b",
        "llama-8b",
    ]
    for arguments, message in (
        (("--example", "hybird"), "did you mean 'hybrid'?"),
        (("--example", "../hybrid"), "no such experiment"),
        (("--example", "hybrid", "--hardware", "8xh100"), "contradict each other"),
    ):
        refused = torchscale(tmp_path, "init", *arguments)
        assert (refused.returncode, message in refused.stderr) == (2, True), arguments


def test_the_names_that_a_config_may_use(tmp_path: Path) -> None:
    everything = json.loads(torchscale(tmp_path, "docs", "names", "--json").stdout)
    kinds = {
        "models",
        "strategies",
        "precisions",
        "optimizers",
        "presets",
        "hardware",
        "devices",
        "links",
    }
    assert set(everything) == kinds
    assert {"name": "nvlink4", "per direction": 450e9}.items() <= everything["links"][2].items()
    models = {row["name"]: row for row in everything["models"]}
    assert models["resnet50"]["parameters"] == MODELS["resnet50"].parameters
    assert models["resnet50"]["forward"] == MODELS["resnet50"].forward_flops
    assert models["timm:NAME"]["parameters"] is None
    h100 = next(row for row in everything["devices"] if row["name"] == "H100 SXM")
    assert h100["memory bandwidth"] == 3.35e12
    assert h100["dense peaks"]["bf16"] == pytest.approx(989.4e12)
    narrow = torchscale(tmp_path, "docs", "names", "models", columns=80).stdout
    assert "25.6 M" in narrow
    assert "sequence_length=2048" in narrow.replace("\n", "").replace(" ", "")
    assert "…" not in narrow
    shown = torchscale(tmp_path, "docs", "names", "devices", columns=200).stdout
    shown += torchscale(tmp_path, "docs", "names", "links").stdout
    assert "3.35 TB/s" in shown
    assert "bf16 989 TFLOP/s" in shown
    assert "450 GB/s" in shown


def test_reports_both_ways_in_every_format(tmp_path: Path, run_folder: Path) -> None:
    for arguments in (("report", "--source"), ("report", "generate", "--source")):
        formats = [
            "--format",
            "html,pdf",
            *(part for name in ("md", "csv", "json") for part in ("--format", name)),
        ]
        done = torchscale(tmp_path, *arguments, str(run_folder), *formats)
        assert done.returncode == 0, done.stderr
        for name in ("html", "pdf", "md", "csv", "json"):
            path = run_folder / f"report.{name}"
            assert f"Wrote {path}" in done.stderr
            path.unlink()
    assert torchscale(tmp_path, "report").returncode == 0
    assert (run_folder / "report.html").exists()


def test_one_cell_as_a_vertical_table(tmp_path: Path, run_folder: Path) -> None:
    shown = torchscale(tmp_path, "report", str(run_folder), "--cell", "n2")
    assert shown.returncode == 0, shown.stderr
    rows = [line.strip().split(maxsplit=1) for line in shown.stdout.splitlines()]
    assert rows[0][0] == "cell" and "-n2-" in rows[0][1]
    assert ["state", "ok"] in rows
    assert not (run_folder / "report.html").exists()
    both = torchscale(tmp_path, "report", "generate", str(run_folder), "--cell", "tiny-resnet")
    assert (both.returncode, "2 cells fit" in both.stderr, "-n1-" in both.stderr) == (2, True, True)
    none = torchscale(tmp_path, "report", str(run_folder), "--cell", "bert")
    assert (none.returncode, "no such cell" in none.stderr) == (2, True)
    mixed = torchscale(tmp_path, "report", str(run_folder), "--cell", "n2", "-f", "pdf")
    assert (mixed.returncode, "leave the other options out" in mixed.stderr) == (2, True)


def test_a_report_to_standard_output_or_a_file(tmp_path: Path, run_folder: Path) -> None:
    source = ("report", "--source", str(run_folder))
    assert torchscale(tmp_path, *source, "-f", "md", "-o", "-").stdout.startswith(
        "# Training scaling"
    )
    assert "Measured? all: 2 of 2 cells" in torchscale(tmp_path, *source, "-f", "terminal").stdout
    assert torchscale(tmp_path, *source, "-f", "csv", "-o", "out.csv").returncode == 0
    assert (tmp_path / "out.csv").read_text().startswith("cell_id,")
    assert torchscale(tmp_path, *source, "-f", "pdf", "-o", "-").returncode == 2
    assert torchscale(tmp_path, *source, "-f", "md", "-f", "csv", "-o", "x").returncode == 2
    assert torchscale(tmp_path, *source, "-o", "no/where.html").returncode == 3


@pytest.mark.slow
@pytest.mark.campaign
def test_validate(tmp_path: Path) -> None:
    """Also with a burn-in in tests/integration/test_burn_in.py, and on two nodes in
    test_fleet.py."""
    done = torchscale(tmp_path, "validate", "--json")
    content = json.loads(done.stdout)
    assert done.returncode == (0 if content["fit"] else 1)
    assert content["facts"]["collective"]["wrong_elements"] == 0
    assert {check["status"] for check in content["checks"]} <= {"pass", "warn", "fail", "n/a"}
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.campaign
@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="this machine has a GPU")
def test_requiring_cuda_where_there_is_none(tmp_path: Path) -> None:
    done = torchscale(tmp_path, "validate", "--require", "cuda")
    assert done.returncode == 3
    assert "Not fit" in done.stdout


def test_a_price_puts_costs_into_the_report(tmp_path: Path, run_folder: Path) -> None:
    """80 samples a second for $3.60 an hour are 80,000 for a dollar."""
    source = ("report", "--source", str(run_folder), "-f", "md", "-o", "-")
    assert "samples/$" not in torchscale(tmp_path, *source).stdout
    assert "| 80,000 |" in torchscale(tmp_path, *source, "--cost", "3.60").stdout
    for price in ("0", "-1", "nan", "inf"):
        done = torchscale(tmp_path, *source, "--cost", price)
        assert (done.returncode, done.stdout) == (2, "")
        assert "expected a price above 0" in done.stderr


@pytest.mark.slow
def test_serving_tells_its_address_and_ends_with_ctrl_c(tmp_path: Path, run_folder: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "torchscale",
        "report",
        "serve",
        "--source",
        str(run_folder),
        "--port",
        "0",
    ]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stderr is not None
            said = server.stderr.readline()
            address = re.search(r"http://127\.0\.0\.1:\d+/", said)
            assert address is not None, said
            with urllib.request.urlopen(address[0], timeout=60) as response:  # noqa: S310 - matched above
                assert b"<title>Training scaling: " in response.read()
            server.send_signal(signal.SIGINT)
            assert server.wait(30) == 130, "interrupted, like every command"
            assert server.stderr.read() == ""
        finally:
            server.kill()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--source", "no-run"), "no-run is not a results directory"),
        (("--cost", "0"), "expected a price above 0"),
        (("--port", "70000"), "less than or equal to 65535"),
        (
            ("--host", "no.such.host.invalid", "--port", "0"),
            "cannot listen on no.such.host.invalid",
        ),
    ],
)
def test_what_cannot_be_served_is_told(
    tmp_path: Path, run_folder: Path, arguments: tuple[str, ...], told: str
) -> None:
    (tmp_path / "no-run").mkdir()
    (tmp_path / "no-run" / "notes.txt").touch()
    done = torchscale(tmp_path, "report", "serve", *arguments)
    assert done.returncode in (2, 3)
    assert told in done.stderr
    assert "Traceback" not in done.stderr


def test_an_interrupt_that_a_library_wraps_in_its_own_error_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As pydantic does where Ctrl-C comes while the program's modules are imported."""

    def wrapping(*, interrupted: bool) -> None:
        try:
            if interrupted:
                os.kill(os.getpid(), signal.SIGINT)
        except BaseException as error:
            raise ValueError("wrapped") from error
        raise ValueError("its own")

    monkeypatch.setattr("torchscale.cli.main.app", lambda: wrapping(interrupted=True))
    done = torchscale(tmp_path, "validate")
    assert (done.returncode, done.stderr) == (130, "")
    monkeypatch.setattr("torchscale.cli.main.app", lambda: wrapping(interrupted=False))
    with pytest.raises(ValueError, match="its own"):
        torchscale(tmp_path, "validate")
