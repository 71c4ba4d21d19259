"""Processes that are forks of one that has imported torch and torchscale, for tests that start the
program and its launches: to import takes seconds of CPU time in every process that does.

While :meth:`Zygote.serving` is in force, a ``python -m torchscale…`` or ``python -m torch…`` that
this process starts is a fork of the zygote. It is a child of this process like any other, with the
standard streams, working directory, environment and limits that it would have, also for those that
look at it in ``/proc``; what it starts in turn is forked from it. Whatever else is started, or
could behave otherwise as a fork, is started as ever: another program or Python, options of
Python's, a variable that is read when Python or torch starts, a ``sitecustomize`` of its own.
"""

from __future__ import annotations

import contextlib
import ctypes
import inspect
import os
import pickle
import resource
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROGRAM = Path(__file__).with_name("zygote_process.py")
READY, UNFIT = b"ready", b"unfit"
"""What the zygote says when it has imported all: that it can fork, or why not is on stderr."""
START_SECONDS = 120.0
"""Longest wait for the zygote, which imports in seconds, and for a fork of it."""
PACKAGES = ("torchscale", "torch")
OPTIONS = ("-P", "-u")
"""Of Python; a fork can have these."""
AT_START = ("PYTHON", "LD_", "LC_", "LANG", "TZ", "MALLOC_", "TORCH_", "PYTORCH_", "GOMP_", "KMP_",
    "CUDA_", "NVIDIA_", "HF_HOME", "MPLBACKEND", "COVERAGE_")  # fmt: skip
"""How variables begin that Python, torch or a library reads when it starts."""
LATER = ("PYTHONPATH", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE", "TORCH_NCCL_",
    "CUDA_VISIBLE_DEVICES")  # fmt: skip
"""Those of them that a fork can have."""
SHADOWS = ("sitecustomize.py", "usercustomize.py", "torch.py", "torch", "torchscale")
"""What a further place of modules may hold that takes effect, or replaces ours, at the start."""
_PR_SET_CHILD_SUBREAPER = 36
_EXECUTE = subprocess.Popen._execute_child  # type: ignore[attr-defined]
_PARAMETERS = inspect.signature(_EXECUTE)
imported_with: dict[str, str] = {}
"""Environment in which the zygote has imported."""


@dataclass(frozen=True)
class Order:
    """A process that is to be forked.

    Attributes:
        argv: Of the process, with Python's.
        environment: Its variables.
        directory: Where it works.
        parent: Whose child it is to be.
        targets: Its descriptors, in the order of those that come with the order.
        ignored: Signals that it ignores.
        umask: Its umask.
        cpus: That it may run on.
        limits: Of ``setrlimit``.
        new_session: Whether it leads a session.
        namespaces: Files of those that it enters.
        prepare: Called before the program.
        is_led: Whether the program is the child of a process that only waits for it, as one that a
            shell with job control has started (:func:`led_by_a_shell`).
    """

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    directory: str
    parent: int
    targets: tuple[int, ...]
    ignored: tuple[int, ...]
    umask: int
    cpus: frozenset[int]
    limits: Mapping[int, tuple[int, int]]
    new_session: bool
    namespaces: tuple[str, ...]
    prepare: Callable[[], None] | None
    is_led: bool = False


def led_by_a_shell() -> None:
    """As ``preexec_fn``, it has a script forked: in a process group of its own, below a process that
    waits for it."""


class Zygote:
    """The process that forks for this one; it starts with the first use."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._line: socket.socket | None = None
        self._can_fork = True
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def serving(self) -> Iterator[None]:
        """Fork what is started meanwhile and can be forked."""
        if self._line is None and self._can_fork:
            self._start()
        if not self._can_fork:
            yield
            return
        fork_instead(self._fork)
        try:
            yield
        finally:
            subprocess.Popen._execute_child = _EXECUTE  # type: ignore[attr-defined]

    def end(self) -> None:
        """End the process; those that it has forked go on."""
        if self._process is not None and self._line is not None:
            self._line.close()
            self._process.wait(START_SECONDS)
        self._process = self._line = None

    def _fork(self, order: Order, descriptors: Sequence[int]) -> int:
        assert self._line is not None
        try:
            with self._lock:
                return ask(self._line, order, descriptors)
        except BaseException:  # as of a test that is out of time: an answer may still come
            self.end()
            raise

    def _start(self) -> None:
        """Start it in the environment of now."""
        become_parent_of_orphans()
        self._line, theirs = socket.socketpair()
        self._line.settimeout(START_SECONDS)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, str(PROGRAM), str(theirs.fileno()), str(os.getpid())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )
        imported_with.clear()
        imported_with.update(os.environ)
        self._can_fork = read_exactly(self._line, len(READY)) == READY
        if not self._can_fork:
            self.end()


def become_parent_of_orphans() -> None:
    """What the child of a child of this process has forked becomes its own child."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def ask(line: socket.socket, order: Order, descriptors: Sequence[int]) -> int:
    """Have the process at the other end fork one. Returns its pid."""
    content = pickle.dumps(order)
    socket.send_fds(line, [struct.pack("I", len(content))], list(descriptors))
    line.sendall(content)
    return int(struct.unpack("i", read_exactly(line, 4))[0])


def fork_instead(
    fork: Callable[[Order, Sequence[int]], int], can_fork: Callable[[], bool] = lambda: True
) -> None:
    """Have ``fork`` make what ``subprocess`` starts from now on, where it can be forked."""

    def execute_child(popen: Any, *arguments: Any, **named: Any) -> None:
        given = dict(_PARAMETERS.bind(popen, *arguments, **named).arguments)
        order, descriptors = _order(given)
        if order is None or not can_fork():
            _EXECUTE(popen, *arguments, **named)
            return
        sys.audit("subprocess.Popen", order.argv[0], list(order.argv), given["cwd"], given["env"])
        popen.pid = fork(order, descriptors)
        popen._child_created = True
        pipes = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        popen._close_pipe_fds(*(given[name] for name in pipes))

    subprocess.Popen._execute_child = execute_child  # type: ignore[attr-defined]


def _order(given: Mapping[str, Any]) -> tuple[Order | None, list[int]]:
    """What is to be forked, and its descriptors; ``None`` where it has to be started."""
    unusual = not given["close_fds"] or any(
        given.get(name) not in (None, -1, False, ())
        for name in ("executable", "shell", "startupinfo", "gid", "gids", "uid", "umask")
    )
    unusual |= given.get("process_group", -1) not in (None, -1)
    if unusual or isinstance(given["args"], str | bytes | os.PathLike):
        return None, []
    namespaces, cpus, argv = _placed([os.fsdecode(part) for part in given["args"]])
    environment = {
        os.fsdecode(name): os.fsdecode(value)
        for name, value in (os.environ if given["env"] is None else given["env"]).items()
    }
    directory = Path.cwd() / os.fsdecode(given["cwd"] or ".")
    descriptors = [
        own if given[name] == -1 else given[name]
        for own, name in enumerate(("p2cread", "c2pwrite", "errwrite"))
    ]
    descriptors += given["pass_fds"]
    is_led = given["preexec_fn"] is led_by_a_shell
    can_be_forked = (
        (_is_ours(argv) or is_led)
        and _same_at_start(environment)
        and (is_led or _can_be_sent(given["preexec_fn"]))
        and directory.is_dir()
        and all(_is_open(number) for number in descriptors)
    )
    if not can_be_forked:
        return None, []
    order = Order(
        argv=argv,
        environment=environment,
        directory=str(directory),
        parent=os.getpid(),
        targets=(0, 1, 2, *given["pass_fds"]),
        ignored=tuple(
            number
            for number in signal.valid_signals() - {signal.SIGPIPE}
            if signal.getsignal(number) is signal.SIG_IGN
        ),
        umask=_umask(),
        cpus=frozenset(cpus or os.sched_getaffinity(0)),
        limits=_limits(),
        new_session=given["start_new_session"],
        namespaces=namespaces,
        prepare=given["preexec_fn"],
        is_led=is_led,
    )
    return order, descriptors


def _placed(argv: list[str]) -> tuple[tuple[str, ...], set[int], tuple[str, ...]]:
    """The namespaces that nsenter enters and the CPU of taskset (as ``tests/network.py`` has them),
    and what runs there."""
    namespaces: tuple[str, ...] = ()
    cpus: set[int] = set()
    if Path(argv[0]).name == "nsenter" and argv[1:5] == ["-t", argv[2], "-n", "-u"]:
        namespaces = tuple(f"/proc/{argv[2]}/ns/{kind}" for kind in ("net", "uts"))
        argv = argv[5:]
    if Path(argv[0]).name == "taskset" and argv[1] == "-c" and argv[2].isdigit():
        cpus, argv = {int(argv[2])}, argv[3:]
    return namespaces, cpus, tuple(argv)


def _is_ours(argv: Sequence[str]) -> bool:
    """Whether it is a module of torch's or ours, in this Python."""
    rest = list(argv[1:])
    while rest and rest[0] in OPTIONS:
        rest.pop(0)
    return (
        argv[0] == sys.executable and rest[:1] == ["-m"] and rest[1].partition(".")[0] in PACKAGES
    )


def _same_at_start(environment: Mapping[str, str]) -> bool:
    """Whether nothing differs that is read when Python or a library starts."""
    named = {
        name
        for name in {*environment, *imported_with}
        if name.startswith(AT_START) and not name.startswith(LATER)
    }
    added = set(environment.get("PYTHONPATH", "").split(os.pathsep))
    added -= {"", *imported_with.get("PYTHONPATH", "").split(os.pathsep)}
    return all(environment.get(name) == imported_with.get(name) for name in named) and not any(
        Path(place, name).exists() for place in added for name in SHADOWS
    )


def _can_be_sent(prepare: Callable[[], None] | None) -> bool:
    """Whether the zygote can import it."""
    return prepare is None or getattr(prepare, "func", prepare).__module__.startswith("torchscale.")


def _umask() -> int:
    found = os.umask(0)
    os.umask(found)
    return found


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def _limits() -> dict[int, tuple[int, int]]:
    kinds = [getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")]
    return {kind: resource.getrlimit(kind) for kind in kinds}


def read_exactly(line: socket.socket, size: int) -> bytes:
    content = b""
    while len(content) < size:
        part = line.recv(size - len(content))
        if not part:
            raise EOFError("the other end has gone")
        content += part
    return content
