"""Object stores of tests: in this process, and one that does as it is told."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from torchscale.store.storage import service


def put(files: Mapping[str, bytes], place: str) -> None:
    """Objects in the store of this process: key within ``place`` → content. Keys stay as they are,
    however they look."""
    from fsspec.implementations.memory import MemoryFile, MemoryFileSystem

    root = "/" + place.removeprefix("memory://")
    for key, content in files.items():
        MemoryFileSystem.store[f"{root}/{key}"] = MemoryFile(
            MemoryFileSystem(), f"{root}/{key}", content
        )


def put_folder(folder: Path, place: str) -> None:
    """A folder of files in the store of this process, as old as they are."""
    from fsspec.implementations.memory import MemoryFileSystem

    for path in folder.rglob("*"):
        if path.is_file():
            name = path.relative_to(folder).as_posix()
            put({name: path.read_bytes()}, place)
            file = MemoryFileSystem.store[f"/{place.removeprefix('memory://')}/{name}"]
            file.created = datetime.fromtimestamp(path.stat().st_mtime, tz=timezone.utc)


def objects(place: str) -> dict[str, bytes]:
    """Key within ``place`` → content, of the store of this process."""
    from fsspec.implementations.memory import MemoryFileSystem

    root = "/" + place.removeprefix("memory://") + "/"
    return {
        key.removeprefix(root): file.getvalue()
        for key, file in MemoryFileSystem.store.items()
        if key.startswith(root)
    }


@contextmanager
def empty_store() -> Iterator[None]:
    """The store of this process is empty, then and afterwards."""
    from fsspec.implementations.memory import MemoryFileSystem

    def clear() -> None:
        MemoryFileSystem.store.clear()
        MemoryFileSystem.pseudo_dirs[:] = [""]

    clear()
    try:
        yield
    finally:
        clear()


class Files:
    """Stands for fsspec's file system: holds objects, and fails or waits where ``on`` says so."""

    def __init__(self, content: Mapping[str, bytes]) -> None:
        self.content = dict(content)
        self.on: dict[str, Callable[[str], object]] = {}
        self.order: list[str] = []
        self.list_within: list[dict[str, Any]] = []
        self.active = self.most_active = 0
        self.lock = threading.Lock()

    def _strip_protocol(self, text: str) -> str:
        return text.partition("://")[2].rstrip("/")

    def _act(self, what: str, key: str) -> None:
        if what in self.on:
            self.on[what](key)

    def ls(self, root: str, detail: bool) -> list[dict[str, Any]]:
        """All of it, as if it lay side by side."""
        self._act("ls", root)
        return self.list_within or list(self._below(root).values())

    def find(self, root: str, detail: bool) -> dict[str, dict[str, Any]]:
        """Every object below ``root``."""
        self._act("find", root)
        return self._below(root)

    def _below(self, root: str) -> dict[str, dict[str, Any]]:
        return {
            key: {"name": key, "size": len(content), "type": "file"}
            for key, content in self.content.items()
            if key == root or key.startswith(f"{root}/")
        }

    def cat_file(self, key: str, start: int = 0, end: int | None = None) -> bytes:
        """A part of an object."""
        with self.lock:
            self.active += 1
            self.most_active = max(self.most_active, self.active)
        try:
            self._act("get", key)
            return self.content[key][start:end]
        finally:
            with self.lock:
                self.active -= 1

    def rm_file(self, key: str) -> None:
        """Removed."""
        self.order.append(f"rm {key}")
        del self.content[key]

    def open(self, key: str, mode: str, block_size: int) -> Any:
        """Kept when it is closed."""
        assert (mode, block_size) == ("wb", 8 << 20)
        self._act("open", key)
        return _Writing(self, key)


class _Writing(io.BytesIO):
    def __init__(self, files: Files, key: str) -> None:
        super().__init__()
        self._files, self._key, self._discarded = files, key, False

    def write(self, content: Any) -> int:
        self._files._act("write", self._key)
        return super().write(content)

    def discard(self) -> None:
        self._discarded = True

    def close(self) -> None:
        if not self.closed and not self._discarded:
            with self._files.lock:
                self._files.content[self._key] = self.getvalue()
                self._files.order.append(self._key)
        super().close()


def use(patch: pytest.MonkeyPatch, files: Files) -> None:
    """Every address is of this store."""
    patch.setattr(service, "_opened", lambda address: files)
