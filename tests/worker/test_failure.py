"""What is said of a rank's failure beside the exception's own text."""

from __future__ import annotations

import errno
import shutil
from collections import namedtuple

import pytest

from torchscale.worker.failure import describe_failure

Space = namedtuple("Space", "total used free")
GIB = 2**30


@pytest.fixture
def little_shm(monkeypatch: pytest.MonkeyPatch) -> None:
    """/dev/shm of 64 KiB, and space enough elsewhere."""
    sizes = {"/dev/shm": Space(2**16, 2**15, 2**15)}
    monkeypatch.setattr(shutil, "disk_usage", lambda path: sizes.get(path, Space(GIB, 0, GIB)))


@pytest.mark.usefixtures("little_shm")
@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        RuntimeError("unable to write to file </torch_12_34_0>: No space left on device (28)"),
        RuntimeError(
            "DataLoader worker (pid 7) is killed by signal: Bus error. Please raise your shared "
            "memory limit."
        ),
    ],
)
def test_a_lack_of_space_is_told_with_its_place(error: Exception) -> None:
    message = describe_failure(error, 0).message
    assert message == f"{error} (/dev/shm has 32.0 KiB of 64.0 KiB free)"


@pytest.mark.usefixtures("little_shm")
def test_other_failures_say_nothing_of_space() -> None:
    assert describe_failure(ValueError("wrong"), 0).message == "wrong"
    assert (
        describe_failure(OSError(errno.EACCES, "Permission denied"), 0).message
        == "[Errno 13] Permission denied"
    )


def test_with_space_enough_nothing_is_added(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Space(GIB, 0, GIB))
    assert describe_failure(OSError(errno.ENOSPC, "full"), 0).message == "[Errno 28] full"
