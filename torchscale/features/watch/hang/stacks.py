"""What a Python stack says about a rank: its line, and whether it loads data, waits for others or
ends."""

from __future__ import annotations

import re
from collections.abc import Sequence

from torchscale.schema.launch.hang import StackFrame

_STACK_START = re.compile(r"^(?:Current thread|Thread) 0x[0-9a-f]+.*$", re.MULTILINE)
_STACK_LINE = re.compile(r'^  File "(?P<file>[^"]+)", line (?P<line>\d{1,9}) in (?P<function>\S+)')
_LIBRARY = ("/site-packages/", "/dist-packages/", "<frozen ", "/lib/python3.", "/lib64/python3.")
"""Parts of paths of code that is neither the user's nor ours."""
_OURS = "/torchscale/worker/"
_TORCH = "/torch/"
_LOADER_PATHS = ("/torch/utils/data/", "/torchscale/worker/data/")
_TEARDOWN_FUNCTIONS = frozenset(
    {"destroy_process_group", "_shutdown_backend", "_exit_function", "_run_exitfuncs"}
)
"""Leaving the process group, and what Python runs when a process ends."""
_C10D = "distributed_c10d.py"
_MAX_NAME = 80
"""Maximum number of characters of a file and of a function: the line has to fit a table."""
_NOT_COLLECTIVES = frozenset(
    {"wrapper", "init_process_group", "new_group", "_new_process_group_helper"}
)
"""Functions of torch's module of collectives that are none."""
LineRange = tuple[int, int]
"""First and last line of a loop."""
_JOINING = frozenset({"init_process_group", "new_group", "_new_process_group_helper", "rendezvous"})


def last_stack(log: str) -> tuple[StackFrame, ...]:
    """The last stack that faulthandler wrote into ``log``, outermost first: that of the main
    thread, which it writes after all others."""
    starts = list(_STACK_START.finditer(log))
    if not starts:
        return ()
    frames = []
    for line in log[starts[-1].end() :].splitlines()[1:]:
        match = _STACK_LINE.match(line)
        if match is None:
            break
        frames.append(
            StackFrame(file=match["file"], line=int(match["line"]), function=match["function"])
        )
    return tuple(reversed(frames))


def own_frames(frames: Sequence[StackFrame]) -> list[StackFrame]:
    """Those of the user's own code."""
    return [frame for frame in frames if not _is_library(frame.file) and _OURS not in frame.file]


def own_frame(frames: Sequence[StackFrame]) -> StackFrame | None:
    """The line to show: the innermost of the user's own code, else of torchscale's, else of any;
    ``None`` without frames."""
    if not frames:
        return None
    own = own_frames(frames)
    ours = [frame for frame in frames if not _is_library(frame.file)]
    return (own or ours or list(frames))[-1]


def own_place(frames: Sequence[StackFrame]) -> str:
    """``train.py:88 (load_batch)``; empty where no frame is the program's own."""
    frame = own_frame(frames)
    return "" if frame is None else place_text(frame.file, frame.line, frame.function)


def place_text(file: str, line: int, function: str) -> str:
    """``train.py:88 (load_batch)``; without a function outside of all."""
    where = "" if function == "<module>" else f" ({function})"
    return f"{file.rpartition('/')[2]}:{line}{where}"


def place(frames: Sequence[StackFrame]) -> str:
    """The line to show, as ``dataset.py:88 `read```; empty without frames."""
    frame = own_frame(frames)
    if frame is None:
        return ""
    return (
        f"{frame.file.rpartition('/')[2][-_MAX_NAME:]}:{frame.line} `{frame.function[:_MAX_NAME]}`"
    )


def is_loading(frames: Sequence[StackFrame]) -> bool:
    """Whether it waits for data: torch's loader or torchscale's data sources are on the stack."""
    return any(path in frame.file for frame in frames for path in _LOADER_PATHS)


def is_ending(frames: Sequence[StackFrame]) -> bool:
    """Whether it leaves the process group or ends."""
    return any(
        frame.function in _TEARDOWN_FUNCTIONS
        or (frame.function == "_shutdown" and frame.file.endswith("threading.py"))
        or (frame.function == "_python_exit" and "/concurrent/" in frame.file)
        for frame in frames
    )


def is_joining(frames: Sequence[StackFrame]) -> bool:
    """Whether it joins a process group, which waits for every rank."""
    return any(
        frame.function in _JOINING and "/torch/distributed/" in frame.file for frame in frames
    )


def collective_in(frames: Sequence[StackFrame]) -> str:
    """The collective that the stack is in, as torch names it; empty for none. Those that C++
    starts, as DDP's, are not on a Python stack."""
    names = [
        frame.function
        for frame in frames
        if frame.file.endswith(_C10D)
        and frame.function not in _NOT_COLLECTIVES
        and not frame.function.startswith("_")
    ]
    if not names or is_joining(frames) or is_ending(frames):
        return ""
    return names[0]


def is_in_backward(frames: Sequence[StackFrame]) -> bool:
    """Whether it is in the backward pass, where DDP waits for gradients."""
    return any("/torch/autograd/" in frame.file for frame in frames)


def purpose(operation: str, frames: Sequence[StackFrame]) -> str:
    """What a collective is for, where the stack of a rank that waits in it tells; else empty."""
    if operation != "barrier" and any(frame.function == "barrier" for frame in frames):
        return "barrier"
    if is_in_backward(frames) and operation.startswith(
        ("all_reduce", "allreduce", "reduce_scatter", "_reduce_scatter")
    ):
        return "gradients"
    return ""


def has_left_loop(
    frames: Sequence[StackFrame],
    loops: Sequence[LineRange | None],
    others: Sequence[StackFrame],
    other_loops: Sequence[LineRange | None],
) -> bool:
    """Whether a rank has left for good a loop in which another rank still is: both were called from
    the same lines, none of them in a loop; then the one is on a later line of the function, and in
    no loop with the line of the other.

    Args:
        frames: Frames of the one.
        loops: The outermost loop around each of its lines; empty where a source is not known.
        others: Frames of the other.
        other_loops: Loops of the other, as ``loops``.
    """
    pairs = zip(frames, loops, others, other_loops, strict=False)  # none where a source is unknown
    for depth, (frame, loop, other, other_loop) in enumerate(pairs):
        if (frame.file, frame.function) != (other.file, other.function):
            return False
        if frame.line != other.line:
            shared = other_loop is not None and other_loop[0] <= frame.line <= other_loop[1]
            return (
                frame.line > other.line
                and not shared
                and _is_looping(others[depth:], other_loops[depth:])
            )
        if loop is not None:  # they may be in different rounds of it
            return False
    return False


def _is_looping(frames: Sequence[StackFrame], loops: Sequence[LineRange | None]) -> bool:
    """Whether the user's code, or a trainer's, is in a loop: torch has loops of its own."""
    return any(
        loop is not None and _TORCH not in frame.file
        for frame, loop in zip(frames, loops, strict=True)
    )


def _is_library(path: str) -> bool:
    return any(part in path for part in _LIBRARY)
