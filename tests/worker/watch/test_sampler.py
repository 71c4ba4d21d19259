"""Where the main thread is, while it runs on."""

from __future__ import annotations

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
    ((file, _, function, called),) = looked.counts
    assert (file, function, called) == (__file__, "test_the_users_line_is_counted", "")


def test_a_frame_that_was_just_left_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen on a busy machine with Python 3.11: it has no code any more."""
    looked = LineSampler()
    left = SimpleNamespace(f_code=None, f_lineno=None, f_back=sys._getframe())
    _is_at(monkeypatch, left)
    looked.sample()
    assert [place[0] for place in looked.counts] == [__file__]
    (stack,) = [one for one in dump.stacks() if one["is_main"]]
    assert stack["frames"][-1]["function"] == "test_a_frame_that_was_just_left_is_skipped"


def test_a_thread_without_frames_counts_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = LineSampler()
    _is_at(monkeypatch, None)
    looked.sample()
    looked.begin()
    assert not looked.counts


def test_shares_go_by_the_clock_of_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = LineSampler()
    monkeypatch.setattr(looked, "_schedstat", SimpleNamespace(read=lambda: 7))
    monkeypatch.setattr(clock, "now_ns", lambda: 5)
    looked.sample()
    assert looked.take_shares() == [5, 7]
