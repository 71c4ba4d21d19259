"""``--json``: every command that prints results has it, and standard output is then one JSON
document."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from tests.cli.program import torchscale
from tests.factories import run
from torchscale import cli
from torchscale.cli.main import app
from torchscale.store.run_folder import RunFolder

WITHOUT = {
    "export": "prints the format that --to names",
    "report serve": "prints nothing: it answers a browser",
    "docs schema": "prints JSON whatever is asked",
}
"""Command → why it has no ``--json``."""


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Every command that does something by itself, with its path."""
    if path and (not hasattr(command, "commands") or command.invoke_without_command):
        yield " ".join(path), command
    for name, child in getattr(command, "commands", {}).items():
        yield from commands(child, (*path, name))


@pytest.mark.parametrize(("path", "command"), list(commands(typer.main.get_command(app))), ids=str)
def test_every_command_that_prints_results_has_it(path: str, command: Any) -> None:
    has = any("--json" in parameter.opts for parameter in command.params)
    assert has is (path not in WITHOUT)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two cells in ``results``, a baseline of it, a table and a config."""
    directory = tmp_path_factory.mktemp("json")
    content = run()
    run_folder = RunFolder.create(directory / "results" / "demo", content.experiment)
    for cell_run in content.cells:
        for launch in cell_run.launches:
            run_folder.begin_launch(cell_run.planned.cell, launch.launch)
            run_folder.finish_launch(cell_run.planned.cell, launch)
    (directory / "points.csv").write_text("gpus,nodes,throughput\n8,1,1000\n16,2,1900\n")
    (directory / "my.yaml").write_text("models: gpt2\nbatch_sizes: 1\n")
    assert torchscale(directory, "compare", "demo", "--save", "main").returncode == 0
    return directory


@pytest.mark.parametrize(
    "line",
    [
        "init new.yaml --hardware cpu",
        "init --list",
        "init --example hybrid",
        "benchmark my.yaml --show-config",
        "benchmark my.yaml --dry-run --no-predict --hardware 8xh100",
        "report",
        "report demo",
        "report demo --cell n2",
        "report demo -o report.html",
        "report generate demo --format md,csv",
        "report demo --summary",
        "runs",
        "runs baselines",
        "runs baselines main",
        "compare main demo --fail-on never",
        "compare main demo --fail-on never -o comparison.md",
        "compare demo --save other",
        "history",
        "history --html history.html",
        "predict --table points.csv --gpus 32",
        "predict --table points.csv --gpus 32 -o predict.html",
        "submit my.yaml --print",
        "docs",
        "docs cli",
        "docs names links",
        "docs schema config",
    ],
)
def test_standard_output_is_one_document(folder: Path, line: str) -> None:
    arguments = line.split() if line.startswith("docs schema") else [*line.split(), "--json"]
    done = torchscale(folder, *arguments)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)
    assert done.stdout.endswith("\n")


@pytest.mark.parametrize(
    "line",
    [
        "report demo -o -",
        "compare main demo -o -",
        "predict --table points.csv --gpus 32 -o -",
        "history --html -",
    ],
)
def test_two_documents_on_standard_output_are_refused(folder: Path, line: str) -> None:
    done = torchscale(folder, *line.split(), "--json")
    assert (done.returncode, done.stdout) == (2, "")
    assert "both print to standard output" in done.stderr


def test_what_is_printed_as_json_is_not_written_unless_a_file_is_asked_for(folder: Path) -> None:
    before = {path for path in folder.rglob("*") if path.is_file()}
    for line in (
        "report demo",
        "compare main demo --fail-on never",
        "compare main demo --fail-on never --format json",
    ):
        assert torchscale(folder, *line.split(), "--json").returncode == 0
    assert {path for path in folder.rglob("*") if path.is_file()} == before
    assert torchscale(folder, "report", "demo", "--json", "-o", "asked.html").returncode == 0
    assert (folder / "asked.html").is_file()


def test_md_or_json_alone_is_printed_and_several_are_written(folder: Path, tmp_path: Path) -> None:
    line = (
        "compare",
        str(folder / "results" / "demo"),
        str(folder / "results" / "demo"),
        "--fail-on",
        "never",
    )
    for name in ("md", "json"):
        done = torchscale(tmp_path, *line, "--format", name)
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip()
        assert not list(tmp_path.iterdir())
    assert torchscale(tmp_path, *line, "--format", "md,json").stdout == ""
    assert {path.name for path in tmp_path.iterdir()} == {"comparison.md", "comparison.json"}


def test_one_cell_is_the_one_in_the_json_of_the_run(folder: Path) -> None:
    whole = json.loads(torchscale(folder, "report", "demo", "--json").stdout)
    one = json.loads(torchscale(folder, "report", "demo", "--cell", "n2", "--json").stdout)
    assert one == next(cell for cell in whole["cells"] if cell["cell_id"] == one["cell_id"])
    assert "-n2-" in one["cell_id"]


@pytest.mark.parametrize("char", ["\x9b", "\u202e", "\u200b", "\u2028", "\x7f"], ids=ascii)
def test_no_json_on_standard_output_steers_the_terminal(tmp_path: Path, char: str) -> None:
    config = {
        "models": ["resnet18"],
        "batch_sizes": [1],
        "gpu_counts": [1],
        "launch": {"env": {"NCCL_NAME": f"a{char}b"}},
    }
    (tmp_path / "c.json").write_text(json.dumps(config))
    done = torchscale(tmp_path, "benchmark", "c.json", "--show-config", "--json")
    assert char not in done.stdout, done.stderr
    assert json.loads(done.stdout)["launch"]["env"]["NCCL_NAME"] == f"a{char}b"


def test_no_command_prints_json_another_way() -> None:
    for path in Path(cli.__file__).parent.rglob("*.py"):
        for line in path.read_text().splitlines():
            assert not ("echo(" in line and "json" in line) or path.name == "output.py", (
                path,
                line,
            )
