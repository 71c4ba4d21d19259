"""What is at an address, as a local copy: streamed to disk, several files at the same time,
bounded."""

from __future__ import annotations

import os
import re
import shutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Any

from torchscale.errors import FileSystemError, MachineError, StoreError, UsageError
from torchscale.observer import Observer
from torchscale.store.storage.names import is_safe, relative_key, without_collisions
from torchscale.store.storage.service import Service
from torchscale.store.storage.transfers import Moved, Transfers
from torchscale.util.addresses import Address
from torchscale.util.text import one_line
from torchscale.util.units import format_bytes
from torchscale.util.words import plural

MAX_FILES = 100_000
"""A run of 2,000 cells and 3 launches has a third of these; a bucket named by mistake has more."""
MAX_FILE_BYTES = 16 << 30
"""The largest recordings that nsys makes of a few minutes are some GB."""
MAX_BYTES = 64 << 30
"""Recordings of 512 ranks, 128 MB each."""
LISTING_SECONDS = 120.0
"""S3 lists 1,000 objects in a fifth of a second: :data:`MAX_FILES` take 20 s."""
_PART_BYTES = 2 << 20
"""Of an object that is fetched at once, and what a thread holds: larger than what comes within a
round trip, and all threads together get one each within a minute at 300 kB/s."""
_SPARE_BYTES = 256 << 20
"""Left free on the disk of the copy."""
_SHOWN = 3
"""Names in a message."""


class FetchedParts(Enum):
    """What of a folder is fetched. ``quarantine/``, locks and unfinished files never are."""

    ALL = r".*"
    FIGURES = r"(?!(?:.*/)?(?:steps-rank-\d+\.jsonl|profile-\d+/(?!analysis\.json$))).*\.(?:json|jsonl|csv)"
    """What tables and reports are made of: neither each step's own line, nor recordings that were
    analyzed where they were made, nor logs."""


_NEVER = re.compile(r"(?:|.*/)(?:quarantine/.*|\.lock|\.[^/]*\.tmp|\.copied\.json)")


@dataclass(frozen=True)
class _Object:
    """One object of a store.

    Attributes:
        key: As its library names it.
        name: Path in the copy.
        size: In bytes.
        changed: Seconds since the epoch; ``None`` where the store does not say.
    """

    key: str
    name: str
    size: int
    changed: float | None


def fetch(address: Address, target: Path, parts: FetchedParts, observer: Observer) -> None:
    """Copy an object, or a folder of them, to ``target`` (writes).

    Raises:
        UsageError: there is no such bucket, object or folder, or a library is missing.
        StoreError: it is larger than a bound.
        MachineError: the disk has no room for it.
        FileSystemError: the store denies access or does not answer.
    """
    shown = address.text
    with observer.status(f"Looking at {shown}") as say:
        service = Service(address)
        objects, refused = _listed(service, parts)
        _check_bounds(objects, shown, target.parent)
        total = Moved(len(objects), sum(one.size for one in objects))
        _Fetching(service, target).all(
            objects, lambda moved: say(f"Fetching {shown}: {moved.text(total)}")
        )
    if refused:
        names = ", ".join(one_line(name)[:80] for name in refused[:_SHOWN])
        observer.note(
            f"warning: {shown}: left out {plural(len(refused), 'object')} whose name no file can "
            f"have here: {names}"
        )


def _listed(service: Service, parts: FetchedParts) -> tuple[list[_Object], list[str]]:
    """What is to be fetched, and the keys that no file can have."""
    root = service.root.rstrip("/")
    first = service.answered(lambda: list(service.files.ls(root, detail=True)))
    entries, refused = service.answered(lambda: _entries(service, root, first), LISTING_SECONDS)
    if len(entries) == 1 and root in entries and entries[root]["type"] == "file":
        return [_object(root, "", entries[root])], []
    wanted = re.compile(parts.value, re.DOTALL)
    safe: dict[str, str] = {}
    is_empty = True
    for key in entries:
        name = relative_key(root, key)
        if name is None or _NEVER.fullmatch(name):
            continue
        is_empty = False
        if not is_safe(name):
            refused.append(name)
        elif wanted.fullmatch(name):
            safe[name] = key
    files, folders = without_collisions(safe)
    if is_empty:
        raise UsageError(f"{service.address.text}: there is nothing at this address")
    return [_object(safe[name], name, entries[safe[name]]) for name in files], refused + folders


def _entries(
    service: Service, root: str, first: Sequence[Mapping[str, Any]]
) -> tuple[dict[str, Mapping[str, Any]], list[str]]:
    """Key → what the store says of the object: those of ``root``, quarantine left out; and keys
    that are those of a folder too. ``first``: what lies directly in it. Runs in a thread that may
    be left behind."""
    found: dict[str, Mapping[str, Any]] = {}
    folders = set()
    for entry in first:
        name = entry["name"].rstrip("/")
        if entry["type"] != "directory":
            found[entry["name"]] = entry
        elif name != root and name.rpartition("/")[2] != "quarantine":
            folders.add(name)
            found |= service.files.find(name, detail=True)
        if len(found) > MAX_FILES:
            break
    clashing = [key for key in found if key in folders]
    kept = {key: entry for key, entry in found.items() if key not in folders}
    return kept, [key[len(root) + 1 :] for key in clashing]


def _object(key: str, name: str, entry: Mapping[str, Any]) -> _Object:
    changed = None
    for field in ("LastModified", "last_modified", "mtime", "created"):
        moment = entry.get(field)
        if isinstance(moment, datetime):
            moment = moment.timestamp()
        if isinstance(moment, (int, float)):
            changed = float(moment)
            break
    return _Object(key, name, int(entry.get("size") or 0), changed)


def _check_bounds(objects: list[_Object], shown: str, place: Path) -> None:
    """
    Raises:
        StoreError: a bound is passed.
        MachineError: there is no room.
    """
    if len(objects) > MAX_FILES:
        raise StoreError(
            f"{shown} holds more than {MAX_FILES:,} files, the most that are fetched",
            hint="name one run in it",
        )
    largest = max(objects, key=lambda one: one.size, default=None)
    if largest is not None and largest.size > MAX_FILE_BYTES:
        raise StoreError(
            f"{shown}: {one_line(largest.name) or 'it'} has {format_bytes(largest.size)}; a file "
            f"of at most {format_bytes(MAX_FILE_BYTES)} is fetched",
            hint="copy it here with the tools of the store, and name the copy",
        )
    total = sum(one.size for one in objects)
    if total > MAX_BYTES:
        raise StoreError(
            f"{shown} has {format_bytes(total)}; at most {format_bytes(MAX_BYTES)} are fetched",
            hint="name a part of it, or copy it here with the tools of the store",
        )
    free = shutil.disk_usage(place).free
    if total + _SPARE_BYTES > free:
        raise MachineError(
            f"{shown} has {format_bytes(total)}, and {place} has {format_bytes(free)} free",
            hint="set TMPDIR to a directory with more room",
        )


@dataclass(frozen=True)
class _Part:
    """Bytes of an object from ``start`` up to ``end``."""

    of: _Object
    start: int
    end: int


def _parts(one: _Object) -> list[_Part]:
    """An object in parts; an empty one has a part too."""
    starts = range(0, max(one.size, 1), _PART_BYTES)
    return [_Part(one, start, min(start + _PART_BYTES, one.size)) for start in starts]


class _Fetching:
    """Objects on their way to ``target``."""

    def __init__(self, service: Service, target: Path) -> None:
        self._service, self._target = service, target
        self._left: dict[str, int] = {}

    def all(self, objects: Sequence[_Object], say: Callable[[Moved], None]) -> None:
        """Fetch them. Where there are none, an empty folder is what its reader is told of."""
        if not objects:
            self._target.mkdir()
        for one in objects:
            self._place(one).parent.mkdir(parents=True, exist_ok=True)
            self._place(one).touch()
        parts = [part for one in objects for part in _parts(one)]
        self._left = Counter(part.of.name for part in parts)
        Transfers(self._service, self._get, self._done).run(parts, say)

    def _place(self, one: _Object) -> Path:
        return self._target / one.name if one.name else self._target

    def _get(self, part: _Part, moved: Callable[[int], None]) -> None:
        shown = f"{self._service.address.text}: {one_line(part.of.name)}"
        content = b""
        if part.of.size:
            # One byte more than the last part should have: an object that has grown would be cut.
            end = part.end + (part.end == part.of.size)
            try:
                content = self._service.files.cat_file(part.of.key, start=part.start, end=end)
            except FileNotFoundError as error:
                raise FileSystemError(f"{shown} was removed while it was fetched") from error
        moved(len(content))
        if len(content) != part.end - part.start:
            raise FileSystemError(f"{shown} was changed while it was fetched", hint="try again")
        with self._place(part.of).open("r+b") as file:
            file.seek(part.start)
            file.write(content)

    def _done(self, part: _Part) -> int:
        """Returns the number of files that are whole now: one with the last part of one."""
        self._left[part.of.name] -= 1
        if self._left[part.of.name]:
            return 0
        if part.of.changed is not None:
            os.utime(self._place(part.of), (part.of.changed, part.of.changed))
        return 1


def fetch_all(wanted: Sequence[tuple[Address, Path, bool]], observer: Observer) -> None:
    """:func:`fetch` each address to its path; the third says whether only what figures are made of
    is needed. Errors as of that."""
    for address, path, figures_alone in wanted:
        fetch(address, path, FetchedParts.FIGURES if figures_alone else FetchedParts.ALL, observer)
