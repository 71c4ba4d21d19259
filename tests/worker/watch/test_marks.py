"""Moments as integers."""

from __future__ import annotations

import array

import numpy as np
import pytest

from torchscale.analysis.exchanges.events import MomentKind, Moments
from torchscale.worker.watch import marks
from torchscale.worker.watch.marks import Marks


def test_what_is_noted_is_what_the_analysis_reads() -> None:
    noted = Marks()
    noted.start()
    noted.note(marks.STEP, 5)
    noted.note(marks.WAIT_END)
    packed = array.array("q", noted.take())
    moments = Moments.unpacked(np.frombuffer(packed, np.int64), noted.start_ns)

    assert moments.kind.tolist() == [MomentKind.STEP, MomentKind.WAIT_END]
    assert moments.at(MomentKind.STEP, 5).tolist() == moments.time[:1].tolist()
    assert 0 <= moments.time[0] - noted.start_ns < 1e9


def test_kinds_have_the_numbers_that_the_analysis_knows() -> None:
    numbers = {name: value for name, value in vars(marks).items() if name in MomentKind.__members__}

    assert numbers == {kind.name: kind.value for kind in MomentKind}


def test_each_moment_is_taken_once() -> None:
    noted = Marks()
    noted.start()
    noted.note(marks.DATA)

    assert len(noted.take()) == 1
    assert noted.take() == []


def test_a_process_that_never_trains_keeps_few_and_a_fork_keeps_none() -> None:
    noted = Marks()
    for _ in range(20_000):
        noted.note(marks.COLLECTION)
    noted.start()
    assert len(noted.take()) == 10_000
    noted.stop()
    noted.note(marks.DATA)
    assert noted.take() == []


def test_what_nobody_takes_has_a_bound_and_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marks, "_MOST", 5)
    noted = Marks()
    noted.start()
    has_lost = []
    for _ in range(6):
        noted.note(marks.STEP)
        has_lost.append(noted.has_lost)
    assert has_lost == [False] * 5 + [True]
    assert len(noted.take()) == 5
