"""Where a rank notes its moments: around functions of torch that its program calls anyway.

Each replaced function does what it did, and is not in the tracebacks of what it raises. None is seen
by torch's compiler as a function to trace.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import sys
from collections.abc import Callable
from time import monotonic_ns
from types import FrameType
from typing import Any

import torch

from .frames import is_within
from .guard import guarded, unseen
from .imports import after_import
from .marks import (
    BACKWARD,
    BACKWARD_END,
    COLLECTION,
    COLLECTION_END,
    DATA,
    DATA_END,
    EVALUATION,
    REPLICATED,
    TRAINING,
    WAIT,
    WAIT_END,
    Marks,
)
from .waits import Waiting

_LONG_COLLECTION_NS = 1_000_000
"""A hundred times what it takes to look where the program is."""
_MEGATRON_PASSES = "megatron.core.pipeline_parallel.schedules"
"""Whose ``custom_backward`` calls torch's engine past ``torch.autograd.backward``."""
_LIGHTNING_MODES = (
    "lightning.pytorch.utilities.model_helpers",
    "pytorch_lightning.utilities.model_helpers",
)
"""Whose ``_ModuleMode.restore`` ends an evaluation: it sets ``training`` of each module itself."""


def watch_groups(on_begin: Callable[[], None], on_group: Callable[[], None]) -> None:
    """Have ``on_begin`` called before the job makes its process group, and ``on_group`` after that;
    each further time that it does as well. What it waits for is noted."""
    if not torch.distributed.is_available():
        return
    from torch.distributed import distributed_c10d  # noqa: PLC0415 - torch has it already

    original = distributed_c10d.init_process_group

    @functools.wraps(original)
    def starting(*args: Any, **options: Any) -> Any:  # noqa: ANN401 - as torch's
        waiting = Waiting()
        guarded(_note_joining, waiting, args, options)
        guarded(on_begin)
        try:
            result = original(*args, **options)
        except BaseException as error:
            unseen(error)
            raise
        finally:
            guarded(waiting.end)
        guarded(on_group)
        return result

    distributed_c10d.init_process_group = starting
    torch.distributed.init_process_group = starting


def _note_joining(waiting: Waiting, args: tuple[Any, ...], options: dict[str, Any]) -> None:
    """Note that the process waits for all ranks: as which one, and where they meet."""
    given = {**dict(zip(_OF_INIT, args, strict=False)), **options}
    content: dict[str, Any] = {"address": _meeting_place(given)}
    for name in ("rank", "world_size"):
        if type(given.get(name)) is int and given[name] >= 0:
            content[name] = given[name]
    waiting.begin("group", content)


_OF_INIT = ("backend", "init_method", "timeout", "world_size", "rank", "store")
"""The first parameters of ``init_process_group``."""


def _meeting_place(given: dict[str, Any]) -> str:
    """``host:port``, or a file; empty where that is not known."""
    store, method = given.get("store"), given.get("init_method")
    if store is not None:
        host, port = getattr(store, "host", ""), getattr(store, "port", "")
        return f"{host}:{port}" if host else ""
    if isinstance(method, str) and not method.startswith("env:"):
        return method.removeprefix("tcp://").partition("?")[0]
    host = os.environ.get("MASTER_ADDR")
    return f"{host}:{os.environ.get('MASTER_PORT', '')}" if host else ""


def watch_passes(marks: Marks) -> None:
    """Note backward passes, and where DistributedDataParallel's forward passes begin."""
    _surround(torch.autograd, "backward", marks, BACKWARD, BACKWARD_END)

    def watch_megatron(schedules: Any) -> None:  # noqa: ANN401 - a module
        if hasattr(schedules, "custom_backward"):
            _surround(schedules, "custom_backward", marks, BACKWARD, BACKWARD_END)

    after_import(_MEGATRON_PASSES, watch_megatron)
    if torch.distributed.is_available():
        replicated = torch.nn.parallel.DistributedDataParallel
        forward = replicated.forward

        @functools.wraps(forward)
        def noting(self: Any, *args: Any, **options: Any) -> Any:  # noqa: ANN401 - as torch's
            if torch.compiler.is_compiling():
                return forward(self, *args, **options)  # type: ignore[no-untyped-call]
            marks.note(REPLICATED)
            try:
                return forward(self, *args, **options)  # type: ignore[no-untyped-call]
            except BaseException as error:
                unseen(error)
                raise

        replicated.forward = noting  # type: ignore[method-assign]


def watch_loader(marks: Marks) -> None:
    """Note waits for batches of a DataLoader."""
    from torch.utils.data import dataloader  # noqa: PLC0415 - 10 ms, and torch has it already

    _surround(dataloader._BaseDataLoaderIter, "__next__", marks, DATA, DATA_END)


def watch_waits(marks: Marks) -> Callable[[], None]:
    """Note waits for collectives: of those that return a handle, and of functional ones (DTensor's).
    Waits within torch's C++ (DistributedDataParallel's) pass neither. Returns what ends it."""
    if not torch.distributed.is_available():
        return lambda: None
    from torch.distributed import _functional_collectives as functional  # noqa: PLC0415

    undo = contextlib.ExitStack()
    undo.callback(_surround(torch.distributed.Work, "wait", marks, WAIT, WAIT_END))
    undo.callback(_surround(functional, "wait_tensor", marks, WAIT, WAIT_END))
    return undo.close


class Peers:
    """The ranks that this rank sends to and receives from.

    Attributes:
        sends, receives: Global ranks.
    """

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Begin anew, as in a process that has been forked."""
        self.sends: set[int] = set()
        self.receives: set[int] = set()

    def watch(self) -> None:
        """Note the partners of batched sends and receives, which pipelines use."""
        if not torch.distributed.is_available():
            return
        operation = torch.distributed.P2POp
        original = operation.__init__

        @functools.wraps(original)
        def noting(made: Any, *args: Any, **options: Any) -> None:  # noqa: ANN401 - as torch's
            try:
                original(made, *args, **options)
            except BaseException as error:
                unseen(error)
                raise
            guarded(self._note, made)

        operation.__init__ = noting  # type: ignore[assignment, method-assign]

    def _note(self, made: Any) -> None:  # noqa: ANN401 - a P2POp
        partners = self.sends if "send" in getattr(made.op, "__name__", "") else self.receives
        partners.add(int(made.peer))


def watch_modes(marks: Marks) -> None:
    """Note when a module is switched to evaluation, and back: only that of the outermost call, since
    a module switches its parts."""
    original = torch.nn.Module.train

    @functools.wraps(original)
    def noting(self: torch.nn.Module, mode: bool = True) -> torch.nn.Module:
        if torch.compiler.is_compiling():  # this is traced, and is no moment
            return original(self, mode)
        frame = sys._getframe()
        if not is_within(frame, {frame.f_code}):
            marks.note(EVALUATION if mode is False else TRAINING)
        try:
            return original(self, mode)
        except BaseException as error:
            unseen(error)
            raise

    torch.nn.Module.train = noting  # type: ignore[assignment, method-assign]
    for name in _LIGHTNING_MODES:
        after_import(name, functools.partial(_watch_restored_modes, marks))


def _watch_restored_modes(marks: Marks, helpers: Any) -> None:  # noqa: ANN401 - a module
    """Note when Lightning goes back to the mode before an evaluation."""
    modes = getattr(helpers, "_ModuleMode", None)
    if modes is None:
        return  # of an older version, which calls ``train``
    original = modes.restore

    def note(modes: Any) -> None:  # noqa: ANN401 - a _ModuleMode
        if modes.mode.get(""):  # the whole module's
            marks.note(TRAINING)

    @functools.wraps(original)
    def restoring(self: Any, *args: Any, **options: Any) -> Any:  # noqa: ANN401 - as the original's
        try:
            result = original(self, *args, **options)
        except BaseException as error:
            unseen(error)
            raise
        guarded(note, self)
        return result

    modes.restore = restoring


def watch_collections(marks: Marks, on_long: Callable[[FrameType, int], None]) -> None:
    """Note Python's garbage collections; ``on_long`` is called with the frame in which a long one
    came, and its nanoseconds: no other thread runs meanwhile."""
    began = [0]

    def note(phase: str, _: dict[str, int]) -> None:
        if phase == "start":
            marks.note(COLLECTION)
            began[0] = monotonic_ns()
            return
        marks.note(COLLECTION_END)
        lasted = monotonic_ns() - began[0]
        frame = sys._getframe().f_back  # none as the interpreter ends
        if lasted >= _LONG_COLLECTION_NS and began[0] and frame is not None:
            guarded(on_long, frame, lasted)

    gc.callbacks.append(note)


def _surround(owner: Any, name: str, marks: Marks, begin: int, end: int) -> Callable[[], None]:  # noqa: ANN401 - a class or a module
    """Have ``owner.name`` note a moment before and one after it. Returns what ends it."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def noting(*args: Any, **options: Any) -> Any:  # noqa: ANN401 - as the original's
        marks.note(begin)
        try:
            return original(*args, **options)
        except BaseException as error:
            unseen(error)
            raise
        finally:
            marks.note(end)

    noting._torchdynamo_disable = True  # type: ignore[attr-defined] # what torch._dynamo.disable sets, without its import
    setattr(owner, name, noting)
    return functools.partial(setattr, owner, name, original)
