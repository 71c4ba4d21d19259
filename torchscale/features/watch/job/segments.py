"""Reads the files of a rank on from where the last look ended."""

from __future__ import annotations

from pathlib import Path

from torchscale.errors import StoreError
from torchscale.features.watch.job.rank_folders import MOMENTS, names_in
from torchscale.util.files import read_part

_READ_BYTES = 16 << 20
"""Of each file at a time: four segments, all that a collector keeps."""


class SegmentReader:
    """The files ``name-1.bin``, ``name-2.bin`` … as one stream of bytes."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._name = folder, name
        self._root = folder.parent.parent
        self._number, self._offset = 1, 0
        self.has_gap = False

    def read(self, unit: int) -> bytes:
        """Whole units of bytes since the last call.

        Raises:
            StoreError: what is there is no file of a collector.
        """
        parts: list[bytes] = []
        while True:
            parts.append(self._read_one(unit))
            following = self._following()
            if following is None or sum(map(len, parts)) >= _READ_BYTES - unit:
                return b"".join(parts)
            parts.append(self._read_one(unit))  # the end that was written before the next began
            self.has_gap |= following > self._number + 1
            self._number, self._offset = following, 0

    def _read_one(self, unit: int) -> bytes:
        path = self._path(self._number)
        try:
            content = read_part(path, self._offset, _READ_BYTES, within=self._root)
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise damaged(path, error) from error
        whole = content[: len(content) // unit * unit]
        self._offset += len(whole)
        return whole

    def _following(self) -> int | None:
        """Number of the next segment that exists."""
        matches = map(MOMENTS.fullmatch, names_in(self._folder))
        numbers = [int(match[2]) for match in matches if match and match[1] == self._name]
        return min((number for number in numbers if number > self._number), default=None)

    def _path(self, number: int) -> Path:
        return self._folder / f"{self._name}-{number:06d}.bin"


class Lines:
    """A file to which whole lines are appended."""

    def __init__(self, folder: Path, name: str) -> None:
        self.path, self._root = folder / name, folder.parent.parent
        self._read = 0

    def read(self) -> list[bytes]:
        """Whole lines since the last call; none where there is no file.

        Raises:
            StoreError: what is there is no file of a collector.
        """
        try:
            content = read_part(self.path, self._read, _READ_BYTES, within=self._root)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise damaged(self.path, error) from error
        whole = content[: content.rfind(b"\n") + 1]
        self._read += len(whole)
        return whole.splitlines()


def damaged(path: Path, error: Exception) -> StoreError:
    """The error of a file that no collector wrote."""
    reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
    return StoreError(f"{path}: not what a collector writes: {reason}")
