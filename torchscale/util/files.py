"""Atomic file writes, where a file is written completely or not at all, and reads that cannot block
or overflow."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from torchscale.errors import OutputError
from torchscale.util.redaction import redact_model
from torchscale.util.text import escape_json
from torchscale.util.words import did_you_mean

if TYPE_CHECKING:
    from pydantic import BaseModel

_MAX_COMPARED = 1000
"""Names beside a missing path that are compared with its own: more would take a moment."""
_LARGEST_INDENTED = 1 << 20
"""Characters of a JSON file up to which it is written for people too. A record of a thousand ranks
has seven times as many, and a third of them would be indentation, which every reader has to
skip."""


def atomic_write_bytes(path: Path, data: bytes, *, durable: bool = True) -> None:
    """Write a file atomically: temporary file in the same directory, fsync, rename, fsync of the
    directory.

    A new file gets the permissions that the umask leaves, an older one keeps its own. A device, a
    pipe and the like is written to and never replaced.

    Args:
        path: Path of the file.
        data: Content of the file.
        durable: Whether it must be there after the machine has lost its power. Without, there is no
            fsync, which takes 10 ms on a disk: for files of a launch that counts only with its
            record, and for what can be made again.

    Raises:
        OutputError: the file cannot be written (disk full, no permission); an older file is left
            unchanged.
    """
    temporary: Path | None = None
    try:
        mode = _mode(path)
        if mode is not None and not stat.S_ISREG(mode):
            _write_through(path, data)
            return
        temporary = path.with_name(f".{path.name[:40]}.{os.urandom(6).hex()}.tmp")
        with os.fdopen(
            os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), "wb"
        ) as file:
            file.write(data)
            if mode is not None:
                os.fchmod(file.fileno(), stat.S_IMODE(mode))
            if durable:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(path)
        if durable:
            fsync_directory(path.parent)
    except BaseException as error:
        if temporary is not None:
            _discard(temporary)
        if not isinstance(error, OSError):
            raise
        raise OutputError(
            f"cannot write {path}: {error.strerror or error}",
            hint="free space or choose another directory",
        ) from error


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Context for libraries that write a file themselves: gives the name of a temporary file beside
    ``path``. It is fsynced and takes the place of ``path`` when the context ends; after an
    exception ``path`` is as it was.

    Raises:
        OutputError: an ``OSError`` inside, or the file cannot be renamed.
    """
    temporary = path.with_name(f".{path.name[:40]}.{os.urandom(6).hex()}.tmp")
    try:
        try:
            yield temporary
            with temporary.open("rb") as file:
                os.fsync(file.fileno())
            temporary.replace(path)
            fsync_directory(path.parent)
        except OSError as error:
            raise OutputError(
                f"cannot write {path}: {error.strerror or error}",
                hint="free space or choose another directory",
            ) from error
    finally:
        _discard(temporary)


def _discard(temporary: Path) -> None:
    """Remove a temporary file, which may never have been made in a directory that can only be
    read."""
    with contextlib.suppress(OSError):
        temporary.unlink(missing_ok=True)


def _mode(path: Path) -> int | None:
    """Mode of the file at ``path``, links followed; ``None`` where there is none."""
    try:
        return path.stat().st_mode
    except FileNotFoundError:
        return None


def _write_through(path: Path, data: bytes) -> None:
    """Write into what is no regular file, which stays what it is. A pipe that nobody reads is an
    error and no wait."""
    descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    os.set_blocking(descriptor, True)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)


def atomic_write_text(path: Path, text: str, *, durable: bool = True) -> None:
    """Write ``text`` as UTF-8 as :func:`atomic_write_bytes` does."""
    atomic_write_bytes(path, text.encode("utf-8"), durable=durable)


def atomic_write_model(path: Path, model: BaseModel, *, durable: bool = True) -> None:
    """Write a schema object as JSON without secrets, as :func:`atomic_write_bytes` does. It is
    indented, unless it is longer than anybody reads."""
    cleaned = redact_model(model)
    text = cleaned.model_dump_json(indent=1)
    if len(text) > _LARGEST_INDENTED:
        text = cleaned.model_dump_json()
    atomic_write_text(path, f"{escape_json(text)}\n", durable=durable)


def make_directory(path: Path) -> None:
    """Make a directory and those above it, unless it is there.

    Raises:
        OutputError: it cannot be made; the message names what is in its place.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        place = Path(error.filename or path)
        obstacle = _obstacle(place)
        problem = f"{place}: {obstacle}" if obstacle else f"{path}: {error.strerror}"
        raise OutputError(f"cannot create {problem}") from error


def _obstacle(place: Path) -> str:
    """What is where a directory should be; empty for nothing, or what cannot be looked at."""
    with contextlib.suppress(OSError):
        if place.is_symlink():
            return f"a link to {place.readlink()}, which is no directory, is in its place"
        if place.exists():
            return "a file is in its place"
    return ""


def remove_tree(path: Path) -> None:
    """Remove a directory and what is in it, as far as it can be removed. A link or a file in its
    place is removed by itself: what a link leads to belongs to others."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
        return
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)


def fsync_directory(directory: Path) -> None:
    """Make renames within ``directory`` durable (fsync)."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def similar_path(path: Path) -> str:
    """``; did you mean 'results'?`` of what is beside a path that is not there, or nothing."""
    try:
        names = [entry.name for entry in itertools.islice(path.parent.iterdir(), _MAX_COMPARED)]
    except OSError:
        return ""
    return did_you_mean(path.name, names)


def read_bounded(path: Path, limit: int, *, within: Path | None = None) -> bytes:
    """Read a regular file of at most ``limit`` bytes.

    Args:
        path: Of the file.
        limit: Bytes.
        within: A folder that others write to: no link on the way may lead out of it.

    Raises:
        OSError: it cannot be read, is larger, or is a pipe, a device or a directory: those could
            block forever or never end. ``strerror`` is the reason.
    """
    descriptor = open_regular(path, within)
    with os.fdopen(descriptor, "rb") as file:
        size = os.fstat(descriptor).st_size
        content = b"" if size > limit else file.read(size + 1)  # room for the limit takes longer
        if len(content) > size:  # it grows, or is of a kind that has no size
            content += file.read(limit + 1 - len(content))
    if max(size, len(content)) > limit:
        bound = f"{limit >> 20} MiB"
        if limit < 1 << 20:
            bound = f"{limit >> 10} KiB"
        raise OSError(errno.EFBIG, f"larger than {bound}")
    return content


def open_regular(path: Path, within: Path | None = None) -> int:
    """A descriptor to read a regular file. What it is, is asked of the open file: its name can lead
    elsewhere a moment later. A pipe opens at once.

    Raises:
        OSError: it cannot be opened, or is something else.
    """
    if within is not None and leads_out(within, path):
        raise OSError(errno.EINVAL, "a link that leads out of the results directory")
    if stat.S_ISSOCK(path.stat().st_mode):  # which cannot be opened
        raise OSError(errno.EINVAL, "not a regular file")
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file")
    return descriptor


def read_part(path: Path, offset: int, limit: int, *, within: Path) -> bytes:
    """At most ``limit`` bytes of a regular file from ``offset`` on; ``within`` as of
    :func:`read_bounded`.

    Raises:
        OSError: it cannot be read, or is a pipe, a device or a directory.
    """
    descriptor = open_regular(path, within)
    with os.fdopen(descriptor, "rb") as file:
        file.seek(offset)
        return file.read(limit)


def read_end(path: Path, limit: int, *, within: Path | None = None) -> bytes:
    """The last ``limit`` bytes of a regular file; ``within`` as of :func:`read_bounded`.

    Raises:
        OSError: it cannot be read, or is a pipe, a device or a directory.
    """
    descriptor = open_regular(path, within)
    with os.fdopen(descriptor, "rb") as file:
        file.seek(max(0, os.fstat(descriptor).st_size - limit))
        return file.read(limit)


def leads_out(root: Path, path: Path) -> bool:
    """Whether a symbolic link on the way from ``root`` to ``path`` leads out of ``root``.

    Links are looked for first, since there are nearly never any and resolving a path is slow. A loop
    of links leads nowhere within.

    Raises:
        OSError: a link cannot be followed.
    """
    place, end = os.fspath(path), os.fspath(root)
    while place not in (end, ""):
        if os.path.islink(place):  # noqa: PTH114 - a text, since making paths takes ten times as long
            try:
                return not path.resolve().is_relative_to(root.resolve())
            except RuntimeError:  # a loop, before Python 3.13
                return True
        above = os.path.dirname(place)  # noqa: PTH120 - the same
        if above == place:
            break
        place = above
    return False
