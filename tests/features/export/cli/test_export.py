"""``export`` through the whole program."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from xml.etree.ElementTree import fromstring

import pytest

from tests import factories
from tests.cli.program import torchscale
from tests.features.export.formats.exposition import parse
from tests.features.export.formats.runs import check
from torchscale.config.choices import ExportTarget
from torchscale.schema.node.check import Status
from torchscale.schema.node.probe import NodeFacts
from torchscale.schema.node.validation import Validation
from torchscale.store.run_folder import RunFolder
from torchscale.util.installation import install_command


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    content = factories.run()
    folder = RunFolder.create(tmp_path / "results" / "run", content.experiment)
    for cell_run in content.cells:
        for launch in cell_run.launches:
            folder.begin_launch(cell_run.planned.cell, launch.launch)
            folder.finish_launch(cell_run.planned.cell, launch)
    return folder.path


@pytest.mark.parametrize("target", [target.value for target in ExportTarget if not target.is_store])
def test_every_format_is_written_whole(tmp_path: Path, run_folder: Path, target: str) -> None:
    done = torchscale(tmp_path, "export", "--to", target, str(run_folder))
    assert done.returncode == 0, done.stderr
    path = tmp_path / "out"
    path.write_text("before")
    to_file = torchscale(
        tmp_path, "export", "--to", target, "--source", str(run_folder), "-o", str(path)
    )
    assert (to_file.returncode, to_file.stdout) == (0, "")
    assert path.read_text() == done.stdout
    assert sorted(tmp_path.iterdir()) == [path, tmp_path / "results"]


def test_the_newest_run_is_the_default(tmp_path: Path, run_folder: Path) -> None:
    done = torchscale(tmp_path, "export", "--to", "prometheus")
    assert {sample.labels["run"] for sample in parse(done.stdout)} == {"run"}
    entries = json.loads(torchscale(tmp_path, "export", "--to", "github-benchmark").stdout)
    assert {entry["unit"] for entry in entries} >= {"samples/s"}


def test_a_dashboard_needs_no_run(tmp_path: Path) -> None:
    done = torchscale(tmp_path, "export", "--to", "grafana-dashboard")
    assert done.returncode == 0
    assert json.loads(done.stdout)["title"] == "torchscale"


@pytest.mark.parametrize("target", [ExportTarget.PARQUET, ExportTarget.MLFLOW, ExportTarget.WANDB])
def test_a_missing_library_is_one_line_with_what_to_install(
    tmp_path: Path, run_folder: Path, monkeypatch: pytest.MonkeyPatch, target: ExportTarget
) -> None:
    library = "pyarrow" if target is ExportTarget.PARQUET else target.value
    monkeypatch.setitem(sys.modules, library, None)
    done = torchscale(tmp_path, "export", "--to", target.value, str(run_folder), "-o", "place")
    assert (done.returncode, done.stdout) == (3, "")
    assert f"error: --to {target.value} needs {library}, which is not installed" in done.stderr
    assert f"hint: {install_command(target.value)}" in done.stderr
    assert not (tmp_path / "place").exists()


def test_parquet_is_written_to_a_directory(tmp_path: Path, run_folder: Path) -> None:
    done = torchscale(tmp_path, "export", "--to", "parquet", str(run_folder), "-o", "tables")
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert (
        "Wrote tables: cells.parquet: 2 rows, launches.parquet: 2 rows, steps.parquet: 0 rows"
        in done.stderr
    )
    assert "no launch kept its steps (benchmark.log_step_times)" in done.stderr
    assert sorted(path.name for path in (tmp_path / "tables").iterdir()) == [
        *("cells.parquet", "launches.parquet", "steps.parquet"),
    ]


def test_the_checks_of_a_node_are_exported_from_its_json(tmp_path: Path) -> None:
    checks = (check(Status.PASS), check(Status.FAIL, id="b"))
    validation = Validation(fit=False, verdict="unfit", checks=checks, facts=NodeFacts())
    (tmp_path / "node.json").write_text(validation.model_dump_json())
    done = torchscale(tmp_path, "export", "--to", "junit", "node.json")
    root = fromstring(done.stdout)  # noqa: S314 - our own
    assert (root.get("name"), root.get("tests"), root.get("failures")) == (
        "torchscale node",
        "2",
        "1",
    )


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        (["results/run"], 2, "--to is missing: whose format?"),
        (["--to", "junit", "nowhere"], 2, "nowhere"),
        (["--to", "junit", "other.json"], 2, "other.json: neither a run folder nor the JSON of"),
        (["--to", "junit", "a", "--source", "b"], 2, "one run at a time, not a and b"),
        (["--to", "junit", "results/run", "-o", "no/where.xml"], 3, "no is not a directory"),
        (
            ["--to", "parquet", "results/run"],
            2,
            "--to parquet writes three files: which directory?",
        ),
        (
            ["--to", "parquet", "results/run", "-o", "-"],
            2,
            "--to parquet does not go to standard output",
        ),
        (
            ["--to", "parquet", "results/run", "-o", "other.json"],
            3,
            "cannot create other.json: a file is in its place",
        ),
        (
            ["--to", "parquet", "other.json", "-o", "tables"],
            2,
            "--to parquet takes a run folder, not the file other.json",
        ),
    ],
)
def test_wrong_input_is_one_line(
    tmp_path: Path, run_folder: Path, arguments: list[str], code: int, expected: str
) -> None:
    (tmp_path / "other.json").write_text("{}")
    done = torchscale(tmp_path, "export", *arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert expected in done.stderr
    assert len(done.stderr.splitlines()) <= 2
