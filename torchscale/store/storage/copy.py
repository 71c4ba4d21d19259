"""A copy of a run folder at an address: what has changed since the last copy, records last."""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchscale.errors import FileSystemError, StoreError, TorchscaleError, UsageError
from torchscale.observer import Observer
from torchscale.store.storage.copied import STATE, CopiedFiles, Stamp
from torchscale.store.storage.fetch import LISTING_SECONDS
from torchscale.store.storage.service import Service
from torchscale.store.storage.transfers import Moved, Transfers
from torchscale.util.addresses import Address
from torchscale.util.files import open_regular, read_bounded

_PART_BYTES = 8 << 20
"""Of a file that is sent in parts: S3 takes 10,000 parts, of 80 GB then, and each thread holds two."""
_PART_SECONDS = 300.0
"""In which all threads together send a part each at 220 kB/s, a slow line; there is no word of a
part before it has arrived."""
_READ_BYTES = 1 << 20
_KEEP_SECONDS = 5.0
"""Between two notes of what is done: what a killed command did since is done again."""
_EXPERIMENT = "experiment.json"
_MAX_EXPERIMENT_BYTES = 256 << 20
_LEFT_OUT = re.compile(rf"quarantine/.*|\.lock|(?:.*/)?\.[^/]*\.tmp|{re.escape(STATE)}")
_LAUNCH = re.compile(r"(cells/[^/]+/launch-\d+)/(.+)")
_RECORD = "record.json"
_RECORDS = (_RECORD, "analysis.json", "watch.json", "acceptance.json", "fleet.json")
"""Files that make others count: who finds one finds what it tells of."""


@dataclass(frozen=True)
class Copied:
    """What a copy did.

    Attributes:
        address: Where the folder is now.
        files: Number of files that were new or had changed.
        size: Their bytes.
    """

    address: str
    files: int
    size: int


def copy_folder(
    folder: Path,
    place: Address,
    observer: Observer,
    cancelled: Callable[[], bool] = lambda: False,
) -> Copied | None:
    """Copy a folder to ``place/NAME OF THE FOLDER`` (writes there): what changed since the last
    copy, a record after the files that it tells of. Quarantine is left out.

    Args:
        folder: A run folder, or any that a command wrote.
        place: The folder that it is to be in.
        observer: Is told how far it is.
        cancelled: Asked a few times a second.

    Returns:
        ``None`` where it was cancelled; the next copy goes on.

    Raises:
        UsageError: there is no such bucket, or a library is missing.
        StoreError: another run is at this address.
        FileSystemError: the store denies access or does not answer, or a file cannot be read.
    """
    target = place / folder.resolve().name
    with observer.status(f"Copying {folder} to {target.text}") as say:
        service = Service(target)
        files = dict(_local_files(folder))
        there = service.answered(lambda: _files_there(service), LISTING_SECONDS)
        copied = CopiedFiles.read(folder, target.text)
        if _EXPERIMENT in there and not copied.is_ours:
            _refuse_other_run(service, folder)
        _remove_stale(service, files, copied.stamps, there)
        waiting = [
            name
            for name, stamp in files.items()
            if copied.stamps.get(name) != stamp or there.get(name) != stamp[0]
        ]
        copied.write()
        total = Moved(len(waiting), sum(files[name][0] for name in waiting))
        sent = _Sending(service, folder, copied, files, cancelled)
        if not sent.all(
            waiting, lambda moved: say(f"Copying to {target.text}: {moved.text(total)}")
        ):
            return None
        return Copied(target.text, sent.moved.files, sent.moved.size)


class _Sending:
    """Files on their way."""

    def __init__(
        self,
        service: Service,
        folder: Path,
        copied: CopiedFiles,
        files: Mapping[str, Stamp],
        cancelled: Callable[[], bool],
    ) -> None:
        self._service, self._folder, self._copied = service, folder, copied
        self._files, self._cancelled = files, cancelled
        self._kept_at = time.monotonic()
        self.moved = Moved()

    def all(self, names: list[str], say: Callable[[Moved], None]) -> bool:
        """Send them, stage by stage. Returns whether it was not cancelled."""
        stages: dict[int, list[str]] = defaultdict(list)
        for name in names:
            stages[_stage(name)].append(name)
        transfers = Transfers(
            self._service, self._send, self._done, self._cancelled, _PART_SECONDS, self.moved
        )
        try:
            return all(transfers.run(stages[stage], say) for stage in sorted(stages))
        finally:
            self._copied.write()

    def _done(self, name: str) -> int:
        self._copied.stamps[name] = self._files[name]
        if time.monotonic() - self._kept_at > _KEEP_SECONDS:
            self._copied.write()
            self._kept_at = time.monotonic()
        return 1

    def _send(self, name: str, moved: Callable[[int], None]) -> None:
        try:
            source = os.fdopen(open_regular(self._folder / name, self._folder), "rb")
        except OSError as error:
            raise FileSystemError(
                f"cannot read {self._folder / name}: {error.strerror or error}"
            ) from error
        key = f"{self._service.root}/{name}"
        with source:
            target = self._service.files.open(key, "wb", block_size=_PART_BYTES)
            try:
                while content := source.read(_READ_BYTES):
                    target.write(content)
                    moved(len(content))
            except BaseException:
                # Closed, it would be an object with a part of the file.
                with contextlib.suppress(Exception):
                    target.discard()
                with contextlib.suppress(AttributeError):
                    target.closed = True
                raise
            target.close()


def _stage(name: str) -> int:
    """When a file is sent: cells after their launches' logs, records after both, and last what says
    what the folder is."""
    if "/" not in name:
        return 3
    last = name.rpartition("/")[2]
    if last in _RECORDS:
        return 2
    return int(last == "cell.json")


def _local_files(folder: Path) -> Iterator[tuple[str, Stamp]]:
    """Path within the folder → stamp. Links are left out: what they lead to belongs to others.

    Raises:
        FileSystemError: it cannot be listed.
    """

    def refuse(error: OSError) -> None:
        raise FileSystemError.of(error)

    for place, _, names in os.walk(folder, onerror=refuse):
        for name in names:
            path = Path(place) / name
            relative = path.relative_to(folder).as_posix()
            with contextlib.suppress(FileNotFoundError):  # another command removed it
                found = path.lstat()
                if stat.S_ISREG(found.st_mode) and not _LEFT_OUT.fullmatch(relative):
                    yield relative, (found.st_size, found.st_mtime_ns)


def _files_there(service: Service) -> dict[str, int]:
    """Path within the folder at the address → its bytes."""
    try:
        found: Mapping[str, Mapping[str, Any]] = service.files.find(service.root, detail=True)
    except FileNotFoundError:
        return {}
    start = len(service.root) + 1
    return {key[start:]: int(entry.get("size") or 0) for key, entry in found.items()}


def _remove_stale(
    service: Service,
    files: Mapping[str, Stamp],
    copied: Mapping[str, Stamp],
    there: dict[str, int],
) -> None:
    """Remove from launches there what the same launches here do not have, and records that are
    others here: they were measured again, and an error of the earlier one would be taken for one of
    theirs, or its record for one of their steps. Records go first."""
    launches = {found[1] for name in files if (found := _LAUNCH.fullmatch(name))}
    stale = [
        name
        for name in there
        if (found := _LAUNCH.fullmatch(name))
        and found[1] in launches
        and (name not in files or (found[2] == _RECORD and copied.get(name) != files[name]))
    ]
    for name in sorted(stale, key=lambda one: not one.endswith(f"/{_RECORD}")):
        key = f"{service.root}/{name}"
        service.answered(lambda key=key: service.files.rm_file(key))  # type: ignore[misc]
        del there[name]


def _refuse_other_run(service: Service, folder: Path) -> None:
    """Check that the run at the address is the one in the folder, copied from elsewhere.

    Raises:
        StoreError: it is another.
    """
    try:
        key = f"{service.root}/{_EXPERIMENT}"
        theirs = _created(service.answered(lambda: service.files.cat_file(key)))
        ours = _created(read_bounded(folder / _EXPERIMENT, _MAX_EXPERIMENT_BYTES))
    except (OSError, ValueError, TorchscaleError) as error:
        if isinstance(error, (FileSystemError, UsageError)):
            raise
        theirs, ours = "", "unknown"
    if theirs != ours:
        raise StoreError(
            f"{service.address.text} holds another run",
            hint="copy this one to another address: torchscale export --to storage "
            f"{folder} -o {service.address.text.rpartition('/')[0]}/other",
        )


def _created(content: bytes) -> str:
    """When a run was begun, which is as good as a name.

    Raises:
        ValueError: that is not told.
    """
    told = json.loads(content)
    if not isinstance(told, dict) or "created_at" not in told:
        raise ValueError("no created_at")
    return f"{told['created_at']} {told.get('environment', {}).get('hostname', '')}"
