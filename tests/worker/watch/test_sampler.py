"""Where the main thread is, while it runs on."""

from __future__ import annotations

import os
import sys
import threading
from types import SimpleNamespace

import pytest

from torchscale.worker.watch import clock, dump, sampler
from torchscale.worker.watch.sampler import LineSampler


def _is_at(monkeypatch: pytest.MonkeyPatch, frame: object) -> None:
    """The main thread is there, as another thread sees it."""
    ident = threading.main_thread().ident
    for module in (sampler, dump):
        found = SimpleNamespace(_current_frames=lambda: {ident: frame})
        monkeypatch.setattr(module, "sys", found)


def test_the_users_line_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = LineSampler()
    _is_at(monkeypatch, sys._getframe())
    looked.sample()
    ((file, _, function, called),) = looked.places
    assert (file, function, called) == (__file__, "test_the_users_line_is_counted", "")


def test_a_frame_that_was_just_left_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen on a busy machine with Python 3.11: it has no code any more."""
    looked = LineSampler()
    left = SimpleNamespace(f_code=None, f_lineno=None, f_back=sys._getframe())
    _is_at(monkeypatch, left)
    looked.sample()
    assert [place[0] for place in looked.places] == [__file__]
    (stack,) = [one for one in dump.stacks() if one["is_main"]]
    assert stack["frames"][-1]["function"] == "test_a_frame_that_was_just_left_is_skipped"


def test_a_thread_without_frames_counts_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = LineSampler()
    _is_at(monkeypatch, None)
    looked.sample()
    assert not looked.places


def test_shares_go_by_the_clock_of_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = LineSampler()
    monkeypatch.setattr(looked, "_schedstat", SimpleNamespace(read=lambda: 7))
    monkeypatch.setattr(clock, "now_ns", lambda: 5)
    looked.sample()
    assert looked.take_shares() == [5, 7]


def test_each_sample_has_its_time_and_the_number_of_its_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked = LineSampler()
    times = iter((10, 20, 30))
    monkeypatch.setattr(looked, "_schedstat", SimpleNamespace(read=lambda: None))
    monkeypatch.setattr(clock, "now_ns", lambda: next(times))
    places = [("train.py", 1, "load", ""), ("train.py", 2, "step", "backward")]
    for place in (places[0], places[1], places[0]):
        monkeypatch.setattr(sampler, "user_place", lambda _, place=place: place)
        looked.sample()
    assert looked.places == places
    assert looked.take_samples() == [10, 0, 20, 1, 30, 0]
    assert looked.take_samples() == []


def test_places_beyond_the_most_take_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = LineSampler()
    monkeypatch.setattr(sampler, "_MAX_LINES", 2)
    for line in (1, 2, 3, 1):
        monkeypatch.setattr(sampler, "user_place", lambda _, line=line: ("a.py", line, "f", ""))
        looked.sample()
    assert [place[1] for place in looked.places] == [1, 2]
    assert looked.take_samples()[1::2] == [0, 1, 0]


def test_a_fork_reads_how_long_its_own_thread_waited() -> None:
    """Python says of its main thread the number that it had in the parent."""
    here = LineSampler()._schedstat.read() is not None
    pid = os.fork()
    if pid == 0:
        os._exit(LineSampler()._schedstat.read() is not None)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == here
    assert here
