"""Ranks whose device is behind their host."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.features.watch.hang.test_flight_recorder import dump, entry
from torchscale.features.watch.hang.dumps import read_directory
from torchscale.features.watch.hang.explain import explain_hang
from torchscale.schema.launch.hang import Autopsy, HangCause
from torchscale.schema.profiles.finding import Confidence

STARTED_NS = 1_700_000_000_000_000_500


def recorded(number: int, state: str, *, times: bool = True, **changes: Any) -> dict[str, Any]:
    """An all-reduce over NCCL."""
    begun = times and state != "scheduled"
    return entry(
        number,
        **{
            "profiling_name": "nccl:all_reduce",
            "state": state,
            "retired": state == "completed",
            "time_discovered_started_ns": STARTED_NS if begun else None,
            **changes,
        },
    )


def verdict(directory: Path, *ranks: list[dict[str, Any]]) -> Autopsy:
    members = str(list(range(len(ranks))))
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": members}}
    for number, entries in enumerate(ranks):
        content = dump(*entries, pg_config=config)
        (directory / f"trace_{number}").write_text(json.dumps(content))
    evidence, _ = read_directory(directory)
    return explain_hang(evidence)


@pytest.mark.parametrize("behind", [(2,), (0,), (1, 3)])
def test_the_ranks_whose_device_has_not_begun_are_named(
    tmp_path: Path, behind: tuple[int, ...]
) -> None:
    ranks = [
        [
            *(recorded(earlier, "completed") for earlier in (5, 6)),
            recorded(6, "completed", profiling_name="nccl:send 0->1", is_p2p=True, p2p_seq_id=9),
            recorded(7, "scheduled" if number in behind else "started"),
        ]
        for number in range(5)
    ]
    found = verdict(tmp_path, *ranks)
    assert (found.cause, found.ranks, found.confidence) == (
        HangCause.DEVICE_BEHIND,
        behind,
        Confidence.MEDIUM,
    )
    assert "not begun it" in found.summary
    assert any("(scheduled)" in line for line in found.evidence)
    assert any("(started)" in line for line in found.evidence)
    assert f"rank {behind[0]}: the last collective that its device completed is all_reduce #6" in (
        found.evidence
    )


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (
            [("completed", False), ("scheduled", False)],
            [("completed", False), ("scheduled", False)],
        ),
        ([("completed", True), ("started", True)], [("completed", True), ("started", True)]),
        (
            [("completed", False), ("completed", False)],
            [("completed", False), ("scheduled", False)],
        ),
        ([("completed", False)], [("scheduled", False)]),
    ],
)
def test_what_a_recorder_never_says_is_no_evidence(
    tmp_path: Path, first: list[tuple[str, bool]], second: list[tuple[str, bool]]
) -> None:
    """Without times of its devices NCCL's recorder leaves a call scheduled until it completes."""
    ranks = [
        [recorded(number, state, times=times) for number, (state, times) in enumerate(states, 1)]
        for states in (first, second, first)
    ]
    found = verdict(tmp_path, *ranks)
    assert found.cause is HangCause.UNKNOWN


def test_ranks_that_have_left_are_not_said_to_be_in_it(tmp_path: Path) -> None:
    ranks = [[recorded(1, "completed", times=False)], [recorded(1, "scheduled")]]
    found = verdict(tmp_path, *ranks)
    assert found.summary.endswith("every rank has called it, and rank 1 has not left")


def test_in_the_first_collective_of_a_job_one_that_has_begun_is_enough(tmp_path: Path) -> None:
    ranks = [[recorded(1, state)] for state in ("started", "started", "scheduled")]
    found = verdict(tmp_path, *ranks)
    assert (found.cause, found.ranks) == (HangCause.DEVICE_BEHIND, (2,))


def test_a_rank_that_measures_no_times_among_others_that_do_is_not_named(tmp_path: Path) -> None:
    timed = [recorded(1, "completed"), recorded(2, "started")]
    untimed = [recorded(1, "completed", times=False), recorded(2, "scheduled")]
    assert verdict(tmp_path, timed, untimed, timed).cause is HangCause.UNKNOWN
    for recorded_entry in untimed:
        del recorded_entry["time_discovered_started_ns"]
    assert verdict(tmp_path, timed, untimed, timed).ranks == (1,), "its recorder writes no times"


def test_a_device_that_is_in_another_collective_is_not_still_before_this_one(
    tmp_path: Path,
) -> None:
    """It comes to this one when the other completes, so that it is a victim here."""
    groups = {
        name: {"name": name, "desc": f"mesh_{name}", "ranks": members}
        for name, members in (("1", "[0, 1]"), ("2", "[1, 2]"))
    }

    def recorded_in(group: str, state: str) -> dict[str, Any]:
        return recorded(1, state, process_group=[group, f"mesh_{group}"], pg_id=int(group))

    first, second = recorded_in("1", "scheduled"), recorded_in("2", "started")
    ranks = [[recorded_in("1", "started")], [first, second], [recorded_in("2", "started")]]
    for number, entries in enumerate(ranks):
        content = dump(*entries, pg_config=groups)
        (tmp_path / f"trace_{number}").write_text(json.dumps(content))
    evidence, _ = read_directory(tmp_path)
    assert explain_hang(evidence).cause is HangCause.UNKNOWN


def test_half_of_the_ranks_or_more_is_less_sure(tmp_path: Path) -> None:
    ranks = [[recorded(1, "completed"), recorded(2, state)] for state in ("started", "scheduled")]
    found = verdict(tmp_path, *ranks)
    assert (found.ranks, found.confidence) == ((1,), Confidence.LOW)


def test_a_rank_that_never_called_it_is_named_before_a_device(tmp_path: Path) -> None:
    ranks = [
        [recorded(1, "completed"), recorded(2, "started")],
        [recorded(1, "completed"), recorded(2, "scheduled")],
        [recorded(1, "completed")],
    ]
    found = verdict(tmp_path, *ranks)
    assert (found.cause, found.ranks) == (HangCause.RANK_MISSING, (2,))
