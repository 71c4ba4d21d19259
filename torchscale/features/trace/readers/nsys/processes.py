"""Processes of an export, and which ranks they are: by their own marks, else by the order of those
that ran kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from torchscale.errors import TraceError
from torchscale.features.trace.readers.nsys.cuda_tables import KERNELS
from torchscale.features.trace.readers.nsys.database import AGAIN, Database
from torchscale.features.trace.readers.nsys.nvtx import PID_UNIT, NvtxEvents
from torchscale.schema.profiles.nvtx_names import RANK_MARK

_MAX_PROCESSES = 1024
"""Maximum number of processes of one export: a node has some tens of ranks. All tables are gone
through for each."""
_MAX_SHOWN = 60
"""Characters of a name in a message."""
_MAX_LISTED = 16
"""Processes that are named."""
_MAX_MESSAGE = 300
"""Characters of what nsys says: three lines of a terminal."""


@dataclass(frozen=True)
class ProcessIdentity:
    """Which rank a process (globalPid) is."""

    pid: int
    rank: int
    world_size: int

    @property
    def short(self) -> int:
        """PID of the process."""
        return self.pid // PID_UNIT % PID_UNIT


class ExportProcesses:
    """The processes of one export."""

    def __init__(self, database: Database, nvtx: NvtxEvents, path: Path) -> None:
        self._database, self._nvtx, self._path = database, nvtx, path

    def marked(self) -> dict[int, ProcessIdentity]:
        """Processes that marked themselves as ranks.

        Raises:
            TraceError: one did as several, or they are more than a node has.
        """
        marked: dict[int, ProcessIdentity] = {}
        for pid, text in self._nvtx.marks("torchscale.rank %"):
            match = RANK_MARK.fullmatch(text)
            if match is None:
                continue
            identity = ProcessIdentity(pid, int(match[1]), int(match[2]))
            known = marked.setdefault(pid, identity)
            if known != identity:
                raise TraceError(
                    f"{self._path}: process {identity.short} is marked as rank {known.rank} of "
                    f"{known.world_size} and as rank {identity.rank} of {identity.world_size}",
                    hint="mark each process once, as one rank",
                )
        self._check_count(len(marked))
        return marked

    def _check_count(self, processes: int) -> None:
        if processes > _MAX_PROCESSES:
            raise TraceError(
                f"{self._path}: {processes:,} processes ran kernels or are marked as ranks; at "
                f"most {_MAX_PROCESSES:,} of one node are read",
                hint=AGAIN,
            )

    def device_ranks(
        self, marked: dict[int, ProcessIdentity]
    ) -> tuple[list[ProcessIdentity], list[str]]:
        """Ranks that ran kernels, of those that are ``marked`` where any is; and notes on who they
        are.

        Raises:
            TraceError: kernels are of no process, or of none that is marked, or of too many.
        """
        pids = [
            pid
            for (pid,) in self._database.rows(
                f"SELECT DISTINCT globalPid FROM {KERNELS} WHERE globalPid IS NOT NULL"
            )
        ]
        if not pids:
            raise TraceError(
                f"{self._path}: its kernels do not say which process ran them; export with a "
                "newer nsys"
            )
        self._check_count(len(pids))
        ordered = sorted(self._process_number(pid) for pid in pids)
        if marked:
            strangers = [self._process_text(pid) for pid in ordered if pid not in marked]
            if len(strangers) == len(ordered):
                raise TraceError(
                    f"{self._path}: the processes that ran kernels are marked as no ranks: "
                    f"{_listed(strangers)}",
                    hint="mark the processes that run kernels, or none",
                )
            about = f"{self._path.name}: processes that are no ranks ran kernels and are left out: "
            return [marked[pid] for pid in ordered if pid in marked], [
                about + _listed(strangers)
            ] * bool(strangers)
        identities = [
            ProcessIdentity(pid, number, len(ordered)) for number, pid in enumerate(ordered)
        ]
        if len(ordered) == 1:
            return identities, []
        shown = _listed(
            [f"process {self._process_text(one.pid)} as rank {one.rank}" for one in identities]
        )
        about = "does not name ranks; taken, as all of the job, in the order of their processes"
        return identities, [f"{self._path.name} {about}: {shown}"]

    def _process_number(self, pid: object) -> int:
        """The globalPid of a kernel.

        Raises:
            TraceError: it is none.
        """
        if isinstance(pid, int) and pid % PID_UNIT == 0:
            return pid
        raise TraceError(
            f"{self._path}: {str(pid)[:_MAX_SHOWN]} as the process of a kernel; expected its "
            f"number times {PID_UNIT:,}",
            hint=AGAIN,
        )

    def _process_text(self, pid: int) -> str:
        """``144 (python3)``, or the number alone where the export does not name it."""
        number = ProcessIdentity(pid, 0, 1).short
        if not self._database.has("PROCESSES", "globalPid", "name"):
            return str(number)
        query = "SELECT name FROM PROCESSES WHERE globalPid = ? LIMIT 1"
        for (name,) in self._database.rows(query, (pid,)):
            if isinstance(name, str) and name:
                return f"{number} ({Path(name).name[:_MAX_SHOWN]})"
        return str(number)

    def recorder_message(self) -> str:
        """The warning that nsys itself left in the export."""
        if not self._database.has("DIAGNOSTIC_EVENT", "text"):
            return ""
        query = (
            "SELECT text FROM DIAGNOSTIC_EVENT WHERE text LIKE '%CUDA events collected%' LIMIT 1"
        )
        for (text,) in self._database.rows(query):
            return f"; nsys says: {' '.join(str(text)[:_MAX_MESSAGE].split())}"
        return ""


def _listed(texts: Sequence[str]) -> str:
    shown = ", ".join(texts[:_MAX_LISTED])
    if len(texts) > _MAX_LISTED:
        return f"{shown} and {len(texts) - _MAX_LISTED:,} more"
    return shown
