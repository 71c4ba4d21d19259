"""``torchscale autopsy`` as a shell shows it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.program import torchscale
from tests.features.watch.hang.test_flight_recorder import dump, entry
from torchscale.schema.launch.hang import Autopsy, HangCause


@pytest.fixture
def dumps(tmp_path: Path) -> Path:
    """Rank 1 did not call the fourth all-reduce."""
    directory = tmp_path / "traces"
    directory.mkdir()
    (directory / "rank_0").write_text(json.dumps(dump(entry(3), entry(4, retired=False))))
    (directory / "rank_1").write_text(json.dumps(dump(entry(3))))
    return directory


def test_dumps_in_a_directory(tmp_path: Path, dumps: Path) -> None:
    shown = torchscale(tmp_path, "autopsy", "--log-dir", "traces")
    assert shown.returncode == 0
    assert shown.stdout.splitlines() == [
        "all_reduce #4 (25.0 MiB): rank 1 never called it",
        "    cause: rank missing (rank 1), confidence high",
        "    rank 0: in all_reduce #4",
        "    rank 1: no stack; its last collective was all_reduce #3",
    ]


def test_the_verdict_as_json(tmp_path: Path, dumps: Path) -> None:
    verdict = Autopsy.model_validate_json(
        torchscale(tmp_path, "autopsy", "--log-dir", "traces", "--json").stdout
    )
    assert (verdict.cause, verdict.ranks) == (HangCause.RANK_MISSING, (1,))


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((), "autopsy takes a PID or --log-dir DIR; neither was given"),
        (("1", "--log-dir", "traces"), "autopsy takes a PID or --log-dir DIR; both were given"),
        (("4194304",), "no process 4194304"),
        (("--log-dir", "nowhere"), "cannot read nowhere: No such file or directory"),
        (("--log-dir", "."), ". holds no dump of torch's flight recorder"),
    ],
)
def test_wrong_input_is_one_line(
    tmp_path: Path, dumps: Path, arguments: tuple[str, ...], error: str
) -> None:
    done = torchscale(tmp_path, "autopsy", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"error: {error}" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("number", ["-1", "0"])
def test_a_number_that_no_process_has_is_a_mistake_of_the_user(tmp_path: Path, number: str) -> None:
    done = torchscale(tmp_path, "autopsy", "--", number)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("char", ["\x9b", "\u202e", "\u200b", "\u2028", "\x7f"], ids=ascii)
def test_no_json_steers_the_terminal(tmp_path: Path, char: str) -> None:
    """A dump names a group as it likes."""
    directory = tmp_path / "traces"
    directory.mkdir()
    group = ["0", f"data{char}parallel"]
    (directory / "rank_0").write_text(
        json.dumps(dump(entry(3), entry(4, retired=False, process_group=group)))
    )
    (directory / "rank_1").write_text(json.dumps(dump(entry(3))))
    done = torchscale(tmp_path, "autopsy", "--log-dir", "traces", "--json")
    assert char not in done.stdout
    Autopsy.model_validate_json(done.stdout)
