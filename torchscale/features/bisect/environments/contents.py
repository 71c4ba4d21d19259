"""What a built environment holds, so that one whose content was changed since is not measured under
its old name."""

from __future__ import annotations

import csv
import hashlib
import os
import stat
from base64 import urlsafe_b64encode
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from torchscale.util.files import read_bounded
from torchscale.util.text import shown_bytes

_COMPILED = "__pycache__"
"""Python compares these files with their sources itself, and launches write new ones."""
_MOST_RECORD_BYTES = 64 << 20
_CHUNK_BYTES = 1 << 20


def contents_of(environment: Path, *, without: str) -> dict[str, str]:
    """A digest of each package and each other file of an environment, by name: of names, sizes, kinds,
    modes, times of change and links, which takes 0.1 s for 10,000 files. No file is opened.

    Args:
        environment: Its directory.
        without: A file in it that is left out.

    Raises:
        OSError: it cannot be listed.
    """
    found: dict[str, list[str]] = defaultdict(list)
    for path, entry in _entries(environment):
        if path != without:
            found[shown_bytes(_owner(path))].append(f"{path}\0{_state(entry)}")
    return {
        owner: hashlib.sha256(
            "\n".join(sorted(lines)).encode("utf-8", "surrogateescape")
        ).hexdigest()
        for owner, lines in sorted(found.items())
    }


def differing(before: Mapping[str, str], now: Mapping[str, str]) -> str:
    """The first package or file that is not as it was; empty for none."""
    names = sorted(before.keys() | now.keys())
    return next((name for name in names if before.get(name) != now.get(name)), "")


def packages_of(contents: Mapping[str, str]) -> tuple[str, ...]:
    """The packages that were installed, by their metadata: ``demo`` of ``demo-1.0.dist-info``."""
    metadata = (name for name in contents if name.endswith(".dist-info"))
    return tuple(sorted({name.partition("-")[0] for name in metadata}))


def changed_in_cache(environment: Path) -> str:
    """A file of an environment that is shared with a cache by a hard link, as uv makes them, and has
    not the digest that its package's ``RECORD`` names; empty for none. Whoever changed it in another
    environment changed it in the cache as well."""
    for record in environment.glob("lib/python*/site-packages/*.dist-info/RECORD"):
        packages = record.parents[1]
        try:
            lines = read_bounded(record, _MOST_RECORD_BYTES).decode(errors="replace").splitlines()
            rows = [row for row in csv.reader(lines) if len(row) >= 2]
        except (OSError, csv.Error):
            continue  # of another form: its package says nothing
        for name, digest, *_ in rows:
            if digest.startswith("sha256=") and not _has_digest(packages / name, digest[7:]):
                return name
    return ""


def _has_digest(path: Path, digest: str) -> bool:
    """Whether a file has this digest, in the form of ``RECORD``; one that is its own is taken as
    it was unpacked."""
    with suppress(OSError, ValueError):
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode) or status.st_nlink == 1:
            return True
        found = hashlib.sha256()
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK_BYTES):
                found.update(chunk)
        return urlsafe_b64encode(found.digest()).decode().rstrip("=") == digest.rstrip("=")
    return True


def _entries(directory: Path) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Everything below a directory, with its path from there; links are not followed."""
    waiting = [""]
    while waiting:
        inside = waiting.pop()
        with os.scandir(directory / inside) as listed:
            entries = list(listed)
        for entry in entries:
            path = f"{inside}/{entry.name}" if inside else entry.name
            is_directory = entry.is_dir(follow_symlinks=False)
            if is_directory and entry.name == _COMPILED:
                continue
            yield path, entry
            if is_directory:
                waiting.append(path)


def _owner(path: str) -> str:
    """``demo`` of ``lib/python3.11/site-packages/demo/work.py``; else ``bin/python``."""
    before, _, inside = path.partition("/site-packages/")
    if before.startswith("lib/") and inside:
        return inside.partition("/")[0]
    return "/".join(path.split("/")[:2])


def _state(entry: os.DirEntry[str]) -> str:
    status = entry.stat(follow_symlinks=False)
    if stat.S_ISLNK(status.st_mode):
        return f"link to {os.readlink(entry.path)}"  # noqa: PTH115 - the path is a text
    if stat.S_ISDIR(status.st_mode):
        return "directory"
    return f"{status.st_mode:o} {status.st_size} {status.st_mtime_ns}"
