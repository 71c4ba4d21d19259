"""What is at an address, as a local copy: bounded, safe and in time."""

from __future__ import annotations

import threading
from collections import namedtuple
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path

import pytest

from tests.fake_launches import Recorder
from tests.object_stores import Files, use
from torchscale.errors import FileSystemError, MachineError, StoreError, UsageError
from torchscale.store.storage import fetch as module
from torchscale.store.storage import service, transfers
from torchscale.store.storage.fetch import FetchedParts, fetch
from torchscale.util.addresses import Address

ADDRESS = Address("s3://bucket/run", "s3")
Usage = namedtuple("Usage", "total used free")


@pytest.fixture
def got(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recorder: Recorder
) -> Callable[..., dict[str, bytes]]:
    """The files that are there after objects were fetched."""

    def get(
        content: dict[str, bytes] | Files, parts: FetchedParts = FetchedParts.ALL
    ) -> dict[str, bytes]:
        files = content if isinstance(content, Files) else Files(content)
        use(monkeypatch, files)
        (tmp_path / "new").mkdir(exist_ok=True)
        fetch(ADDRESS, tmp_path / "new" / "run", parts, recorder)
        return {
            path.relative_to(tmp_path).as_posix(): path.read_bytes()
            for path in tmp_path.rglob("*")
            if path.is_file()
        }

    return get


@pytest.fixture
def silence() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def test_a_folder_comes_whole(got: Callable[..., dict[str, bytes]]) -> None:
    content = {"bucket/run/experiment.json": b"{}", "bucket/run/cells/a/cell.json": b"cell" * 9}
    assert got({**content, "bucket/run-2/other": b""}) == {
        "new/run/experiment.json": b"{}",
        "new/run/cells/a/cell.json": b"cell" * 9,
    }


def test_where_nothing_has_figures_the_reader_gets_an_empty_folder(
    got: Callable[..., dict[str, bytes]], tmp_path: Path
) -> None:
    assert got({"bucket/run/a.sqlite": b"x"}, FetchedParts.FIGURES) == {}
    assert (tmp_path / "new" / "run").is_dir()


def test_a_single_object_comes_as_a_file(got: Callable[..., dict[str, bytes]]) -> None:
    assert got({"bucket/run": b"12345"}) == {"new/run": b"12345"}


def test_hostile_keys_write_nothing_outside_and_are_named(
    got: Callable[..., dict[str, bytes]], recorder: Recorder
) -> None:
    hostile = ["../up", "a/../../up", "/etc/x", "b//c", "d\x1b[31m", "e/."]
    content = {f"bucket/run/{key}": b"evil" for key in hostile}
    kept = got({**content, "bucket/run/ok": b"1", "bucket/run/f": b"2", "bucket/run/f/g": b"3"})
    assert kept == {"new/run/ok": b"1", "new/run/f/g": b"3"}
    [note] = recorder.notes
    assert "left out 7 objects whose name no file can have here: ../up, a/../../up, /etc/x" in note


def test_what_is_never_needed_is_not_fetched(got: Callable[..., dict[str, bytes]]) -> None:
    left_out = ["quarantine/a/record.json", ".lock", ".x.tmp", "cells/.record.json.ab.tmp"]
    content = {f"bucket/run/{key}": b"x" for key in [*left_out, ".copied.json", "summary.csv"]}
    assert got(content) == {"new/run/summary.csv": b"x"}


def test_figures_need_neither_steps_nor_recordings(got: Callable[..., dict[str, bytes]]) -> None:
    kept = ["record.json", "telemetry.jsonl", "rank-0.json"]
    left_out = ["steps-rank-0.jsonl", "profile-0/trace.json", "run.nsys-rep", "torchrun.log"]
    content = {f"bucket/run/cells/a/{key}": b"x" for key in [*kept, *left_out]}
    content["bucket/run/cells/a/profile-0/analysis.json"] = b"x"
    names = {f"new/run/cells/a/{key}" for key in [*kept, "profile-0/analysis.json"]}
    assert set(got(content, FetchedParts.FIGURES)) == names
    assert len(got(content)) == len(content)


@pytest.mark.parametrize("content", [{}, {"bucket/other": b""}, {"bucket/run/.lock": b""}])
def test_nothing_there_is_an_error(
    got: Callable[..., dict[str, bytes]], content: dict[str, bytes]
) -> None:
    with pytest.raises(UsageError, match="s3://bucket/run: there is nothing at this address"):
        got(content)


@pytest.mark.parametrize(
    ("bound", "value", "message"),
    [
        ("MAX_FILES", 2, "s3://bucket/run holds more than 2 files, the most that are fetched"),
        ("MAX_FILE_BYTES", 9, "run: c has 10.0 B; a file of at most 9.00 B is fetched"),
        ("MAX_BYTES", 19, "run has 20.0 B; at most 19.0 B are fetched"),
    ],
)
def test_a_bound_is_named_and_nothing_is_fetched(
    got: Callable[..., dict[str, bytes]],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    bound: str,
    value: int,
    message: str,
) -> None:
    monkeypatch.setattr(module, bound, value)
    content = {"bucket/run/a": b"12345", "bucket/run/b": b"12345", "bucket/run/c": b"1234567890"}
    with pytest.raises(StoreError, match=message):
        got(content)
    assert not list((tmp_path / "new").iterdir())


def test_a_disk_without_room_is_named(
    got: Callable[..., dict[str, bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda place: Usage(1 << 30, 1 << 30, 1 << 20))
    with pytest.raises(MachineError, match=r"has 5\.00 B, and .* has 1\.00 MiB free") as caught:
        got({"bucket/run/a": b"12345"})
    assert "TMPDIR" in str(caught.value.hint)


@pytest.mark.parametrize("size", [4, 6, 1000])
def test_an_object_that_changes_is_not_taken(
    got: Callable[..., dict[str, bytes]], size: int
) -> None:
    files = Files({"bucket/run/a": b"12345"})
    files.on["get"] = lambda key: files.content.update({key: b"x" * size})
    with pytest.raises(FileSystemError, match="run: a was changed while it was fetched"):
        got(files)


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 16, 20])
def test_an_object_comes_in_parts(
    got: Callable[..., dict[str, bytes]], monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(module, "_PART_BYTES", 8)
    content = bytes(range(size))
    largest: list[int] = []
    files = Files({"bucket/run/a": content, "bucket/run/b": content[::-1]})
    read = files.cat_file

    def reading(key: str, start: int, end: int) -> bytes:
        largest.append(end - start)
        return read(key, start, end)

    monkeypatch.setattr(files, "cat_file", reading)
    assert got(files) == {"new/run/a": content, "new/run/b": content[::-1]}
    assert max(largest, default=0) <= 9, "never a whole object"


def test_an_object_that_goes_meanwhile_is_named(got: Callable[..., dict[str, bytes]]) -> None:
    def gone(key: str) -> None:
        raise FileNotFoundError(key)

    files = Files({"bucket/run/a": b"12345"})
    files.on["get"] = gone
    with pytest.raises(FileSystemError, match="run: a was removed while it was fetched"):
        got(files)


@pytest.mark.parametrize(("call", "bound"), [("ls", "ANSWER_SECONDS"), ("find", "LISTING_SECONDS")])
def test_a_listing_that_never_ends_is_given_up(
    got: Callable[..., dict[str, bytes]],
    monkeypatch: pytest.MonkeyPatch,
    silence: threading.Event,
    call: str,
    bound: str,
) -> None:
    monkeypatch.setattr(module if call == "find" else service, bound, 0.01)
    files = Files({"bucket/run/a": b"12345"})
    within = {"name": "bucket/run/cells", "type": "directory"}
    monkeypatch.setattr(files, "list_within", [within])
    files.on[call] = lambda key: silence.wait()
    with pytest.raises(FileSystemError, match=r"no answer within 0\.01 s"):
        got(files)


def test_a_transfer_that_stands_still_is_given_up(
    got: Callable[..., dict[str, bytes]], monkeypatch: pytest.MonkeyPatch, silence: threading.Event
) -> None:
    monkeypatch.setattr(service, "ANSWER_SECONDS", 0.05)
    monkeypatch.setattr(transfers, "_LOOK_SECONDS", 0.01)
    monkeypatch.setattr(transfers, "_LEAVE_SECONDS", 0.01)
    files = Files({"bucket/run/a": b"12345", "bucket/run/b": b"1"})
    files.on["get"] = lambda key: silence.wait() if key.endswith("a") else None
    with pytest.raises(FileSystemError, match=r"no answer within 0\.05 s"):
        got(files)


def test_several_files_come_at_the_same_time(got: Callable[..., dict[str, bytes]]) -> None:
    files = Files({f"bucket/run/{number}": b"1" for number in range(12)})
    together = threading.Barrier(transfers.THREADS)
    first = iter(range(transfers.THREADS))
    files.on["get"] = lambda key: together.wait(20) if next(first, None) is not None else None
    assert len(got(files)) == 12
    assert files.most_active == transfers.THREADS


def test_ctrl_c_ends_it_at_once(
    got: Callable[..., dict[str, bytes]], monkeypatch: pytest.MonkeyPatch, silence: threading.Event
) -> None:
    class Interrupted(BaseException):
        pass

    def interrupt() -> float:
        raise Interrupted

    monkeypatch.setattr(transfers, "_LEAVE_SECONDS", 0.01)
    files = Files({"bucket/run/a": b"12345"})
    files.on["get"] = lambda key: silence.wait()
    monkeypatch.setattr(transfers.Transfers, "_next", lambda self, ended, say: interrupt())
    with pytest.raises(Interrupted):
        got(files)


def test_the_copy_is_as_old_as_the_object(
    got: Callable[..., dict[str, bytes]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moment = datetime(2026, 1, 2, tzinfo=timezone.utc)
    files = Files({"bucket/run/a": b"1"})
    listed = files.ls

    def with_times(root: str, detail: bool) -> list[dict[str, object]]:
        return [{**entry, "LastModified": moment} for entry in listed(root, detail)]

    monkeypatch.setattr(files, "ls", with_times)
    got(files)
    assert (tmp_path / "new/run/a").stat().st_mtime == moment.timestamp()


def test_how_far_it_is_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recorder: Recorder
) -> None:
    use(monkeypatch, Files({"bucket/run/a": b"1" * 2048}))
    fetch(ADDRESS, tmp_path / "run", FetchedParts.ALL, recorder)
    assert recorder.waits == ["Looking at s3://bucket/run"]
    assert transfers.Moved(1, 2048).text(transfers.Moved(3, 4096)) == (
        "1 of 3 files, 2.00 KiB of 4.00 KiB"
    )
