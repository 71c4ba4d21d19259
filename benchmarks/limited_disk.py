"""A disk with a limited rate: a file as a loop device that the kernel's block controller limits. Needs
root, and control groups of version 1."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_BLOCKS = Path("/sys/fs/cgroup/blkio")
_BYTES = 4 << 30
"""Of which little is ever written: ``validate`` asks for free space."""
# Tables are written now: later, in the background, they would take part of the rate.
_PLAIN = ("-O", "^has_journal", "-E", "lazy_itable_init=0", "-N", "10000")
_WITH_JOURNAL = ("-E", "lazy_itable_init=0,lazy_journal_init=0")


@contextmanager
def limited_disk(
    image: Path, mount: Path, bytes_per_second: float, *, journal: bool
) -> Iterator[None]:
    """A file system in ``image``, mounted at ``mount``, with this rate for reads and for writes.

    Without ``journal``, which writes part of the data twice, files may lie in memory. With it, the
    image is written past the page cache of the disk that it is on.
    """
    with image.open("wb") as file:
        file.truncate(_BYTES)
    _run("mkfs.ext4", "-q", "-F", *(_WITH_JOURNAL if journal else _PLAIN), str(image))
    direct = ["--direct-io=on"] * journal  # which files in memory do not have
    device = _run("losetup", "--find", "--show", *direct, str(image))
    numbers = _run("lsblk", "-dno", "MAJ:MIN", device)
    try:
        _run("mount", device, str(mount))
        _limit(numbers, bytes_per_second)
        try:
            yield
        finally:
            _limit(numbers, 0)
            _run("umount", str(mount))
    finally:
        _run("losetup", "--detach", device)


def _limit(numbers: str, bytes_per_second: float) -> None:
    for way in ("read", "write"):
        place = _BLOCKS / f"blkio.throttle.{way}_bps_device"
        place.write_text(f"{numbers} {bytes_per_second:.0f}")


def _run(*command: str) -> str:
    """What the command prints; one that fails raises."""
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
