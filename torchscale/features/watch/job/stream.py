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
from torchscale.features.watch.analysis.evidence_log import EvidenceLog
from torchscale.features.watch.job.segments import Lines, SegmentReader, damaged
from torchscale.schema.watch.attempt import RankCheckpoints
from torchscale.schema.watch.rank import (
    CompiledFrame,
    NamedCall,
    NamedGroup,
    NamedPlace,
    Partners,
    RankFacts,
    RankUse,
)
from torchscale.util.files import read_bounded

M = TypeVar("M", bound=BaseModel)

_MOST_NAMES = 100_000
"""Collectives that a rank tells apart: a collector has some thousand at most."""
_MAX_TEXT = 4 << 20
"""Of ``rank.json`` and ``use.json``, which have some kilobytes."""
_INTEGER = 8
_CALL = 3 * _INTEGER
_SETTLED = -1
"""In place of a key: until when all lengths are known (``worker/watch/recorder.py``)."""
_PAIR, _READING = 2 * _INTEGER, 4 * _INTEGER


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
        evidence: What it shows beside its steps.
        first_call_ns: When it first called a collective, in nanoseconds since the epoch; ``None``
            before.
        has_gap: Whether moments or collectives were removed before they were read.
    """

    def __init__(self, folder: Path, names: Names) -> None:
        self._folder, self._names = folder, names
        self._root = folder.parent.parent
        self._marks, self._calls = SegmentReader(folder, "marks"), SegmentReader(folder, "calls")
        self._lengths, self._shares = (
            SegmentReader(folder, "lengths"),
            SegmentReader(folder, "shares"),
        )
        self._samples, self._memory = (
            SegmentReader(folder, "samples"),
            SegmentReader(folder, "memory"),
        )
        self._named, self._compiled = Lines(folder, "names.jsonl"), Lines(folder, "compiles.jsonl")
        self.evidence = EvidenceLog()
        self.first_call_ns: int | None = None
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
        shares = np.frombuffer(self._shares.read(_PAIR), np.int64).reshape(-1, 2)
        samples = np.frombuffer(self._samples.read(_PAIR), np.int64).reshape(-1, 2)
        memory = np.frombuffer(self._memory.read(_READING), np.int64).reshape(-1, 4)
        marks = np.frombuffer(self._marks.read(_INTEGER), np.int64)
        self._read_names()
        self.evidence.add(samples, memory, self._read_compiled())
        if self.first_call_ns is None and len(calls):
            self.first_call_ns = int(calls[0, 0])
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
        self.use = self._read("use.json", RankUse) or self.use

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
            raise damaged(path, error) from error

    def _read_names(self) -> None:
        for line in self._named.read():
            try:
                self._note(_NAME.validate_json(line))
            except ValidationError as error:
                raise damaged(self._named.path, error) from error

    def _read_compiled(self) -> list[CompiledFrame]:
        try:
            return [CompiledFrame.model_validate_json(line) for line in self._compiled.read()]
        except ValidationError as error:
            raise damaged(self._compiled.path, error) from error

    def _note(self, named: NamedCall | NamedGroup | NamedPlace | Partners) -> None:
        if isinstance(named, NamedPlace):
            self.evidence.name(named)
        elif isinstance(named, Partners):
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


_NAME: TypeAdapter[NamedCall | NamedGroup | NamedPlace | Partners] = TypeAdapter(
    NamedCall | NamedGroup | NamedPlace | Partners
)
