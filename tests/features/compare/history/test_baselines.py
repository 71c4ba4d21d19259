"""The reference of ``compare --against``: which earlier runs it is, and what is said where there
are none."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.features.compare.history.test_trends import levels
from tests.histories import THROUGHPUT, night, nightly
from torchscale.errors import UsageError
from torchscale.features.compare.analysis.change import ChangeVerdict
from torchscale.features.compare.analysis.compare import compare
from torchscale.features.compare.history.baselines import Against, earlier_side, named_side
from torchscale.features.compare.history.entry import history_entry
from torchscale.features.compare.history.file import open_history
from torchscale.features.compare.inputs import Side
from torchscale.schema.run.result_set import ResultSet

NEW = nightly(40, [levels(40, 100)], git_branch="faster-loader")


def stored(directory: Path, nights: Sequence[ResultSet]) -> Path:
    """A history file of these runs."""
    path = directory / "torchscale.sqlite"
    with open_history(path, create=True) as history:
        for results in nights:
            history.add(history_entry(results))
    return path


def chosen(
    directory: Path, nights: Sequence[ResultSet], text: str, new: ResultSet = NEW
) -> ResultSet:
    return earlier_side(
        Side("new", new), Against.from_text(text), stored(directory, nights)
    ).results


def test_last_is_the_newest_sound_run_before(tmp_path: Path) -> None:
    nights = [
        nightly(1, [levels(1, 100)]),
        nightly(2, [levels(2, 100)]),
        nightly(3, [levels(3, 60)], flags=("contended",)),
        NEW,
        nightly(41, [levels(41, 100)]),
    ]
    assert chosen(tmp_path, nights, "last").name == "night-2"


def test_a_run_is_found_by_its_name_and_where_several_have_it_by_its_time(tmp_path: Path) -> None:
    nights = [nightly(number, [levels(number, 100)]) for number in (1, 2)]
    again = nightly(3, [levels(3, 90)]).model_copy(update={"name": "night-2"})
    path = stored(tmp_path, [*nights, again])
    assert named_side("night-1", path).results.created_at == night(1)
    assert named_side("night-2@2026-01-04", path).results.created_at == night(3)
    with pytest.raises(UsageError, match="2 runs of") as ambiguous:
        named_side("night-2", path)
    assert "night-2@2026-01-04T03:00" in (ambiguous.value.hint or "")
    with pytest.raises(UsageError, match="night-9 is no run of"):
        named_side("night-9", path)


def test_last_has_the_same_cells_if_any_run_has(tmp_path: Path) -> None:
    two_cells = nightly(40, [levels(40, 100), levels(40, 50)])
    nights = [nightly(1, [levels(1, 100), levels(1, 50)]), nightly(2, [levels(2, 100)])]
    assert chosen(tmp_path, nights, "last", two_cells).name == "night-1"
    assert chosen(tmp_path, nights, "last").name == "night-2"


def test_main_is_the_newest_of_that_branch(tmp_path: Path) -> None:
    branches = ("main", "master", "faster-loader", None)
    nights = [
        nightly(number, [levels(number, 100)], git_branch=branch)
        for number, branch in enumerate(branches)
    ]
    assert chosen(tmp_path, nights, "main").name == "night-1"


def test_the_median_is_over_runs_with_an_interval_from_their_scatter(tmp_path: Path) -> None:
    of_runs = [100.0, 101.0, 99.0, 102.0, 98.0, 100.5, 50.0]
    nights = [
        nightly(number, [[level * 0.999, level, level * 1.001]])
        for number, level in enumerate(of_runs)
    ]
    reference = chosen(tmp_path, nights, "median-of-7")
    assert reference.name == "median of 7 runs"
    assert len(reference.cells[0].launches) == 21
    assert len(reference.sessions) == 7
    pair = compare(reference, nightly(40, [[99.9, 100.0, 100.1]]), median=True)
    (change,) = [change for change in pair.cells[0].changes if change.key == THROUGHPUT]
    assert change.before == pytest.approx(
        100.0, rel=1e-5
    )  # the median: the run at 50 does not move it
    assert change.ratio.value == pytest.approx(1.0, rel=1e-4)
    assert change.ratio.interval is not None
    spread = statistics.stdev(math.log(level) for level in of_runs)
    assert (
        change.ratio.interval[1] - 1 > spread
    )  # one session on the other side is as uncertain as a night is
    assert change.verdict is ChangeVerdict.UNCLEAR


def test_a_steady_median_tells_a_slower_run(tmp_path: Path) -> None:
    reference = chosen(
        tmp_path, [nightly(number, [levels(number, 100)]) for number in range(10)], "median-of-10"
    )
    slower = compare(reference, nightly(40, [levels(40, 90)]), median=True)
    assert slower.cells[0].changes[0].verdict is ChangeVerdict.WORSE
    equal = compare(reference, nightly(40, [levels(40, 100)]), median=True)
    assert equal.cells[0].changes[0].verdict is ChangeVerdict.SAME


def test_a_median_of_fewer_runs_says_so_and_other_versions_of_torch_are_left_out(
    tmp_path: Path,
) -> None:
    nights = [nightly(number, [levels(number, 100)]) for number in range(5)]
    older = nights[0]
    nights[0] = older.model_copy(
        update={"cells": tuple(cell.model_copy(update={"torch": "2.6.0"}) for cell in older.cells)}
    )
    assert chosen(tmp_path, nights, "median-of-10").name == "median of 4 runs"


@pytest.mark.parametrize(
    ("nights", "text", "expected"),
    [
        ([nightly(50, [[1.0]])], "last", "was measured before night-40"),
        ([nightly(1, [[1.0]])], "main", "branches there: none is recorded"),
        ([nightly(1, [[1.0]], git_branch="topic")], "main", "branches there: topic"),
        ([nightly(1, [[1.0]], flags=("throttled",))], "last", "none of 1 earlier runs in"),
        ([nightly(1, [[1.0]]), nightly(2, [[1.0]])], "median-of-5", "2 earlier runs in"),
    ],
)
def test_where_there_is_none_the_error_says_why(
    nights: Sequence[ResultSet], text: str, expected: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="--against") as caught:
        chosen(tmp_path, nights, text)
    assert expected in caught.value.message
    assert "\n" not in caught.value.message


@pytest.mark.parametrize(
    "text", ["", "first", "median", "median-of-2", "median-of-1000", "median-of-x", "Last"]
)
def test_other_words_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="expected last, main or median-of-N"):
        Against.from_text(text)
