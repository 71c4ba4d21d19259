"""Which line is the program's own."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from types import FrameType

import pytest
import torch

from torchscale.worker.watch.places import user_place


def _frame_of(file: str, name: str = "forward") -> Callable[[Callable[[], object]], object]:
    """A function of that file, which calls what it is given."""
    code = compile(f"def {name}(call):\n    return call()\n", file, "exec")
    found: dict[str, Callable[[Callable[[], object]], object]] = {}
    exec(code, found)  # noqa: S102 - a file of this name need not be there
    return found[name]


def test_the_line_is_the_innermost_one_of_the_program() -> None:
    def inner() -> FrameType:
        return sys._getframe()

    place = user_place(inner())
    assert place is not None
    assert (place[0], place[2], place[3]) == (__file__, "inner", "")


@pytest.mark.parametrize(
    "file",
    [
        f"{torch.__path__[0]}/nn/modules/module.py",
        contextlib.__file__,
        "<eval_with_key>.12",
        "/tmp/torchinductor_me/ab/cab.py",
        "/another/venv/lib/python3.11/site-packages/framework/trainer.py",
        "/usr/lib/python3/dist-packages/framework/trainer.py",
    ],
)
def test_a_library_and_generated_code_are_what_the_line_has_called(file: str) -> None:
    place = user_place(_frame_of(file)(sys._getframe))  # type: ignore[arg-type]
    assert place is not None
    assert (place[0], place[3]) == (__file__, "forward")


def test_code_in_a_cache_that_a_variable_names_is_generated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "/scratch/cache")
    place = user_place(_frame_of("/scratch/cache/ab/cab.py")(sys._getframe))  # type: ignore[arg-type]
    assert place is not None
    assert place[0] == __file__


def test_a_program_given_on_the_command_line_is_a_program() -> None:
    place = user_place(_frame_of("<string>", "main")(sys._getframe))  # type: ignore[arg-type]
    assert place is not None
    assert place[:3] == ("<string>", 2, "main")


def test_a_thread_without_frames_is_nowhere() -> None:
    assert user_place(None) is None
