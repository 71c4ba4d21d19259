"""Reads what the collectors write, while they write it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, TypeAdapter, ValidationError

from torchscale.analysis.exchanges.events import (
    Calls,
    CollectiveDurations,
    CoreTime,
    Moments,
    RankEvents,
)
from torchscale.errors import StoreError
from torchscale.features.watch.job.rank_folders import MOMENTS, names_in
from torchscale.schema.watch.attempt import RankCheckpoints
from torchscale.schema.watch.rank import NamedCall, NamedGroup, Partners, RankFacts, RankUse
from torchscale.util.files import read_bounded, read_part

M = TypeVar("M", bound=BaseModel)

_READ_BYTES = 16 << 20
"""Of each file at a time: four segments, all that a collector keeps."""
_MOST_NAMES = 100_000
"""Collectives that a rank tells apart: a collector has some thousand at most."""
_MAX_TEXT = 4 << 20
"""Of ``rank.json`` and ``lines.json``, which have some kilobytes."""
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
        self._root = folder.parent.parent
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
        return self._read("checkpoints.json", RankCheckpoints) or RankCheckpoints()

    def read_use(self) -> None:
        """Read what the process used.

        Raises:
            StoreError: the file is damaged.
        """
        self.use = self._read("lines.json", RankUse) or self.use

    def _read_facts(self) -> RankFacts:
        facts = self._read("rank.json", RankFacts)
        if facts is None:
            raise StoreError(f"{self._folder}: a rank's folder without rank.json")
        return facts

    def _read(self, name: str, model: type[M]) -> M | None:
        """A file of the rank; ``None`` where there is none.

        Raises:
            StoreError: it is damaged.
        """
        path = self._folder / name
        try:
            return model.model_validate_json(read_bounded(path, _MAX_TEXT, within=self._root))
        except FileNotFoundError:
            return None
        except (ValidationError, OSError) as error:
            raise _damaged(path, error) from error

    def _read_names(self) -> None:
        path = self._folder / "names.jsonl"
        try:
            content = read_part(path, self._names_read, _READ_BYTES, within=self._root)
            whole = content[: content.rfind(b"\n") + 1]
            self._names_read += len(whole)
            for line in whole.splitlines():
                self._note(_NAME.validate_json(line))
        except FileNotFoundError:
            return
        except (ValidationError, OSError) as error:
            raise _damaged(path, error) from error

    def _note(self, named: NamedCall | NamedGroup | Partners) -> None:
        if isinstance(named, Partners):
            self.peers = frozenset((*named.sends, *named.receives))
        elif isinstance(named, NamedGroup):
            self._names.ranks[named.name] = named.ranks
        elif len(self._keys) < _MOST_NAMES:
            group = self._names.group(named.group, named.backend, is_p2p=named.p2p)
            self._keys[named.number] = (group, self._names.call(named.operation, named.bytes))

    def _numbered(self, calls: NDArray[np.int64]) -> Calls:
        """With the numbers that all ranks share. Calls of unknown names are left out."""
        numbered = self._of_keys(calls[:, 2])
        kept = numbered[:, 0] >= 0
        return Calls(calls[kept, 0], calls[kept, 1], numbered[kept, 0], numbered[kept, 1])

    def _measured(self, rows: NDArray[np.int64]) -> CollectiveDurations:
        """The same for lengths; notes until when all are known."""
        is_mark = rows[:, 1] == _SETTLED
        self.settled_ns = max(self.settled_ns, int(rows[is_mark, 0].max(initial=0)))
        rows = rows[~is_mark]
        numbered = self._of_keys(rows[:, 1])
        kept = (numbered[:, 0] >= 0) & (rows[:, 2] > 0)
        return CollectiveDurations(rows[kept, 0], numbered[kept, 0], rows[kept, 2])

    def _of_keys(self, keys: NDArray[np.int64]) -> NDArray[np.int64]:
        """Group and collective of each key; -1 where unknown."""
        known = sorted(self._keys)
        numbers = np.array([(-1, -1), *(self._keys[key] for key in known)], np.int64)
        names = np.array([-1, *known], np.int64)
        places = np.searchsorted(names, keys, side="right") - 1
        places = np.where(names[places] == keys, places, 0)
        return np.asarray(numbers[places])


_NAME: TypeAdapter[NamedCall | NamedGroup | Partners] = TypeAdapter(
    NamedCall | NamedGroup | Partners
)


class _Segments:
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
            raise _damaged(path, error) from error
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


def _damaged(path: Path, error: Exception) -> StoreError:
    reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
    return StoreError(f"{path}: not what a collector writes: {reason}")
