"""Compilations, from the contexts in which torch keeps their figures."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from torch._dynamo import metrics_context

from torchscale.worker.watch import clock
from torchscale.worker.watch.compilations import Compilations
from torchscale.worker.watch.marks import COMPILE, COMPILE_END, Marks, moment


class _Watched:
    """A context as torch's, watched, and what was noted of it."""

    def __init__(self) -> None:
        class Context(metrics_context.MetricsContext):
            pass

        self.recorded: list[dict[str, Any]] = []
        self.marks = Marks()
        self.marks.start()
        self.compilations = Compilations(self.marks)
        self.compilations._watch(SimpleNamespace(MetricsContext=Context))
        self.context = Context(on_exit=lambda *found: self.recorded.append(found[2]))

    def compile(self, number: str, **metrics: object) -> None:
        with self.context as context:
            context.update({"compile_id": number, **metrics})

    @property
    def kinds(self) -> list[int]:
        return [moment(mark)[0] for mark in self.marks.take()]


FRAME = {
    "co_name": "forward",
    "co_filename": "/home/me/model.py",
    "co_firstlineno": 12,
    "is_forward": True,
    "recompile_reason": None,
}


def test_a_compilation_is_noted_with_its_frame_and_torch_records_it_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    times = iter((1_000_000_000, 3_500_000_000))
    watched = _Watched()
    monkeypatch.setattr(clock, "now_ns", lambda: next(times))
    watched.compile("0/0", **FRAME)

    (noted,) = watched.compilations.noted
    assert noted == {
        "began_ns": 1_000_000_000,
        "seconds": 2.5,
        "id": "0/0",
        "function": "forward",
        "file": "/home/me/model.py",
        "line": 12,
        "reason": "",
        "is_backward": False,
        "has_failed": False,
    }
    assert len(watched.recorded) == 1
    assert watched.kinds == [COMPILE, COMPILE_END]


def test_a_compilation_within_another_is_a_part_of_it() -> None:
    watched = _Watched()
    with watched.context as outer:
        outer.update({"compile_id": "0/0", **FRAME})
        with watched.context:
            pass
    assert len(watched.compilations.noted) == 1
    assert watched.kinds == [COMPILE, COMPILE_END]


def test_a_backward_graph_has_the_names_of_its_frame() -> None:
    watched = _Watched()
    watched.compile("4/1", **FRAME)
    watched.compile("4/1", is_forward=False)
    forward, backward = watched.compilations.noted
    assert (forward["is_backward"], backward["is_backward"]) == (False, True)
    assert backward["function"] == "forward"


def test_the_reason_is_one_line_without_texts_of_the_program() -> None:
    watched = _Watched()
    reason = "0/0: L['key'] == 'hunter2' and L[\"k\"] == \"hunter3\"\nsecond line"
    watched.compile("0/1", **{**FRAME, "recompile_reason": reason})
    watched.compile("0/2", **{**FRAME, "recompile_reason": "x" * 1_000})
    first, second = watched.compilations.noted
    assert first["reason"] == "0/0: L['key'] == '...' and L[\"k\"] == '...'"
    assert len(second["reason"]) == 300


def test_where_torch_tells_no_reason_a_later_compilation_has_one_all_the_same() -> None:
    watched = _Watched()
    told = {name: value for name, value in FRAME.items() if name != "recompile_reason"}
    watched.compile("0/0", **told)
    watched.compile("0/1", **told)
    first, again = watched.compilations.noted
    assert first["reason"] == ""
    assert "does not name" in again["reason"]


def test_a_limit_that_is_reached_is_a_failure_of_the_frame_known_before() -> None:
    watched = _Watched()
    watched.compile("0/0", **FRAME)
    with pytest.raises(ValueError, match="limit"), watched.context as context:
        context.update({"compile_id": "0/8", "recompile_reason": "0/0: size mismatch"})
        raise ValueError("limit")
    assert [one["has_failed"] for one in watched.compilations.noted] == [False, True]
    assert watched.compilations.noted[1]["function"] == "forward"
    assert watched.kinds == [COMPILE, COMPILE_END] * 2


def test_code_of_torch_itself_is_named_by_its_caller() -> None:
    watched = _Watched()
    file = metrics_context.__file__
    watched.compile("0/0", **{**FRAME, "co_name": "inner", "co_filename": file})
    (noted,) = watched.compilations.noted
    assert (noted["file"], noted["function"]) == (__file__, "compile")


def test_compilations_beyond_the_most_are_moments_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torchscale.worker.watch.compilations._MOST", 1)
    watched = _Watched()
    watched.compile("0/0", **FRAME)
    watched.compile("0/1", **FRAME)
    assert len(watched.compilations.noted) == 1
    assert watched.kinds == [COMPILE, COMPILE_END] * 2


def test_contexts_of_another_form_are_left_as_they_are() -> None:
    class Other:
        def __enter__(self) -> Other:
            return self

        def __exit__(self, *_: object) -> None:
            return None

    compilations = Compilations(Marks())
    compilations._watch(SimpleNamespace())
    compilations._watch(SimpleNamespace(MetricsContext=Other))
    with Other():
        pass
    assert compilations.noted == []
