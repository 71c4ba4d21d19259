"""The zygote of :mod:`tests.zygote`: imports torch and torchscale, and forks what is asked for.

``python tests/zygote_process.py DESCRIPTOR PARENT``: of the socket on which it is asked, and the
process whose children the forks become.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import fcntl
import gc
import io
import os
import pickle
import platform
import resource
import runpy
import signal
import socket
import struct
import sys
import threading
import time
import traceback
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any, NoReturn

added = [place for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place]
base_path = [place for place in sys.path[1:] if place not in added]
"""Where modules come from without ``PYTHONPATH``."""
sys.path[0] = str(Path(__file__).parents[1])

from tests.zygote import (  # noqa: E402 - with the path that was set above
    READY,
    UNFIT,
    Order,
    ask,
    become_parent_of_orphans,
    fork_instead,
    imported_with,
    read_exactly,
)
from torchscale.util.processes.exit import end_with_parent  # noqa: E402

IMPORTED = (
    "torch.distributed.run",
    "torchscale.cli.main",
    "torchscale.worker.launcher.elastic_agent",
    "torchscale.worker.parallel.mesh",
    "torchscale.worker.parallel.zero",
)
"""With what training needs: what most of the program's processes import."""
WITH_THREADS = ("torch.distributed.run", "torchscale")
"""Modules that have threads when they start others."""
_HIGH = 500
"""Descriptors are kept from here on while they change places."""
_PR_SET_MM, _PR_SET_MM_MAP, _PR_SET_NAME = 35, 14, 15
_LIBC = ctypes.CDLL(None, use_errno=True)
_kept: list[Any] = [sys.modules["__main__"]]
"""What must outlive the names that it had: among it the memory that the kernel shows as command line
and environment of this process."""


def main() -> None:
    """Fork until the process that asks has gone."""
    line, parent = socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2])
    end_with_parent(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for those that were forked
    imported_with.update(os.environ)
    for name in IMPORTED:
        import_module(name)
    worker = import_module("torchscale.worker.rank")
    worker.torch.set_num_threads(1)
    worker.import_for_training()
    gc.collect()
    gc.freeze()
    try:
        assert _has_one_thread(), "a library has started a thread: a fork may hang"
        _show(["zygote"], {})
    except (AssertionError, OSError):
        traceback.print_exc()
        line.sendall(UNFIT)
        return
    line.sendall(READY)
    _fork_on_request(line)


def _fork_on_request(line: socket.socket) -> None:
    """Fork for the process at the other end, whose children the forks become."""
    while True:
        size, descriptors, _, _ = socket.recv_fds(line, 4, 64)
        if not size:
            return
        order: Order = pickle.loads(read_exactly(line, struct.unpack("I", size)[0]))  # noqa: S301 - ours
        between = os.fork()
        if between == 0:
            if os.fork():
                os._exit(0)
            _run(order, descriptors, line)
        os.waitpid(between, 0)
        for descriptor in descriptors:
            os.close(descriptor)


def _has_one_thread() -> bool:
    return len(list(Path("/proc/self/task").iterdir())) == 1


def _fork_here(order: Order, descriptors: Sequence[int]) -> int:
    """In a fork of the zygote: its own fork."""
    pid = os.fork()
    if pid == 0:
        _run(order, descriptors, None)
    return pid


@contextlib.contextmanager
def _forks_of_threads() -> Iterator[None]:
    """For a program that has threads when it starts others: a fork of this process, made before
    there are any, forks them. (A fork has the locks that another thread holds for ever.)"""
    mine, theirs = socket.socketpair()
    program, server = os.getpid(), os.fork()
    if server == 0:
        mine.close()
        end_with_parent(program)
        try:
            _fork_on_request(theirs)
        finally:
            os._exit(0)
    theirs.close()
    become_parent_of_orphans()
    fork_instead(partial(ask, mine))
    try:
        yield
    finally:
        mine.close()
        os.waitpid(server, 0)


def _run(order: Order, descriptors: Sequence[int], line: socket.socket | None) -> NoReturn:
    """Be the process that was ordered, to its end: a script to the end of Python, a module as it
    ends itself."""
    status = 1
    try:
        gc.freeze()  # nothing of the process that was forked is taken apart
        _become(order, descriptors, line)
        if order.is_led:
            _follow_a_leader()
            status = _status_of(partial(_run_script, order))
            sys.exit(status)
        status = _exit_status(order)
    except BaseException as error:
        if isinstance(error, SystemExit):
            raise
        sys.excepthook(type(error), error, error.__traceback__)
    with contextlib.suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(status)


def _follow_a_leader() -> None:
    """Go on in a child, in a process group of its own, which this process waits for."""
    child = os.fork()
    if child:
        _, ending = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(ending)
        os._exit(code if code >= 0 else 128 - code)
    os.setpgid(0, 0)
    os.environ.update(GUEST_LEADER=str(os.getppid()), GUEST_COMMAND=str(os.getpid()))


def _run_script(order: Order) -> None:
    """Run it as Python does, in a ``__main__`` of its own."""
    path = Path(order.directory, order.argv[1])
    sys.path[:] = [str(path.parent), *_module_path(order)]
    sys.argv[:] = list(order.argv[1:])
    sys.modules["__main__"] = module = types.ModuleType("__main__")
    module.__file__ = str(path)
    module.__loader__ = SourceFileLoader("__main__", str(path))
    exec(compile(path.read_bytes(), str(path), "exec"), vars(module))  # noqa: S102 - of a test


def _become(order: Order, descriptors: Sequence[int], line: socket.socket | None) -> None:
    """Take on all that a process has from the one that starts it."""
    if line is not None:
        while os.getppid() != order.parent:
            time.sleep(0.0005)
    if order.new_session:
        os.setsid()
    for path in order.namespaces:
        with Path(path).open() as file:
            if _LIBC.setns(file.fileno(), 0):
                raise OSError(ctypes.get_errno(), f"setns {path}")
    platform._uname_cache = None  # type: ignore[attr-defined] # the host's name may be another now
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGPIPE}:
        wanted = signal.SIG_IGN if number in order.ignored else signal.SIG_DFL
        if number == signal.SIGINT and wanted is signal.SIG_DFL:
            wanted = signal.default_int_handler  # type: ignore[assignment]
        signal.signal(number, wanted)
    gc.enable()
    if order.prepare is not None:
        order.prepare()
    os.umask(order.umask)
    os.sched_setaffinity(0, order.cpus)
    os.environ.clear()
    os.environ.update(order.environment)
    _show(order.argv, order.environment)
    os.chdir(order.directory)
    if line is not None:
        line.sendall(struct.pack("i", os.getpid()))
    _place(descriptors, order.targets)
    for kind, bounds in order.limits.items():
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(kind, bounds)
    _open_streams("-u" in order.argv[1:3] or bool(order.environment.get("PYTHONUNBUFFERED")))


def _open_streams(unbuffered: bool) -> None:
    """Python's own, as it makes them at its start."""
    _kept.extend((sys.stdin, sys.stdout, sys.stderr))
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout, sys.stderr = (
        io.TextIOWrapper(
            open(number, "wb", 0 if unbuffered else -1, closefd=False),  # noqa: SIM115
            encoding="utf-8",
            errors=errors,
            newline="\n",
            line_buffering=number == 2 or os.isatty(number),
            write_through=unbuffered,
        )
        for number, errors in ((1, sys.stdout.errors), (2, "backslashreplace"))
    )
    for stream in ("stdin", "stdout", "stderr"):
        setattr(sys, f"__{stream}__", getattr(sys, stream))


def _place(descriptors: Sequence[int], targets: Sequence[int]) -> None:
    """Put each descriptor where it belongs, and close all others."""
    least = min(_HIGH, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)
    high = [fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, least) for number in descriptors]
    for number in [int(entry.name) for entry in Path("/proc/self/fd").iterdir()]:
        if number not in high:
            with contextlib.suppress(OSError):
                os.close(number)
    for number, target in zip(high, targets, strict=True):
        os.dup2(number, target)
        os.close(number)


def _module_path(order: Order) -> list[str]:
    places = order.environment.get("PYTHONPATH", "").split(os.pathsep)
    return [*filter(None, places), *base_path]


class _MemoryMap(ctypes.Structure):
    """``struct prctl_mm_map`` of Linux."""

    _fields_ = (
        *((name, ctypes.c_uint64) for name in (
            "start_code", "end_code", "start_data", "end_data", "start_brk", "brk",
            "start_stack", "arg_start", "arg_end", "env_start", "env_end", "auxv",
        )),
        ("auxv_size", ctypes.c_uint32),
        ("exe_fd", ctypes.c_int32),
    )  # fmt: skip


def _show(argv: Sequence[str], environment: Mapping[str, str]) -> None:
    """Have the kernel show these as the command line and the environment of this process."""
    fields = Path("/proc/self/stat").read_text().rpartition(") ")[2].split()
    numbers = dict(zip(range(3, 60), fields, strict=False))
    _LIBC.sbrk.restype = ctypes.c_void_p
    shown = [
        "\0".join(argv) + "\0",
        "".join(f"{name}={value}\0" for name, value in environment.items()),
    ]
    places = []
    for text in shown:
        content = os.fsencode(text)
        memory = ctypes.create_string_buffer(content, max(1, len(content)))
        _kept.append(memory)
        places += [ctypes.addressof(memory), ctypes.addressof(memory) + len(content)]
    wanted = _MemoryMap(
        *(int(numbers[field]) for field in (26, 27, 45, 46, 47)),
        _LIBC.sbrk(0),
        int(numbers[28]),
        *places,
        0,
        0,
        -1,
    )
    size = ctypes.c_ulong(ctypes.sizeof(wanted))
    if _LIBC.prctl(_PR_SET_MM, _PR_SET_MM_MAP, ctypes.byref(wanted), size, 0):
        raise OSError(ctypes.get_errno(), "PR_SET_MM_MAP")
    _LIBC.prctl(_PR_SET_NAME, Path(sys.executable).name.encode(), 0, 0, 0)


def _exit_status(order: Order) -> int:
    """Run the module as ``python -m`` does, and end as Python does. Returns the exit status."""
    options = order.argv[1 : order.argv.index("-m")]
    start = order.argv.index("-m") + 1
    module = order.argv[start]
    sys.path[:] = [*([] if "-P" in options else [order.directory]), *_module_path(order)]
    sys.path_importer_cache.clear()
    sys.argv[:] = ["-m", *order.argv[start + 1 :]]
    sys.orig_argv[:] = list(order.argv)
    sys.modules["__main__"] = types.ModuleType("__main__")
    if not hasattr(sys.modules.get(module), "__path__"):
        sys.modules.pop(module, None)
    fork_instead(_fork_here, _has_one_thread)
    with _forks_of_threads() if module in WITH_THREADS else contextlib.nullcontext():
        status = _status_of(partial(runpy._run_module_as_main, module))  # type: ignore[attr-defined]
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    return status


def _status_of(run: Callable[[], object]) -> int:
    """The exit status with which Python ends that runs this."""
    try:
        run()
    except SystemExit as ending:
        if isinstance(ending.code, int):
            return ending.code & 0xFF
        if ending.code is not None:
            sys.stderr.write(f"{ending.code}\n")
        return int(ending.code is not None)
    except BaseException as error:  # noqa: BLE001 - as Python says it
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
            trace = trace.tb_next
        sys.excepthook(type(error), error.with_traceback(trace), trace)
        if isinstance(error, KeyboardInterrupt):
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
        return 1
    return 0


if __name__ == "__main__":
    main()
