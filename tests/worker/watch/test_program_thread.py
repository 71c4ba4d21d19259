"""The thread that stands for a program whose process has another main thread."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest

from torchscale.worker.watch import dump, program_thread
from torchscale.worker.watch.sampler import LineSampler


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    yield
    program_thread.forget()


def _in_thread(action: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=action)
    thread.start()
    thread.join()
    return thread


def test_the_main_thread_stands_for_itself() -> None:
    program_thread.adopt()

    assert program_thread.program_thread() is threading.main_thread()
    assert program_thread.is_program_thread()
    assert not program_thread.is_in_thread()
    assert not program_thread.has_ended()


def test_another_thread_is_the_program_until_it_ends() -> None:
    seen: list[bool] = []

    def train() -> None:
        program_thread.adopt()
        seen.extend([program_thread.is_program_thread(), program_thread.has_ended()])

    thread = _in_thread(train)

    assert seen == [True, False]
    assert program_thread.program_thread() is thread
    assert program_thread.is_in_thread()
    assert program_thread.has_ended()
    assert not program_thread.is_program_thread()


def test_its_lines_and_its_stack_are_the_programs() -> None:
    goes_on, is_there = threading.Event(), threading.Event()
    looked = LineSampler()

    def train() -> None:
        program_thread.adopt()
        is_there.set()
        goes_on.wait(30)

    thread = threading.Thread(target=train)
    thread.start()
    assert is_there.wait(30)
    looked.follow_program()
    looked.sample()
    (stack,) = [one for one in dump.stacks() if one["is_main"]]
    goes_on.set()
    thread.join()
    looked.close()

    assert [place[2] for place in looked.places] == ["train"]
    assert "train" in [frame["function"] for frame in stack["frames"]]


def test_what_ray_keeps_of_its_end_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "ray.train.v2._internal.execution.context"
    monkeypatch.delitem(sys.modules, name, raising=False)
    assert program_thread.raised() is None
    kept: list[object] = [None]
    runner = SimpleNamespace(get_error=lambda: kept[0])
    context = SimpleNamespace(execution_context=SimpleNamespace(training_thread_runner=runner))
    monkeypatch.setitem(sys.modules, name, SimpleNamespace(get_train_context=lambda: context))
    assert program_thread.raised() is None
    error, wrapped = ValueError("bad record"), RuntimeError("wrapped")
    kept[0] = wrapped
    assert program_thread.raised() is wrapped
    wrapped._base_exc = error  # type: ignore[attr-defined]
    assert program_thread.raised() is error
