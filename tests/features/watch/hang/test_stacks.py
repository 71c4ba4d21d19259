"""What Python stacks say about a rank."""

from __future__ import annotations

from typing import Any

import pytest

from torchscale.features.watch.hang.stacks import (
    LineRange,
    collective_in,
    has_left_loop,
    is_ending,
    is_joining,
    is_loading,
    last_stack,
    place,
    purpose,
)
from torchscale.schema.launch.hang import StackFrame

TORCH = "/venv/lib/python3.11/site-packages/torch"


def frames(*lines: tuple[str, str]) -> tuple[StackFrame, ...]:
    return tuple(
        StackFrame(file=file, line=number, function=name)
        for number, (file, name) in enumerate(lines, 1)
    )


LOG = """Thread 0x00007f1 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 331 in wait
  File "/usr/lib/python3.11/threading.py", line 1002 in _bootstrap

Thread 0x00007f2 [python] (most recent call first):
  File "/home/me/dataset.py", line 88 in read
  File "/home/me/train.py", line 12 in main
  File "<frozen runpy>", line 198 in _run_module_as_main
[rank0] a later message
"""


def test_the_last_stack_of_a_log_is_the_main_threads() -> None:
    stack = last_stack(LOG)
    assert [(frame.file, frame.line, frame.function) for frame in stack] == [
        ("<frozen runpy>", 198, "_run_module_as_main"),
        ("/home/me/train.py", 12, "main"),
        ("/home/me/dataset.py", 88, "read"),
    ]
    assert place(stack) == "dataset.py:88 `read`"
    assert last_stack("no stack here") == ()


def test_the_place_is_the_users_own_line() -> None:
    library = (f"{TORCH}/nn/modules/module.py", "_call_impl")
    ours = ("/opt/torchscale/worker/trainer.py", "step")
    assert place(frames(ours, ("/home/me/net.py", "forward"), library)) == "net.py:2 `forward`"
    assert place(frames(ours, library)) == "trainer.py:1 `step`"
    assert place(frames(library)) == "module.py:1 `_call_impl`"
    assert place(()) == ""
    long = frames((f"/home/me/{'x' * 999}.py", "f" * 999))
    assert place(long) == f"{'x' * 77}.py:1 `{'f' * 80}`", "which fits a table"


@pytest.mark.parametrize(
    ("file", "function", "loading", "ending", "joining", "collective"),
    [
        (f"{TORCH}/utils/data/dataloader.py", "__next__", True, False, False, ""),
        ("/opt/torchscale/worker/data/loader.py", "next_batch", True, False, False, ""),
        (
            f"{TORCH}/distributed/distributed_c10d.py",
            "destroy_process_group",
            False,
            True,
            False,
            "",
        ),
        ("/usr/lib/python3.11/threading.py", "_shutdown", False, True, False, ""),
        ("/usr/lib/python3.11/concurrent/futures/thread.py", "_worker", False, False, False, ""),
        ("/home/me/own.py", "_python_exit", False, False, False, ""),
        ("/home/me/own.py", "_shutdown", False, False, False, ""),
        (
            "/usr/lib/python3.11/concurrent/futures/thread.py",
            "_python_exit",
            False,
            True,
            False,
            "",
        ),
        (f"{TORCH}/distributed/distributed_c10d.py", "_get_default_group", False, False, False, ""),
        ("/home/me/own.py", "init_process_group", False, False, False, ""),
        (f"{TORCH}/distributed/distributed_c10d.py", "init_process_group", False, False, True, ""),
        (
            f"{TORCH}/distributed/distributed_c10d.py",
            "all_gather_object",
            False,
            False,
            False,
            "all_gather_object",
        ),
        ("/home/me/net.py", "forward", False, False, False, ""),
    ],
)
def test_what_a_rank_does(
    file: str, function: str, loading: bool, ending: bool, joining: bool, collective: str
) -> None:
    stack = frames(("/home/me/train.py", "main"), (file, function))
    assert (is_loading(stack), is_ending(stack), is_joining(stack)) == (loading, ending, joining)
    assert collective_in(stack) == collective


def test_the_outermost_collective_is_the_one_that_was_called() -> None:
    c10d = f"{TORCH}/distributed/distributed_c10d.py"
    stack = frames(
        ("/home/me/a.py", "f"), (c10d, "wrapper"), (c10d, "all_gather_object"), (c10d, "all_gather")
    )
    assert collective_in(stack) == "all_gather_object"


def test_the_purpose_of_a_collective() -> None:
    backward = frames(
        (f"{TORCH}/_tensor.py", "backward"), (f"{TORCH}/autograd/graph.py", "_engine_run_backward")
    )
    assert purpose("all_reduce", backward) == "gradients"
    assert purpose("all_gather", backward) == ""
    assert (
        purpose("all_reduce", frames(("/opt/torchscale/worker/process_group.py", "barrier")))
        == "barrier"
    )
    assert purpose("all_reduce", ()) == ""


def calls(
    *lines: tuple[str, int, LineRange | None],
) -> tuple[tuple[StackFrame, ...], tuple[LineRange | None, ...]]:
    """A stack of functions at lines, in loops."""
    stack = tuple(
        StackFrame(file="/home/me/train.py", line=line, function=name) for name, line, _ in lines
    )
    return stack, tuple(loop for _, _, loop in lines)


@pytest.mark.parametrize(
    ("mine", "others", "left"),
    [
        (calls(("main", 50, None)), calls(("main", 45, None), ("train", 31, (30, 33))), True),
        (calls(("main", 50, None), ("finish", 9, None)), calls(("main", 45, (44, 46))), True),
        (calls(("main", 45, (44, 46))), calls(("main", 50, None)), False),  # the one is behind
        (
            calls(("main", 50, (40, 51))),
            calls(("main", 45, (40, 51)), ("train", 31, (30, 33))),
            False,
        ),  # other epochs
        (
            calls(("main", 8, (7, 9)), ("run", 50, None)),
            calls(("main", 8, (7, 9)), ("run", 45, (44, 46))),
            False,
        ),
        (
            calls(("main", 50, None)),
            calls(("main", 45, None), ("train", 31, None)),
            False,
        ),  # no loop
        (calls(("main", 50, None)), calls(("other", 45, (44, 46))), False),
        (calls(("main", 50, None)), calls(("main", 50, None)), False),
        (
            calls(("main", 50, None)),
            (calls(("main", 45, (44, 46)))[0], ()),
            False,
        ),  # a source is not known
        (
            (calls(("main", 50, None))[0], ()),
            calls(("main", 45, (44, 46))),
            False,
        ),
        (calls(("main", 46, (44, 46))), calls(("main", 45, (44, 46))), False),  # its last line
        (calls(("main", 47, None)), calls(("main", 45, (44, 46))), True),
    ],
)
def test_a_loop_is_left_only_where_nothing_leads_back(mine: Any, others: Any, left: bool) -> None:
    assert has_left_loop(*mine, *others) is left


def test_a_loop_of_torch_is_no_training() -> None:
    inner = StackFrame(file=f"{TORCH}/distributed/x.py", line=7, function="all")
    stack, loops = calls(("main", 45, None))
    assert not has_left_loop(*calls(("main", 50, None)), (*stack, inner), (*loops, (6, 8)))


@pytest.mark.parametrize("outer", ["destroy_process_group", "new_group"])
def test_a_barrier_on_the_way_into_or_out_of_a_group_is_no_collective_of_the_program(
    outer: str,
) -> None:
    """Other ranks that compute are not missing in it: the group is what is waited for."""
    c10d = f"{TORCH}/distributed/distributed_c10d.py"
    assert collective_in(frames(("/home/me/a.py", "f"), (c10d, outer), (c10d, "barrier"))) == ""
