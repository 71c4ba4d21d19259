"""The files that a rank saves, and those that it loads before its first step: they tell from where
an attempt of a job goes on.

Seen are ``torch.save`` and ``torch.load``, ``save``, ``async_save`` and ``load`` of
``torch.distributed.checkpoint``, and files of safetensors. Calls within these calls are a part of
them. A save counts once it is complete; one that failed does not.
"""

from __future__ import annotations

import functools
import io
import os
import sys
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePath
from typing import Any

import torch

from . import clock
from .guard import guarded, unseen
from .imports import after_import
from .marks import SAVE, SAVE_END, Marks

_MOST_SAVES = 500
"""Paths that are kept, the last ones: a job restarts from one of its last checkpoints."""
_MOST_LOADS = 250
"""The first ones and as many of the last: where the first batch loads a file for each sample, the
checkpoint was loaded before or comes after."""
_UNSEEN = ("torchsnapshot", "tensorizer", "tensorstore", "zarr", "megatron.core.dist_checkpointing")
"""Modules that save and load checkpoints past these calls."""

File = dict[str, Any]
"""What is known of a file: path, bytes, inode, when it was changed; ``None`` where not."""
_NOWHERE: File = {"path": "", "size": None, "inode": None, "modified_ns": None}
_FILES = (io.FileIO, io.BufferedWriter, io.BufferedReader, io.BufferedRandom)
Arguments = Sequence[Any]
Options = Mapping[str, Any]
FindFile = Callable[[Arguments, Options], File]
"""The file that a call with these arguments saves or loads."""


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
        self._save(torch, "save", "torch.save", _target)
        self._load(torch, "load", "torch.load", _source)
        after_import("torch.distributed.checkpoint", self._watch_distributed)
        after_import(
            "safetensors",
            lambda module: self._load(module, "safe_open", "safetensors.safe_open", _source),
        )
        after_import(
            "safetensors.torch",
            lambda module: self._save(module, "save_file", "safetensors.torch.save_file", _target),
        )

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
                "unseen": [name for name in _UNSEEN if name in sys.modules],
            }

    def take_again(self) -> None:
        """What was taken last could not be written."""
        self._is_new = True

    def on_step(self) -> None:
        """After a step of the first optimizer."""
        if not self.steps:
            self._is_new |= any(name in sys.modules for name in _UNSEEN)
        self.steps += 1

    def _watch_distributed(self, module: Any) -> None:  # noqa: ANN401 - a module
        name = "torch.distributed.checkpoint"
        for save in ("save", "save_state_dict"):
            self._save(module, save, f"{name}.{save}", _folder)
        for load in ("load", "load_state_dict"):
            self._load(module, load, f"{name}.{load}", _folder)
        self._save_later(module, "async_save", f"{name}.async_save")

    def _save(self, owner: Any, name: str, call: str, file: FindFile) -> None:  # noqa: ANN401 - a module
        """Have ``owner.name`` noted as a save, and its time where the main thread spends it."""
        original = getattr(owner, name, None)
        if original is None:
            return  # of an older version

        @functools.wraps(original, updated=())
        def noting(*args: Any, **options: Any) -> Any:  # noqa: ANN401 - as the original's
            is_noted = guarded(self._enters)
            began, steps = clock.now_ns(), self.steps
            is_main = is_noted and _is_main_thread()
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
                guarded(self._note_save, call, steps, began, _found(file, args, options))
            return result

        _replace(owner, name, original, noting)

    def _save_later(self, owner: Any, name: str, call: str) -> None:  # noqa: ANN401 - a module
        """The same for a call that returns before the checkpoint is complete."""
        original = getattr(owner, name, None)
        if original is None:
            return  # of an older version

        @functools.wraps(original, updated=())
        def noting(*args: Any, **options: Any) -> Any:  # noqa: ANN401 - as the original's
            is_noted = guarded(self._enters)
            began, steps = clock.now_ns(), self.steps
            path = _found(_folder, args, options)["path"]  # what is saved is not kept until then
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

            def complete(future: Any) -> None:  # noqa: ANN401 - a future
                self._has_written()
                if not future.cancelled() and future.exception() is None:
                    self._note_save(call, steps, began, _of_folder(path))

            def await_end() -> None:
                future = getattr(result, "upload_completion", result)
                if hasattr(future, "add_done_callback"):
                    future.add_done_callback(functools.partial(guarded, complete))
                else:
                    self._has_written()

            if is_noted:
                guarded(await_end)
            return result

        _replace(owner, name, original, noting)

    def _load(self, owner: Any, name: str, call: str, file: FindFile) -> None:  # noqa: ANN401 - a module
        """Have ``owner.name`` noted as a load, before the first step alone."""
        original = getattr(owner, name, None)
        if original is None:
            return  # of an older version

        @functools.wraps(original, updated=())
        def noting(*args: Any, **options: Any) -> Any:  # noqa: ANN401 - as the original's
            is_noted = not (self.steps or self._is_over or self._is_inside)
            began = clock.now_ns()
            found = _found(file, args, options) if is_noted else _NOWHERE
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

        _replace(owner, name, original, noting)

    @property
    def _is_inside(self) -> bool:
        """Whether this thread is in a call that is noted."""
        return getattr(self._thread, "is_inside", False)

    def _enters(self) -> bool:
        """Whether a save is one of its own: distributed checkpoints are written by further calls,
        in threads of their own."""
        if self._is_over or self._is_inside:
            return False
        if self._writing and not _is_main_thread():
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


def _replace(owner: Any, name: str, original: Any, function: Any) -> None:  # noqa: ANN401 - a module, functions
    """Also in the module that defines it: functions are pickled by that name."""
    function._torchdynamo_disable = True  # what torch._dynamo.disable sets, without its import
    home = sys.modules.get(getattr(original, "__module__", None) or "")
    for module in (owner, home):
        if getattr(module, name, None) is original:
            setattr(module, name, function)


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _found(file: FindFile, args: Arguments, options: Options) -> File:
    try:
        return file(args, options)
    except Exception:  # noqa: BLE001 - a program saves to whatever it likes
        return _NOWHERE


def _target(args: Arguments, options: Options) -> File:
    """Of ``torch.save(value, f)``, ``save_file(tensors, filename)``."""
    return _of_target(_argument(args, options, 1, ("f", "filename")))


def _source(args: Arguments, options: Options) -> File:
    """Of ``torch.load(f)``, ``safe_open(filename)``."""
    return _of_target(_argument(args, options, 0, ("f", "filename")))


def _folder(args: Arguments, options: Options) -> File:
    """Of a distributed checkpoint: a folder whose ``.metadata`` is written last, or a key."""
    target = options.get("checkpoint_id")
    stores = [options.get("storage_writer"), options.get("storage_reader"), *args[1:2]]
    targets = [target, *(_attribute(store, "path") for store in stores)]
    return _of_folder(next((text for text in map(_path_text, targets) if text), ""))


def _argument(args: Arguments, options: Options, place: int, names: tuple[str, ...]) -> Any:  # noqa: ANN401 - a path or a file
    if len(args) > place:
        return args[place]
    return next((options[name] for name in names if name in options), None)


def _of_target(target: object) -> File:
    if isinstance(target, io.BytesIO):
        return {**_NOWHERE, "size": io.BytesIO.getbuffer(target).nbytes}
    return _of_path(_path_text(target) or _path_text(_attribute(target, "name")))


def _path_text(target: object) -> str:
    """Of a path as Python has them; empty for others, which would run code of the program."""
    return str(target) if isinstance(target, (str, PurePath)) else ""


def _attribute(owner: object, name: str) -> object:
    """What ``owner`` holds under this name, without running code of the program; files of Python
    itself hold their name in C."""
    if type(owner) in _FILES:
        return getattr(_raw(owner), name, None)
    try:
        return vars(owner).get(name)
    except TypeError:
        return None


def _raw(file: object) -> object:
    """The file below one that is buffered; ``None`` where that is the program's own."""
    raw = getattr(file, "raw", file)
    return raw if type(raw) is io.FileIO else None


def _of_folder(path: str) -> File:
    metadata = _of_path(os.path.join(path, ".metadata"))  # noqa: PTH118 - may be a key of a store
    return {**metadata, "path": _of_path(path)["path"]}


def _of_path(path: str) -> File:
    """A file by its path; a key of a store has no more than that."""
    unknown = {**_NOWHERE, "path": path}
    if not path or "://" in path:
        return unknown
    path = os.path.realpath(path)
    try:
        status = os.stat(path)  # noqa: PTH116 - also of what pathlib refuses
    except OSError:
        return {**unknown, "path": path}
    return {
        "path": path,
        "size": status.st_size,
        "inode": status.st_ino,
        "modified_ns": status.st_mtime_ns,
    }
