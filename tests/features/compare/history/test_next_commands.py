from __future__ import annotations

import shlex

import pytest

from tests.features.compare.history.test_page import changed_history
from torchscale.features.compare.analysis.differences import SideDifference
from torchscale.features.compare.history.export import history_export
from torchscale.features.compare.history.next_commands import RunPlaces, next_commands
from torchscale.features.compare.history.trends import ChangePoint

TORCH = SideDifference("torch", ("2.9.0+cpu", "2.10.0+cpu"))
NCCL = SideDifference("NCCL", ("2.27.3", "2.28.1"))


def change(*differences: SideDifference) -> ChangePoint:
    """Between ``night-13`` and ``night-14``, with these differences."""
    (found,) = changed_history().trends[0].changes
    return ChangePoint(
        found.last, found.first, found.ratio, found.runs, found.worse, tuple(differences)
    )


def test_run_folders_are_named_by_their_path() -> None:
    folders = {f"night-{number}": f"results/my runs/night-{number}" for number in range(24)}
    (line,) = next_commands(change(), RunPlaces(folders))
    assert shlex.split(line) == [
        "torchscale",
        "compare",
        "--why",
        "results/my runs/night-13",
        "results/my runs/night-14",
    ]


def test_runs_that_only_a_file_holds_are_named_with_it() -> None:
    (line,) = next_commands(change(), RunPlaces(file="a.sqlite"))
    assert line == "torchscale compare --why night-13 night-14 --history a.sqlite"
    (line,) = next_commands(change(), RunPlaces({}, "a.sqlite", {"night-13": 2, "night-14": 1}))
    assert "--why night-13@2026-01-14T03:00 night-14 " in line


def test_runs_that_cannot_be_read_again_have_no_line() -> None:
    assert next_commands(change(), RunPlaces()) == ()
    assert next_commands(change(), RunPlaces({"night-13": "results/night-13"})) == ()


@pytest.mark.parametrize(
    ("differences", "line"),
    [
        ([TORCH], "torchscale bisect torch==2.9.0+cpu torch==2.10.0+cpu -- COMMAND"),
        (
            [TORCH, NCCL, SideDifference("transformers", ("4.1", "5.0"))],
            "torchscale bisect torch==2.9.0+cpu,transformers==4.1 torch==2.10.0+cpu,transformers==5.0 "
            "-- COMMAND",
        ),
        (
            [NCCL, SideDifference("CUDA", ("13.0", "13.1"))],
            "torchscale bisect nvidia-nccl-cu13==2.27.3 nvidia-nccl-cu13==2.28.1 -- COMMAND",
        ),
    ],
)
def test_packages_that_differ_can_be_bisected(differences: list[SideDifference], line: str) -> None:
    assert next_commands(change(*differences), RunPlaces()) == (line,)


@pytest.mark.parametrize(
    "difference",
    [
        SideDifference("driver", ("550.54", "570.1")),
        SideDifference("torch", ("2.9.0", "")),
        SideDifference("torch", ("2.9.0", "2.10.0, then 2.11.0")),
        SideDifference("torch", ("2.9.0", "$(reboot)")),
    ],
)
def test_what_no_package_index_has_is_not_bisected(difference: SideDifference) -> None:
    assert next_commands(change(difference), RunPlaces()) == ()


def test_json_has_the_lines() -> None:
    report = changed_history()
    of_file = RunPlaces(file="a.sqlite")
    exported = history_export(type(report)(**{**vars(report), "places": of_file}))
    assert exported.trends[0].changes[0].commands == (
        "torchscale compare --why night-13 night-14 --history a.sqlite",
    )
