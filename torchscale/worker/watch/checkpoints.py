"""The files that a rank saves, and those that it loads before its first step: they tell from where
an attempt of a job goes on.

Seen are the calls of ``checkpoint_calls.py``. Calls within these calls are a part of them. A save
counts once it is complete; one that failed does not.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from typing import Any

import torch

from . import clock
from .checkpoint_calls import CALLS, OF_TORCH, UNSEEN, Call, How
from .guard import guarded, unseen
from .imports import after_import
from .marks import SAVE, SAVE_END, Marks
from .program_thread import is_program_thread
from .saved_files import NOWHERE, File, FindFile, file_of_folder, found_file

_MOST_SAVES = 500
"""Paths that are kept, the last ones: a job restarts from one of its last checkpoints."""
_MOST_LOADS = 250
"""The first ones and as many of the last: where the first batch loads a file for each sample, the
checkpoint was loaded before or comes after."""


class Checkpoints:
    """Saves and loads of this process.

    Attributes:
        steps: Steps of the first optimizer so far.
    """

    def __init__(self, marks: Marks) -> None:
        self._marks = marks
        self.begin()

    def begin(self) -> None:
        """Begin anew, as in a process that has been forked."""
        self.steps = 0
        # A handler of a signal may save while this thread notes another save.
        self._lock = threading.RLock()
        self._thread = threading.local()
        self._writing = 0
        self._saves: OrderedDict[tuple[str, int], File] = OrderedDict()
        self._first_loads: list[File] = []
        self._last_loads: deque[File] = deque(maxlen=_MOST_LOADS)
        self._is_new = self._is_over = False

    def watch(self) -> None:
        """Note saves and loads from now on."""
        self._watch_module(OF_TORCH, torch)
        for name, calls in CALLS.items():
            after_import(name, functools.partial(self._watch_module, calls))

    def stop(self) -> None:
        """Note nothing from now on."""
        self._is_over = True

    def take(self) -> dict[str, Any] | None:
        """All that was noted; ``None`` where that is what it was at the last call."""
        if not self._is_new:
            return None
        with self._lock:
            self._is_new = False
            return {
                "saves": list(self._saves.values()),
                "loads": [*self._first_loads, *self._last_loads],
                "unseen": [name for name in UNSEEN if name in sys.modules],
            }

    def take_again(self) -> None:
        """What was taken last could not be written."""
        self._is_new = True

    def on_step(self) -> None:
        """After a step of the first optimizer."""
        if not self.steps:
            self._is_new |= any(name in sys.modules for name in UNSEEN)
        self.steps += 1

    def _watch_module(self, calls: Iterable[Call], module: Any) -> None:  # noqa: ANN401 - a module
        surround = {How.SAVES: self._save, How.BEGINS: self._save_later, How.LOADS: self._load}
        for call in calls:
            owner, _, name = call.function.rpartition(".")
            holder = getattr(module, owner, None) if owner else module
            original = getattr(holder, name, None)
            if original is not None:
                title = f"{module.__name__}.{call.function}"
                function = surround[call.how](original, title, call.file)
                _replace(holder, name, original, function)

    def _save(self, original: Any, call: str, file: FindFile) -> Any:  # noqa: ANN401 - functions
        """The function, noted as a save, and its time where the main thread spends it."""

        @functools.wraps(original, updated=())
        def noting(*args: Any, **options: Any) -> Any:  # noqa: ANN401 - as the original's
            is_noted = guarded(self._enters)
            began, steps = clock.now_ns(), self.steps
            is_main = is_noted and is_program_thread()
            if is_main:
                self._marks.note(SAVE)
            try:
                result = original(*args, **options)
            except BaseException as error:
                unseen(error)
                raise
            finally:
                if is_main:
                    self._marks.note(SAVE_END)
                if is_noted:
                    self._leaves()
                    self._has_written()
            if is_noted:
                guarded(self._note_save, call, steps, began, found_file(file, args, options))
            return result

        return noting

    def _save_later(self, original: Any, call: str, file: FindFile) -> Any:  # noqa: ANN401 - functions
        """The same for a call that may return before the checkpoint is complete."""

        @functools.wraps(original, updated=())
        def noting(*args: Any, **options: Any) -> Any:  # noqa: ANN401 - as the original's
            is_noted = guarded(self._enters)
            began, steps = clock.now_ns(), self.steps
            # What is saved is not kept until then.
            path = found_file(file, args, options)["path"]
            if is_noted:
                self._marks.note(SAVE)
            try:
                result = original(*args, **options)
            except BaseException as error:
                if is_noted:
                    self._has_written()
                unseen(error)
                raise
            finally:
                if is_noted:
                    self._marks.note(SAVE_END)
                    self._leaves()

            def complete(future: Any = None) -> None:  # noqa: ANN401 - a future
                self._has_written()
                if future is None or not (future.cancelled() or future.exception()):
                    self._note_save(call, steps, began, file_of_folder(path))

            if is_noted:
                guarded(_call_at_end, result, complete, self._has_written)
            return result

        return noting

    def _load(self, original: Any, call: str, file: FindFile) -> Any:  # noqa: ANN401 - functions
        """The function, noted as a load, before the first step alone."""

        @functools.wraps(original, updated=())
        def noting(*args: Any, **options: Any) -> Any:  # noqa: ANN401 - as the original's
            is_noted = not (self.steps or self._is_over or self._is_inside)
            began = clock.now_ns()
            found = found_file(file, args, options) if is_noted else NOWHERE
            if is_noted:
                self._thread.is_inside = True
            try:
                result = original(*args, **options)
            except BaseException as error:
                unseen(error)
                raise
            finally:
                if is_noted:
                    self._leaves()
            if is_noted:
                guarded(self._note_load, {"call": call, "steps": 0, "began_ns": began, **found})
            return result

        return noting

    @property
    def _is_inside(self) -> bool:
        """Whether this thread is in a call that is noted."""
        return getattr(self._thread, "is_inside", False)

    def _enters(self) -> bool:
        """Whether a save is one of its own: distributed checkpoints are written by further calls,
        in threads of their own."""
        if self._is_over or self._is_inside:
            return False
        if self._writing and not is_program_thread():
            return False
        self._thread.is_inside = True
        with self._lock:
            self._writing += 1
        return True

    def _leaves(self) -> None:
        self._thread.is_inside = False

    def _has_written(self) -> None:
        with self._lock:
            self._writing -= 1

    def _note_save(self, call: str, steps: int, began: int, found: File) -> None:
        entry = {
            "call": call,
            "steps": steps,
            "began_ns": began,
            "ended_ns": clock.now_ns(),
            **found,
        }
        key = (found["path"], 0 if found["path"] else began)
        with self._lock:
            self._saves.pop(key, None)
            self._saves[key] = entry
            while len(self._saves) > _MOST_SAVES:
                self._saves.popitem(last=False)
            self._is_new = True

    def _note_load(self, entry: File) -> None:
        entry["ended_ns"] = clock.now_ns()
        with self._lock:
            if len(self._first_loads) < _MOST_LOADS:
                self._first_loads.append(entry)
            else:
                self._last_loads.append(entry)
            self._is_new = True


def _call_at_end(begun: Any, complete: Callable[..., None], give_up: Callable[[], None]) -> None:  # noqa: ANN401 - whatever a call returned
    """Have ``complete`` called once a checkpoint is complete: of ``torch.distributed.checkpoint``
    and ``torch_checkpointing`` with a future, of Megatron's as the last of what it does then.
    Nothing is returned where it is. ``give_up`` where that is not told."""
    if begun is None:
        complete()
        return
    future = getattr(begun, "upload_completion", begun)
    last = getattr(begun, "finalize_fns", None)
    if hasattr(future, "add_done_callback"):
        future.add_done_callback(functools.partial(guarded, complete))
    elif isinstance(last, list):
        last.append(functools.partial(guarded, complete))
    else:
        give_up()


def _replace(owner: Any, name: str, original: Any, function: Any) -> None:  # noqa: ANN401 - a module, functions
    """Also in the module that defines it: functions are pickled by that name."""
    function._torchdynamo_disable = True  # what torch._dynamo.disable sets, without its import
    home = sys.modules.get(getattr(original, "__module__", None) or "")
    for module in (owner, home):
        if getattr(module, name, None) is original:
            setattr(module, name, function)
