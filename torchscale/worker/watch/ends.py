"""How processes of a job end: a process that dies of an exception leaves it in ``ends/``, whatever
it had imported by then.

Python keeps an uncaught exception in ``sys.last_value`` before it prints it: the collector's thread
looks for it, and so does the end of the process. Processes of ``multiprocessing`` print theirs
themselves, and the exception passes through the clean-up at their end.
"""

from __future__ import annotations

import atexit
import os
import sys
from typing import Any

from .guard import guarded
from .imports import after_import

FOLDER = "ends"
FORMAT = 1
RANK_VARIABLE = "TORCHSCALE_WATCH_RANK"
"""Variable with ``pid:rank:world size`` of the rank's process, for those that it starts."""
FIRST_ATTEMPT = "TORCHSCALE_WATCH_FIRST_ATTEMPT"
"""Variable with the number of the first attempt of this run of the command."""
_MOST_FRAMES = 100
"""Of a traceback, the innermost: recursion has a thousand."""
_MOST_CHARACTERS = 2_000
"""Of a message: its two ends."""
_MOST_FILES = 3
"""Of a process: one that goes on after its exceptions, as an interactive one, has many."""
_BEFORE_OTHERS = 1_000
"""Of what a process of ``multiprocessing`` does at its end: it may wait for others then."""
_MOST_DIGITS = 7
"""Of the number of a rank: ten million."""


class _Ends:
    """Of this process.

    Attributes:
        folder: Of the job.
        seen: Id of the exception that was left last.
        left: Exceptions so far.
        pid: Of the process that these are of.
        known: Facts of a rank that collects.
    """

    folder = ""
    seen = left = pid = 0
    known: dict[str, Any] = {}  # noqa: RUF012 - of the process


def watch_end(folder: str) -> None:
    """Have this process leave the exception that ends it in the folder of the job."""
    _Ends.folder = folder
    atexit.register(guarded, look)
    after_import("multiprocessing.util", _watch_children)


def know(facts: dict[str, Any]) -> None:
    """Which rank this is; the program may have left its process group when it ends."""
    names = ("rank", "world_size")
    _Ends.known = {name: facts[name] for name in names}


def look() -> None:
    """Leave the exception that Python is printing or has printed, once.

    Raises:
        OSError: it cannot be written.
    """
    error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    if isinstance(error, BaseException) and id(error) != _Ends.seen:
        _leave_raised(error)


def note_raised(error: BaseException | None) -> None:
    """Leave an exception that somebody has caught, and that ended the program; ``None`` for none.

    Raises:
        OSError: it cannot be written.
    """
    if error is not None:
        _leave_raised(error)


def _watch_children(util: Any) -> None:  # noqa: ANN401 - a module
    """Have processes of ``multiprocessing`` leave theirs: Python prints it in none of them. Those
    that are forked forget what is to be done at their end; those that are spawned begin here."""
    _at_end_of_child(util)
    util.register_after_fork(_Ends, lambda _: guarded(_at_end_of_child, util))


def _at_end_of_child(util: Any) -> None:  # noqa: ANN401 - a module
    util.Finalize(None, guarded, args=(_look_at_passing,), exitpriority=_BEFORE_OTHERS)


def _look_at_passing() -> None:
    """Leave the exception that passes through the end of this process. What starts ranks turns it
    into an exit."""
    error = sys.exc_info()[1]
    if isinstance(error, SystemExit):
        error = error.__context__ if error.code else None
    if error is not None and id(error) != _Ends.seen:
        _leave_raised(error)


def _leave_raised(error: BaseException) -> None:
    if _Ends.pid != os.getpid():  # this one was forked
        _Ends.pid, _Ends.left = os.getpid(), 0
    _Ends.seen = id(error)
    _Ends.left += 1
    if _Ends.left > _MOST_FILES:
        return
    content = {
        "type": _name(error),
        "text": _text(error),
        "frames": _frames(error),
        "child": _child(error),
    }
    leave("raised", {**of_process(), **content})


def leave(kind: str, content: dict[str, Any]) -> None:
    """Write a file of this process.

    Raises:
        OSError: it cannot be written.
    """
    if not _Ends.folder:
        return
    import json  # noqa: PLC0415 - no healthy process needs these
    from pathlib import Path  # noqa: PLC0415

    from . import clock  # noqa: PLC0415
    from .files import replace_whole  # noqa: PLC0415

    folder = Path(_Ends.folder) / FOLDER
    folder.mkdir(exist_ok=True)
    written = {"format": FORMAT, "kind": kind, "time": clock.now(), **content}
    name = f"{kind}-{os.getpid()}-{clock.now_ns()}.json"
    replace_whole(folder / name, json.dumps(written))


def of_process() -> dict[str, Any]:
    """Who this process is, as far as it is known by now."""
    rank, world_size = _own_rank()
    pid, noted = _noted_rank()
    is_of_it = pid is not None and noted in ((rank, world_size), (None, None))
    return {
        "pid": os.getpid(),
        "host": os.uname().nodename,
        "rank": rank,
        "local_rank": number(os.environ.get("LOCAL_RANK")),
        "world_size": world_size,
        "attempt": attempt_of(os.environ) + (pid is not None and not is_of_it),
        "of_rank": pid if is_of_it else None,
        "program": [text(word) for word in sys.orig_argv[:4]],
    }


def attempt_of(variables: Any) -> int:  # noqa: ANN401 - a mapping of text
    """Which attempt of the job a process with these variables is of."""
    first = number(variables.get(FIRST_ATTEMPT)) or 0
    return first + (number(variables.get("TORCHELASTIC_RESTART_COUNT")) or 0)


def number(value: str | None) -> int | None:
    """Of a variable; ``None`` where it is no such number."""
    if value is None or not (value.isascii() and value.isdigit() and len(value) <= _MOST_DIGITS):
        return None
    return int(value)


def text(value: str) -> str:
    """``value`` as it can be written: its two ends, where it is long."""
    value = value.encode("utf-8", "replace").decode()
    if len(value) <= _MOST_CHARACTERS:
        return value
    half = _MOST_CHARACTERS // 2
    return f"{value[:half]} … {value[-half:]}"


def _own_rank() -> tuple[int | None, int | None]:
    """As the collector knows it, or torch.distributed, or the launcher's variables say."""
    if _Ends.known:
        return _Ends.known["rank"], _Ends.known["world_size"]
    distributed = sys.modules.get("torch.distributed")
    try:
        if distributed is not None and distributed.is_initialized():
            return int(distributed.get_rank()), int(distributed.get_world_size())
    except Exception:  # noqa: BLE001, S110 - torch may be half imported: the variables say
        pass
    return number(os.environ.get("RANK")), number(os.environ.get("WORLD_SIZE"))


def _noted_rank() -> tuple[int | None, tuple[int | None, int | None]]:
    """PID, rank and world size of the rank that started this process; ``None`` without one."""
    pid, _, noted = os.environ.get(RANK_VARIABLE, "").partition(":")
    rank, _, world_size = noted.partition(":")
    started_by = number(pid)
    if started_by == os.getpid():
        return None, (None, None)
    return started_by, (number(rank), number(world_size))


def _name(error: BaseException) -> str:
    """As Python prints it."""
    module = type(error).__module__
    name = type(error).__qualname__
    return name if module in ("builtins", "__main__") else f"{module}.{name}"


def _text(error: BaseException) -> str:
    try:
        return text(str(error))
    except Exception:  # noqa: BLE001 - code of the program
        return "its text cannot be shown"


def _frames(error: BaseException) -> list[list[Any]]:
    """File, line and function of its frames, the innermost last; of code that cannot be parsed, its
    line at the end."""
    found: list[list[Any]] = []
    step = error.__traceback__
    while step is not None:
        code = step.tb_frame.f_code
        found.append([text(code.co_filename), step.tb_lineno or 0, text(code.co_name)])
        del found[:-_MOST_FRAMES]
        step = step.tb_next
    if isinstance(error, SyntaxError) and error.filename:
        found.append([text(str(error.filename)), int(error.lineno or 0), "<module>"])
    return found


def _child(error: BaseException) -> dict[str, Any] | None:
    """What the launcher of torch.multiprocessing says of the process that failed."""
    pid, index = getattr(error, "error_pid", None), getattr(error, "error_index", None)
    if type(pid) is not int or type(index) is not int:
        return None
    code = getattr(error, "exit_code", None)
    return {"pid": pid, "index": index, "exit_code": code if type(code) is int else None}
