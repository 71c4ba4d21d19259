"""The files that calls save or load, from their arguments, without running code of the program."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePath
from typing import Any

File = dict[str, Any]
"""What is known of a file: path, bytes, inode, when it was changed; ``None`` where not."""
NOWHERE: File = {"path": "", "size": None, "inode": None, "modified_ns": None}
"""Of a call whose file is not known."""
_FILES = (io.FileIO, io.BufferedWriter, io.BufferedReader, io.BufferedRandom)
Arguments = Sequence[Any]
Options = Mapping[str, Any]
FindFile = Callable[[Arguments, Options], File]
"""The file that a call with these arguments saves or loads."""


def found_file(file: FindFile, args: Arguments, options: Options) -> File:
    """The file of a call; :data:`NOWHERE` where that cannot be told."""
    try:
        return file(args, options)
    except Exception:  # noqa: BLE001 - a program saves to whatever it likes
        return NOWHERE


def file_at(place: int, *names: str) -> FindFile:
    """The file that a call's argument at this place, or of one of these names, says: a path, or an
    open file."""
    return lambda args, options: _of_target(_argument(args, options, place, names))


def folder_at(place: int, name: str) -> FindFile:
    """The same for the folder, or the key, of a checkpoint of several files."""
    return lambda args, options: file_of_folder(
        _path_text(_argument(args, options, place, (name,)))
    )


def checkpoint_folder(args: Arguments, options: Options) -> File:
    """Of a distributed checkpoint: a folder whose ``.metadata`` is written last, or a key."""
    target = options.get("checkpoint_id")
    stores = [options.get("storage_writer"), options.get("storage_reader"), *args[1:2]]
    targets = [target, *(_attribute(store, "path") for store in stores)]
    return file_of_folder(next((text for text in map(_path_text, targets) if text), ""))


def _argument(args: Arguments, options: Options, place: int, names: tuple[str, ...]) -> Any:  # noqa: ANN401 - a path or a file
    if len(args) > place:
        return args[place]
    return next((options[name] for name in names if name in options), None)


def _of_target(target: object) -> File:
    if isinstance(target, io.BytesIO):
        return {**NOWHERE, "size": io.BytesIO.getbuffer(target).nbytes}
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


def file_of_folder(path: str) -> File:
    """A distributed checkpoint by the path of its folder."""
    if not path:
        return NOWHERE
    metadata = _of_path(os.path.join(path, ".metadata"))  # noqa: PTH118 - may be a key of a store
    return {**metadata, "path": _of_path(path)["path"]}


def _of_path(path: str) -> File:
    """A file by its path; a key of a store has no more than that."""
    unknown = {**NOWHERE, "path": path}
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
