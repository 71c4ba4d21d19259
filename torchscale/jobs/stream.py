"""Reads what the collectors write, while they write it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from torchscale.analysis.job.events import Calls, CoreTime, Lengths, Moments, RankEvents
from torchscale.errors import StoreError
from torchscale.schema.watch.attempt import RankCheckpoints
from torchscale.schema.watch.rank import RankFacts, RankUse
from torchscale.util.files import read_end

_FOLDER = re.compile(r"(\d{1,7})\.(\d{1,7})")
_READ_BYTES = 16 << 20
"""Of each file at a time: four segments, all that a collector keeps."""
_MAX_TEXT = 4 << 20
"""Of ``rank.json`` and ``lines.json``, which have some kilobytes."""
_MAX_REASON, _MAX_REASONS = 500, 3
"""Characters of why a collector could not start, and how many are shown: all ranks have the same
one."""
_INTEGER = 8
_CALL = 3 * _INTEGER
_SETTLED = -1
"""In place of a key: until when all lengths are known (``worker/watch/recorder.py``)."""
_SHARE = 2 * _INTEGER


@dataclass
class Names:
    """Process groups and collectives of all ranks, numbered. The backends of a group, and its sends
    and receives, each count by themselves, and are groups of their own here.

    Attributes:
        groups: (Name, backend, whether of sends and receives) → number.
        ranks: Name of a group → its global ranks.
        calls: (operation, bytes) → number.
    """

    groups: dict[tuple[str, str, bool], int] = field(default_factory=dict)
    ranks: dict[str, tuple[int, ...]] = field(default_factory=dict)
    calls: dict[tuple[str, int], int] = field(default_factory=dict)

    def group(self, name: str, backend: str = "", *, is_p2p: bool = False) -> int:
        """The number of a group."""
        return self.groups.setdefault((name, backend, is_p2p), len(self.groups))

    @property
    def members(self) -> dict[int, tuple[int, ...]]:
        """Number of a group → its global ranks, of those whose ranks call the same."""
        return {
            number: self.ranks[name]
            for (name, _, is_p2p), number in self.groups.items()
            if name in self.ranks and not is_p2p
        }

    def call(self, operation: str, size: int) -> int:
        """The number of a collective."""
        return self.calls.setdefault((operation, size), len(self.calls))


class RankStream:
    """The folder of a rank.

    Attributes:
        facts: What the rank says of itself, as of the last :meth:`read`.
        use: What its process has used.
        peers: Ranks that it sends to or receives from.
        settled_ns: Until when all collectives have the lengths that they ever will.
        has_gap: Whether moments or collectives were removed before they were read.
    """

    def __init__(self, folder: Path, names: Names) -> None:
        self._folder, self._names = folder, names
        self._marks, self._calls = _Segments(folder, "marks"), _Segments(folder, "calls")
        self._lengths, self._shares = _Segments(folder, "lengths"), _Segments(folder, "shares")
        self._names_read = 0
        self._keys: dict[int, tuple[int, int]] = {}
        self.facts = self._read_facts()
        self.use = RankUse()
        self.peers: frozenset[int] = frozenset()
        self.settled_ns = 0

    @property
    def has_gap(self) -> bool:
        """Whether something is missing."""
        return self._marks.has_gap or self._calls.has_gap

    def read(self) -> RankEvents:
        """What was written since the last call.

        Raises:
            StoreError: a file of the rank is damaged.
        """
        self.facts = self._read_facts()
        calls = np.frombuffer(self._calls.read(_CALL), np.int64).reshape(-1, 3)
        lengths = np.frombuffer(self._lengths.read(_CALL), np.int64).reshape(-1, 3)
        shares = np.frombuffer(self._shares.read(_SHARE), np.int64).reshape(-1, 2)
        marks = np.frombuffer(self._marks.read(_INTEGER), np.int64)
        self._read_names()
        return RankEvents(
            Moments.unpacked(marks, self.facts.start_ns),
            self._numbered(calls),
            CoreTime(shares[:, 0], shares[:, 1]),
            self._measured(lengths),
        )

    def read_checkpoints(self) -> RankCheckpoints:
        """What the rank saved, and loaded before its first step.

        Raises:
            StoreError: the file is damaged.
        """
        path = self._folder / "checkpoints.json"
        if not path.exists():
            return RankCheckpoints()
        try:
            return RankCheckpoints.model_validate_json(_text(path))
        except (ValidationError, OSError) as error:
            raise _damaged(path, error) from error

    def read_use(self) -> None:
        """Read what the process used."""
        path = self._folder / "lines.json"
        if path.exists():
            try:
                self.use = RankUse.model_validate_json(_text(path))
            except (ValidationError, OSError) as error:
                raise _damaged(path, error) from error

    def _read_facts(self) -> RankFacts:
        path = self._folder / "rank.json"
        try:
            return RankFacts.model_validate_json(_text(path))
        except (ValidationError, OSError) as error:
            raise _damaged(path, error) from error

    def _read_names(self) -> None:
        path = self._folder / "names.jsonl"
        if not path.exists():
            return
        with path.open("rb") as file:
            file.seek(self._names_read)
            content = file.read(_READ_BYTES)
        whole = content[: content.rfind(b"\n") + 1]
        self._names_read += len(whole)
        try:
            for line in whole.splitlines():
                self._note(json.loads(line))
        except (ValueError, KeyError, TypeError) as error:
            raise _damaged(path, error) from error

    def _note(self, content: dict[str, object]) -> None:
        if "sends" in content:
            partners = [content["sends"], content["receives"]]
            self.peers = frozenset(
                int(rank) for some in partners if isinstance(some, list) for rank in some
            )
            return
        if "ranks" in content:
            ranks = content["ranks"]
            if isinstance(ranks, list):
                self._names.ranks[str(content["name"])] = tuple(int(rank) for rank in ranks)
            return
        group = self._names.group(
            str(content["group"]), str(content["backend"]), is_p2p=bool(content["p2p"])
        )
        what = self._names.call(str(content["operation"]), int(str(content["bytes"])))
        self._keys[int(str(content["key"]))] = (group, what)

    def _numbered(self, calls: NDArray[np.int64]) -> Calls:
        """With the numbers that all ranks share. Calls of unknown names are left out."""
        numbered = self._of_keys(calls[:, 2])
        kept = numbered[:, 0] >= 0
        return Calls(calls[kept, 0], calls[kept, 1], numbered[kept, 0], numbered[kept, 1])

    def _measured(self, rows: NDArray[np.int64]) -> Lengths:
        """The same for lengths; notes until when all are known."""
        is_mark = rows[:, 1] == _SETTLED
        self.settled_ns = max(self.settled_ns, int(rows[is_mark, 0].max(initial=0)))
        rows = rows[~is_mark]
        numbered = self._of_keys(rows[:, 1])
        kept = (numbered[:, 0] >= 0) & (rows[:, 2] > 0)
        return Lengths(rows[kept, 0], numbered[kept, 0], rows[kept, 2])

    def _of_keys(self, keys: NDArray[np.int64]) -> NDArray[np.int64]:
        """Group and collective of each key; -1 where unknown."""
        known = np.full((int(keys.max(initial=-1)) + 2, 2), -1, np.int64)
        for key, numbers in self._keys.items():
            if key < len(known) - 1:
                known[key] = numbers
        return np.asarray(known[np.maximum(keys, -1)])


class _Segments:
    """The files ``name-1.bin``, ``name-2.bin`` … as one stream of bytes."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._name = folder, name
        self._number, self._offset = 1, 0
        self.has_gap = False

    def read(self, unit: int) -> bytes:
        """Whole units of bytes since the last call."""
        parts = []
        while True:
            content = self._read_one(unit)
            parts.append(content)
            following = self._following()
            if following is None or len(content) >= _READ_BYTES - unit:
                return b"".join(parts)
            parts.append(self._read_one(unit))  # the end that was written before the next began
            self.has_gap |= following > self._number + 1
            self._number, self._offset = following, 0

    def _read_one(self, unit: int) -> bytes:
        try:
            with self._path(self._number).open("rb") as file:
                file.seek(self._offset)
                content = file.read(_READ_BYTES)
        except FileNotFoundError:
            return b""
        whole = content[: len(content) // unit * unit]
        self._offset += len(whole)
        return whole

    def _following(self) -> int | None:
        """Number of the next segment that exists."""
        numbers = [
            int(path.stem.rpartition("-")[2]) for path in self._folder.glob(f"{self._name}-*.bin")
        ]
        return min((number for number in numbers if number > self._number), default=None)

    def _path(self, number: int) -> Path:
        return self._folder / f"{self._name}-{number:06d}.bin"


def rank_folders(directory: Path) -> dict[tuple[int, int], Path]:
    """(Rank, attempt) → folder, of all ranks that have written."""
    found = {}
    for folder in sorted((directory / "ranks").glob("*.*")):
        match = _FOLDER.fullmatch(folder.name)
        if match is not None and (folder / "rank.json").is_file():
            found[int(match[1]), int(match[2])] = folder
    return found


def failures(directory: Path) -> list[str]:
    """Why collectors could not start, a line each."""
    return [
        read_end(path, _MAX_REASON).decode(errors="replace").strip()
        for path in sorted(directory.glob("problem-*"))[:_MAX_REASONS]
    ]


def _text(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_MAX_TEXT)


def _damaged(path: Path, error: Exception) -> StoreError:
    reason = str(error).splitlines()[0]
    return StoreError(f"{path}: not what a collector writes: {reason}")
