"""``--copy-to`` of every command that measures."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.cli.program import torchscale
from tests.fake_launches import FakeLaunches
from tests.features.export.formats.stores import run_folder
from tests.features.validate.test_bundle import SLOW
from tests.object_stores import Files, empty_store, objects, use
from torchscale.cli.copying import copy_results, with_copy

PLACE = "memory://bucket/runs"


@pytest.fixture(autouse=True)
def store() -> Iterator[None]:
    with empty_store():
        yield


@pytest.fixture
def denied(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that denies access."""

    def deny(key: str) -> None:
        raise PermissionError("Access Denied")

    files = Files({})
    files.on["find"] = deny
    use(monkeypatch, files)


def test_without_the_option_nothing_is_copied(tmp_path: Path) -> None:
    assert copy_results(run_folder(tmp_path / "demo"), None)
    assert objects(PLACE) == {}


def test_where_nothing_was_written_nothing_is_copied(tmp_path: Path) -> None:
    assert copy_results(tmp_path / "demo", PLACE)


@pytest.mark.parametrize(("code", "expected"), [(0, 1), (1, 1), (3, 3), (130, 130)])
def test_a_failed_copy_is_1_where_all_else_went_well(
    tmp_path: Path, denied: None, code: int, expected: int
) -> None:
    assert with_copy(code, run_folder(tmp_path / "demo"), PLACE) == expected


@pytest.mark.parametrize("code", [0, 1, 3])
def test_a_copy_changes_no_exit_code(tmp_path: Path, code: int) -> None:
    assert with_copy(code, run_folder(tmp_path / "demo"), PLACE) == code
    assert "demo/experiment.json" in objects(PLACE)


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("benchmark --model resnet18", "results is a local path; expected an address"),
        ("measure hardware", "results is a local path; expected an address"),
        ("measure collectives", "results is a local path; expected an address"),
        ("measure memory", "results is a local path; expected an address"),
        ("profile", "results is a local path; expected an address"),
        ("validate --acceptance", "results is a local path; expected an address"),
        ("watch", "results is a local path; expected an address"),
    ],
)
def test_it_takes_an_address(tmp_path: Path, words: str, error: str) -> None:
    done = torchscale(tmp_path, *words.split(), "--copy-to", "results")
    assert (done.returncode, done.stdout) == (2, "")
    assert error in done.stderr


def test_a_missing_library_is_told_before_anything_is_measured(tmp_path: Path) -> None:
    done = torchscale(tmp_path, "benchmark", "--model", "resnet18", "--copy-to", "az://a/b")
    assert done.returncode == 2
    assert "az:// needs adlfs, which is not installed" in done.stderr


@pytest.mark.slow
def test_a_benchmark_is_copied(tmp_path: Path, launches: FakeLaunches) -> None:
    done = torchscale(tmp_path, *_BENCHMARK, "--copy-to", PLACE)
    assert done.returncode == 0, done.stderr
    assert f"Copied to {PLACE}/run" in done.stderr
    there = objects(f"{PLACE}/run")
    assert sum(name.endswith("record.json") for name in there) == 1


@pytest.mark.slow
def test_a_benchmark_whose_copy_is_denied_ends_with_1(
    tmp_path: Path, launches: FakeLaunches, denied: None
) -> None:
    done = torchscale(tmp_path, *_BENCHMARK, "--copy-to", PLACE)
    assert done.returncode == 1
    assert "warning: not copied: memory://bucket/runs/run: access denied" in done.stderr
    assert f"torchscale export --to storage run -o {PLACE}" in done.stderr
    assert (tmp_path / "run" / "summary.csv").is_file()


_BENCHMARK = [
    *("benchmark", "--model", "resnet18", "--batch-size", "8", "--gpus", "1", "--device", "cpu"),
    *("-o", "run"),
]


@pytest.mark.slow
def test_a_watched_job_is_copied_and_its_exit_code_stays(tmp_path: Path) -> None:
    copied = ("--copy-to", PLACE, "--", "sh", "-c")
    done = torchscale(tmp_path, "watch", "-o", "job", *copied, "exit 7")
    assert done.returncode == 7
    assert "job/watch.json" in objects(PLACE)


@pytest.mark.slow
def test_a_watched_job_whose_copy_is_denied_ends_with_1(tmp_path: Path, denied: None) -> None:
    done = torchscale(tmp_path, "watch", "-o", "job", "--copy-to", PLACE, "--", "true")
    assert done.returncode == 1
    assert f"torchscale export --to storage {tmp_path / 'job'} -o {PLACE}" in done.stderr


def test_a_recording_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = run_folder(tmp_path / "recorded")
    outcome = SimpleNamespace(
        run_folder=folder, exit_code=0, problem=None, is_interrupted=False, analysis=None
    )
    monkeypatch.setattr(
        "torchscale.features.trace.profile.profile_program", lambda *_, **__: outcome
    )
    done = torchscale(tmp_path, "profile", "--copy-to", PLACE, "--", "python", "train.py")
    assert done.returncode == 0
    assert "recorded/experiment.json" in objects(PLACE)


@pytest.mark.parametrize("folder", ["acceptance-n1", ""])
def test_the_folder_of_an_acceptance_is_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    assert SLOW.acceptance is not None
    acceptance = SLOW.acceptance.model_copy(update={"folder": folder})
    validation = SLOW.model_copy(update={"acceptance": acceptance})
    outcome = SimpleNamespace(validation=validation, exit_code=1)
    monkeypatch.setattr("torchscale.features.validate.run.validate.validate", lambda **_: outcome)
    run_folder(tmp_path / "results" / "acceptance-n1")
    done = torchscale(tmp_path, "validate", "--acceptance", "--copy-to", PLACE, "--json")
    assert done.returncode == 1
    assert bool(objects(f"{PLACE}/acceptance-n1")) is bool(folder)


def test_without_an_acceptance_there_is_nothing_to_copy(tmp_path: Path) -> None:
    done = torchscale(tmp_path, "validate", "--copy-to", PLACE)
    assert done.returncode == 2
    assert "--copy-to are of an acceptance" in done.stderr


def test_a_search_for_the_largest_batch_is_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = run_folder(tmp_path / "memory")
    outcome: Any = SimpleNamespace(
        directory=folder, exit_code=0, interrupted=False, to_json=lambda: "{}"
    )
    monkeypatch.setattr(
        "torchscale.features.machine.max_batch.find_max_batch", lambda *_, **__: outcome
    )
    words = ("measure", "memory", "--find-max-batch", "--gpus", "1", "--json", "--copy-to", PLACE)
    assert torchscale(tmp_path, *words).returncode == 0
    assert "memory/experiment.json" in objects(PLACE)
