"""Samples, memory and compilations of a rank, each with its step."""

from __future__ import annotations

import numpy as np
import pytest

from torchscale.analysis.exchanges.events import MomentKind, Moments
from torchscale.features.watch.analysis import evidence_log
from torchscale.features.watch.analysis.evidence_log import EvidenceLog, StepRows
from torchscale.features.watch.analysis.step_parts import PartBegins
from torchscale.schema.watch.rank import CompiledFrame, NamedPlace

NOTHING = np.zeros((0, 2), np.int64)
NO_MEMORY = np.zeros((0, 4), np.int64)


def _edges(*times: int) -> np.ndarray:
    return np.array(times, np.int64)


def _samples(*pairs: tuple[int, int]) -> np.ndarray:
    return np.array(pairs, np.int64).reshape(-1, 2)


def _frame(began: int, number: str = "0/0", **fields: object) -> CompiledFrame:
    known = {"function": "forward", "file": "model.py", "line": 3, "reason": "", "seconds": 2.0}
    flags = {"is_backward": False, "has_failed": False}
    return CompiledFrame.model_validate(
        {"began_ns": began, "id": number, **known, **flags, **fields}
    )


def _log(*lines: int) -> EvidenceLog:
    log = EvidenceLog()
    for number, line in enumerate(lines):
        named = {"file": "train.py", "line": line, "function": "main", "called": ""}
        log.name(NamedPlace.model_validate({"place": number, **named}))
    return log


def test_each_sample_is_of_the_step_that_it_lies_in() -> None:
    log = _log(10, 20)
    log.add(_samples((5, 0), (100, 1), (149, 0), (150, 1), (260, 0)), NO_MEMORY, [])
    log.assign(_edges(100, 150, 200), 0)
    lines = log.evidence(()).lines

    assert lines.step.tolist() == [-1, 0, 0, 1]  # the last one's step is not complete
    assert [lines.places[place].line for place in lines.place] == [10, 20, 10, 20]
    shares = lines.time_shares(np.array([True, False]), lambda line: line.line)
    assert {line: share.samples for line, share in shares.items()} == {10: 1, 20: 1}
    log.assign(_edges(200, 250, 300), 2)
    assert log.evidence(()).lines.step.tolist() == [-1, 0, 0, 1, 3]


def test_what_is_written_late_is_of_the_step_in_which_it_was() -> None:
    log = _log(10)
    log.assign(_edges(100, 150, 200), 0)
    log.add(_samples((120, 0), (170, 0), (220, 0)), NO_MEMORY, [])
    log.assign(_edges(200, 250), 2)
    assert log.evidence(()).lines.step.tolist() == [0, 1, 2]


def test_a_sample_of_an_unknown_place_is_left_out() -> None:
    log = _log(10)
    log.add(_samples((110, 7), (120, -1), (130, 0)), NO_MEMORY, [])
    log.assign(_edges(100, 200), 0)
    assert log.evidence(()).lines.place.tolist() == [0]


def test_of_too_many_rows_every_second_one_stays_also_of_those_to_come() -> None:
    rows = StepRows(1, 100)
    for first in range(0, 1_000, 37):  # odd stretches
        times = np.arange(first, min(first + 37, 1_000))
        rows.add(np.stack([times, times], axis=1))
    rows.assign(_edges(0, 500, 1_000), 0)
    kept = rows.rows
    assert 50 < len(kept) <= 100
    assert len(set(np.diff(kept[:, 1]).tolist())) == 1  # as dense at the end as at the beginning
    assert kept[:, 1].tolist() == kept[:, 2].tolist()
    assert set(kept[kept[:, 1] < 500, 0].tolist()) == {0}


def test_rows_without_steps_are_bounded() -> None:
    rows = StepRows(1, 10)
    times = np.arange(1_000)
    rows.add(np.stack([times, times], axis=1))
    assert len(rows.rows) == 0
    rows.assign(_edges(-1, 2_000), 0)
    assert len(rows.rows) <= 10


def test_many_ranks_share_what_a_job_may_keep() -> None:
    log = _log(10)
    times = np.arange(10_000)
    log.share(4_000)
    log.add(np.stack([times, np.zeros_like(times)], axis=1), NO_MEMORY, [])
    log.assign(_edges(0, 20_000), 0)
    assert 500 < len(log.evidence(()).lines.step) <= 1_000


def test_memory_has_its_time_and_step_and_absence_stays() -> None:
    log = EvidenceLog()
    memory = np.array([(110, 1 << 30, -1, -1), (160, 2 << 30, 5, 7)], np.int64)
    log.add(NOTHING, memory, [])
    log.assign(_edges(100, 150, 200), 0)
    series = log.evidence(()).memory
    assert series.step.tolist() == [0, 1]
    assert series.time_ns.tolist() == [110, 160]
    assert series.resident.tolist() == [1 << 30, 2 << 30]
    assert (series.allocated.tolist(), series.reserved.tolist()) == ([-1, 5], [-1, 7])


def test_a_compilation_is_of_the_step_in_which_it_began() -> None:
    log = EvidenceLog()
    log.add(NOTHING, NO_MEMORY, [_frame(50), _frame(160, "0/1", reason="size mismatch")])
    log.add(NOTHING, NO_MEMORY, [_frame(300, "0/2")])
    log.assign(_edges(100, 150, 200), 0)
    first, again = log.evidence(()).compilations
    assert (first.step, first.reason, again.step, again.reason) == (-1, "", 1, "size mismatch")
    assert log.first_compiles == [(50, 50 + 2_000_000_000)]


def test_a_backward_graph_that_is_compiled_later_is_a_part_of_its_frame() -> None:
    log = EvidenceLog()
    frames = [_frame(110), _frame(120, "1/0"), _frame(130, is_backward=True, seconds=1.0)]
    log.add(NOTHING, NO_MEMORY, frames)
    log.assign(_edges(100, 200), 0)
    assert [one.seconds for one in log.evidence(()).compilations] == [3.0, 2.0]
    log.add(NOTHING, NO_MEMORY, [_frame(210), _frame(220, is_backward=True, seconds=0.5)])
    log.assign(_edges(200, 300), 1)  # numbered anew, after torch._dynamo.reset
    assert [one.seconds for one in log.evidence(()).compilations] == [3.0, 2.0, 2.5]


def test_compilations_beyond_the_most_take_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evidence_log, "_MOST_FRAMES", 3)
    log = EvidenceLog()
    for began in (110, 120):
        log.add(NOTHING, NO_MEMORY, [_frame(began), _frame(began + 1)])
    log.assign(_edges(100, 200), 0)
    assert len(log.evidence(()).compilations) == 3


def test_a_place_out_of_order_is_none() -> None:
    log = _log(10)
    named = {"file": "a.py", "line": 1, "function": "f", "called": ""}
    log.name(NamedPlace.model_validate({"place": 5, **named}))
    log.name(NamedPlace.model_validate({"place": 0, **named}))
    assert [place.line for place in log.evidence(()).lines.places] == [10]


def test_a_sample_is_of_the_part_in_which_it_was_taken_also_when_it_is_written_late() -> None:
    log = _log(10)
    kinds = [MomentKind.STEP, MomentKind.BACKWARD, MomentKind.BACKWARD_END, MomentKind.STEP]

    def begins(begin: int) -> PartBegins:
        times = np.array([begin, begin + 20, begin + 40, begin + 50])
        moments = Moments(times, np.array(kinds, np.int64), np.zeros(4, np.int64))
        return PartBegins.of(moments, np.array([begin + 30]))

    log.add(_samples((110, 0), (125, 0), (135, 0)), NO_MEMORY, [])
    log.assign(_edges(100, 150), 0, begins(100))
    log.add(_samples((145, 0), (175, 0)), NO_MEMORY, [])
    log.assign(_edges(150, 200), 1, begins(150))
    lines = log.evidence(()).lines
    assert lines.step.tolist() == [0, 0, 0, 0, 1]
    assert lines.part.tolist() == [0, 2, 6, 3, 2]
    every = np.ones(2, bool)
    assert lines.part_shares(every)[[0, 2, 6]] == pytest.approx([0.4, 0.2, 0.2], abs=0.01)
