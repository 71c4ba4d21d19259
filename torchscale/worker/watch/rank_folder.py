"""The files of a rank, below ``ranks/R.A/`` (rank and attempt):

``rank.json``
    Who it is, the clock that marks count from, how it started, and at last how it ended.
``marks-N.bin``, ``calls-N.bin``, ``lengths-N.bin``, ``shares-N.bin``, ``samples-N.bin``,
``memory-N.bin``
    Moments (int64, ``marks.py``), collectives and their lengths on the device (three int64 each,
    ``recorder.py``), time without a core and where the main thread was (two int64 each,
    ``sampler.py``), memory (four int64, ``memory.py``), in segments of 2 MB; the last four are
    kept.
``names.jsonl``
    The keys of the collectives, process groups with their ranks, and the places of the samples.
``compiles.jsonl``
    What torch.compile compiled (``compilations.py``).
``use.json``
    What this rank's process used.
``last-call.bin``
    The last collective that it called over gloo (``last_call.py``).
``checkpoints.json``
    The files that it saved, and those that it loaded before its first step (``checkpoints.py``).
"""

from __future__ import annotations

import array
import json
import resource
from pathlib import Path
from typing import Any

from . import facts
from .checkpoints import Checkpoints
from .compilations import Compilations
from .dump import groups, text
from .files import Segments, append_whole, claim, overwrite, replace_whole
from .hooks import Peers
from .recorder import Recorder
from .ring_settings import enable_timing
from .sampler import LineSampler

_LEAST_BYTES = 1024
"""Of a file that is replaced: room for a reason that a full disk would not take."""


class RankFolder:
    """Writes the files of a rank. Until its folder is made nothing is written.

    Attributes:
        path: The folder; ``None`` until it is made.
    """

    def __init__(self, root: Path) -> None:
        self.path: Path | None = None
        self._root = root
        self._segments: dict[str, Segments] = {}
        self._keys_written = self._peers_written = self._places_written = 0
        self._compilations_written = 0
        self._groups_written: set[str] = set()

    @property
    def has_lost(self) -> bool:
        """Whether some of what was added was dropped."""
        return any(segments.has_lost for segments in self._segments.values())

    def make(self, rank: int, attempt: int) -> None:
        """Make the folder.

        Raises:
            OSError: it cannot be made.
        """
        self.path = claim(self._root / "ranks", rank, attempt)

    def add(self, name: str, values: list[int]) -> None:
        """What the segments of this name get next."""
        if self.path is None or not values:
            return
        segments = self._segments.setdefault(name, Segments(self.path, name))
        segments.add(array.array("q", values).tobytes())

    def write_segments(self) -> None:
        """Write what was added.

        Raises:
            OSError: it cannot be written; what there is stays for the next time.
        """
        for segments in self._segments.values():
            segments.write()

    def write_names(self, recorder: Recorder, peers: Peers, sampler: LineSampler) -> None:
        """Write the keys, groups, peers and places that are new.

        Raises:
            OSError: they cannot be written.
        """
        lines = [
            {
                "key": number,
                "backend": key.backend,
                "group": key.group,
                "operation": key.operation,
                "bytes": key.size,
                "p2p": key.is_p2p,
            }
            for number, key in enumerate(
                recorder.keys[self._keys_written :], start=self._keys_written
            )
        ]
        new = {name: ranks for name, ranks in groups().items() if name not in self._groups_written}
        if new and recorder.is_timed:
            enable_timing()
        places = _named_places(sampler, self._places_written)
        content: list[dict[str, Any]] = [
            *({"name": name, "ranks": ranks} for name, ranks in new.items()),
            *lines,
            *places,
        ]
        partners = len(peers.sends) + len(peers.receives)
        if partners > self._peers_written:
            sends, receives = sorted(peers.sends), sorted(peers.receives)
            content.append({"sends": sends, "receives": receives})
        if not content or self.path is None:
            return
        self._append("names.jsonl", content)
        self._keys_written += len(lines)
        self._places_written += len(places)
        self._groups_written |= set(new)
        self._peers_written = partners

    def write_checkpoints(self, checkpoints: Checkpoints) -> None:
        """Write what the rank saved and loaded, where that is new.

        Raises:
            OSError: it cannot be written.
        """
        content = checkpoints.take()
        if content is None:
            return
        try:
            self._replace("checkpoints.json", content)
        except OSError:
            checkpoints.take_again()
            raise

    def write_compilations(self, compilations: Compilations) -> None:
        """Write the compilations that are new.

        Raises:
            OSError: they cannot be written.
        """
        new = compilations.noted[self._compilations_written :]
        if new and self.path is not None:
            self._append("compiles.jsonl", new)
            self._compilations_written += len(new)

    def write_use(self, recorder: Recorder, device: int | None) -> None:
        """Write what the process used; of a CUDA device, if it uses one.

        Raises:
            OSError: they cannot be written.
        """
        usage = resource.getrusage(resource.RUSAGE_SELF)
        content = {
            "cpu_seconds": usage.ru_utime + usage.ru_stime,
            "peak_memory_bytes": usage.ru_maxrss * 1024,
            "major_faults": usage.ru_majflt,
            "minor_faults": usage.ru_minflt,
            "lost_calls": recorder.lost,
            "recorders": recorder.counts,
            "failed_recorders": recorder.problems,
            **facts.of_cuda(device),
        }
        self._replace("use.json", content)

    def write_facts(self, content: dict[str, Any]) -> None:
        """Write who the rank is and how it is; over what is there where the disk is full.

        Raises:
            OSError: it cannot be written.
        """
        try:
            self._replace("rank.json", content)
        except OSError:
            if self.path is not None:
                overwrite(self.path / "rank.json", json.dumps(content))

    def _append(self, name: str, lines: list[dict[str, Any]]) -> None:
        assert self.path is not None  # noqa: S101 - callers have looked
        content = "".join(json.dumps(line) + "\n" for line in lines)
        append_whole(self.path / name, content.encode(errors="replace"))

    def _replace(self, name: str, content: dict[str, Any]) -> None:
        if self.path is not None:
            replace_whole(self.path / name, json.dumps(content).ljust(_LEAST_BYTES))


def _named_places(sampler: LineSampler, first: int) -> list[dict[str, Any]]:
    """The places from number ``first`` on; their samples are written after them."""
    return [
        {
            "place": number,
            "file": text(file),
            "line": line,
            "function": text(function),
            "called": text(called),
        }
        for number, (file, line, function, called) in enumerate(sampler.places[first:], start=first)
    ]
