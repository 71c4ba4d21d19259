"""A launch that runs on other nodes: the part of each, and the files that it sends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from torchscale.features.cluster.nodes.channel import ChannelError
from torchscale.features.cluster.nodes.member import Member
from torchscale.features.cluster.nodes.messages import Ended, FileFollows
from torchscale.schema.launch.progress import Progress

MAX_LAUNCH_BYTES = 4 << 30
"""Maximum size of the files of one node and launch: the steps of eight ranks for hours, at 250
bytes a step."""
MAX_FILE_BYTES = 64 << 20
"""Maximum size of a record or a log, which are read into memory: 1,000 times the record of an
ordinary launch."""


PROGRESS = "progress.jsonl"
"""Where rank 0 says what it does."""


@dataclass
class RemotePart:
    """One node's part of a running launch. ``names``: file there → file here, for all that may be
    sent."""

    member: Member
    names: Mapping[str, Path]
    inspected: bool = False
    ended: Ended | None = None
    collected: bool = False
    received_bytes: int = 0
    file: IO[bytes] | None = None
    target: Path | None = None
    missing: int = 0

    @property
    def is_lost(self) -> bool:
        """Whether its files will never be complete."""
        return bool(self.member.lost) and not self.collected

    def begin_file(self, message: FileFollows) -> None:
        """A file follows.

        Raises:
            ChannelError: it is none of those that this node may send, another one is not complete,
                or it is too large.
        """
        target = self.names.get(message.name)
        self.received_bytes += message.size
        limit = MAX_LAUNCH_BYTES if message.name.startswith("steps-") else MAX_FILE_BYTES
        too_large = message.size > limit or self.received_bytes > MAX_LAUNCH_BYTES
        if target is None or self.file is not None or too_large:
            raise ChannelError(
                f"it sent {message.name!r} of {message.size:,} bytes, which was not expected"
            )
        self.target, self.missing = target, message.size
        self.file = _partial(target).open("wb")
        self._keep_if_complete()

    def take_data(self, data: bytes) -> None:
        """Bytes of the file.

        Raises:
            ChannelError: more than was announced.
        """
        if self.file is None or len(data) > self.missing:
            raise ChannelError("it sent more of a file than it announced")
        self.file.write(data)
        self.missing -= len(data)
        self._keep_if_complete()

    def take_progress(self, progress: Progress) -> None:
        """What rank 0 says while it works, which the process that leads reads from a file.

        Raises:
            ChannelError: this node has no rank 0 that is read here, or says too much.
        """
        target = self.names.get(PROGRESS)
        if target is None:
            raise ChannelError("it sent progress, which was not expected")
        line = progress.model_dump_json().encode() + b"\n"
        self.received_bytes += len(line)
        if self.received_bytes > MAX_LAUNCH_BYTES:
            raise ChannelError("it sent more progress than is taken")
        with target.open("ab") as file:
            file.write(line)

    def collect(self) -> None:
        """Everything was sent.

        Raises:
            ChannelError: less of a file than was announced.
        """
        if self.file is not None and self.target is not None:
            raise ChannelError(
                f"it announced {self.missing:,} more bytes of {self.target.name} than it sent"
            )
        self.collected = True

    def drop_file(self) -> None:
        """Remove what has come of a file that is not complete."""
        if self.file is not None and self.target is not None:
            self.file.close()
            self.file = None
            _partial(self.target).unlink(missing_ok=True)

    def _keep_if_complete(self) -> None:
        if self.missing == 0 and self.file is not None and self.target is not None:
            self.file.close()
            self.file = None
            _partial(self.target).replace(self.target)


@dataclass
class RemoteLaunch:
    """The parts of a launch that run on other nodes. Read by the main thread, written by the
    network's."""

    order: int
    parts: Sequence[RemotePart] = field(default_factory=tuple)

    @property
    def lost(self) -> str:
        """Which node was lost, and why; empty while none is."""
        return next(
            (f"{part.member.label}: {part.member.lost}" for part in self.parts if part.is_lost), ""
        )

    @property
    def failed(self) -> bool:
        """Whether a part cannot become complete any more: its node is lost, or its torchrun
        failed."""
        return bool(self.lost) or any(
            part.ended is not None and part.ended.exit_code != 0 for part in self.parts
        )

    @property
    def is_inspected(self) -> bool:
        """Whether every part that still runs has asked its ranks where they are."""
        return all(
            part.inspected or part.ended is not None or part.member.lost for part in self.parts
        )

    @property
    def has_ended(self) -> bool:
        """Whether every part that is not lost has ended."""
        return all(part.ended is not None or part.member.lost for part in self.parts)

    @property
    def is_collected(self) -> bool:
        """Whether every part that is not lost has sent its files."""
        return all(part.collected or part.member.lost for part in self.parts)

    @property
    def not_started(self) -> str:
        """Which node could not start its torchrun, and why; empty where all could."""
        ended = ((part.member.label, part.ended) for part in self.parts)
        return next(
            (f"{label}: {end.problem}" for label, end in ended if end is not None and end.problem),
            "",
        )

    @property
    def pid(self) -> None:
        """No process of this machine."""
        return

    def poll(self) -> int | None:
        """The exit code of all parts together; ``None`` while one runs."""
        if not self.has_ended:
            return None
        return self.exit_code if self.exit_code is not None else 1

    @property
    def exit_code(self) -> int | None:
        """Exit code of the first part that failed, else of the first; ``None`` where none has
        one."""
        codes = [part.ended.exit_code for part in self.parts if part.ended is not None]
        return next((code for code in codes if code), codes[0] if codes else None)

    @property
    def survivors(self) -> tuple[str, ...]:
        """Processes that other nodes could not terminate."""
        return tuple(
            f"{survivor} on {part.member.label}"
            for part in self.parts
            if part.ended is not None
            for survivor in part.ended.survivors
        )

    @property
    def oom_kills(self) -> int:
        """The kernels' out-of-memory kills on the other nodes."""
        return sum(part.ended.oom_kills for part in self.parts if part.ended is not None)

    def part_of(self, member: Member) -> RemotePart | None:
        """The part of a node; ``None`` where it has none."""
        return next((part for part in self.parts if part.member is member), None)


def _partial(path: Path) -> Path:
    return path.with_name(f".{path.name}.part")
