"""Files that are written whole or not at all, and read only where that is safe."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from torchscale.errors import OutputError
from torchscale.schema.launch.steps import BatchTimes
from torchscale.util.files import (
    atomic_path,
    atomic_write_model,
    atomic_write_text,
    leads_out,
    make_directory,
    read_bounded,
    read_end,
    remove_tree,
)


def test_a_directory_that_can_only_be_read_is_an_error_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(os, "open", refused)
    monkeypatch.setattr(Path, "unlink", refused)
    with pytest.raises(OutputError, match=r"cannot write .*report\.md: Read-only file system"):
        atomic_write_text(tmp_path / "report.md", "text")
    with pytest.raises(OutputError, match="cannot write"), atomic_path(tmp_path / "report.pdf"):
        pass


@pytest.mark.parametrize("function", ["replace", "fsync"])
def test_a_write_that_fails_leaves_the_old_file_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    path = tmp_path / "file.json"
    atomic_write_text(path, "old")

    def no_space(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os if function == "fsync" else Path, function, no_space)
    with pytest.raises(OutputError, match="No space left on device"):
        atomic_write_text(path, "new")
    monkeypatch.undo()
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file.json"]


@pytest.mark.parametrize(("durable", "calls"), [(True, 2), (False, 0)])
def test_only_what_must_outlast_a_power_cut_is_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, durable: bool, calls: int
) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    atomic_write_text(tmp_path / "file", "text", durable=durable)
    assert (tmp_path / "file").read_text() == "text"
    assert len(synced) == calls


@pytest.mark.parametrize(("count", "indented"), [(10, True), (200_000, False)])
def test_only_json_that_somebody_reads_is_indented(
    tmp_path: Path, count: int, *, indented: bool
) -> None:
    path, model = tmp_path / "file.json", BatchTimes(steps=(1,) * count, seconds=(0.5,) * count)
    atomic_write_model(path, model)
    text = path.read_text()
    assert (text.count("\n") > 1) is indented
    assert text.endswith("}\n")
    assert BatchTimes.model_validate_json(text) == model


@pytest.mark.slow
def test_no_half_written_file_whenever_the_writer_is_killed(tmp_path: Path) -> None:
    code = f"""
import itertools, pathlib
from torchscale.util.files import atomic_write_text
path = pathlib.Path({str(tmp_path / "file")!r})
for number in itertools.count():
    atomic_write_text(path, str(number % 10) * 500_000)
"""
    for pause in (0.03, 0.11, 0.19):
        writer = subprocess.Popen([sys.executable, "-c", code])
        deadline = time.monotonic() + 30
        while not (tmp_path / "file").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(pause)
        writer.kill()
        writer.wait()
        content = (tmp_path / "file").read_text()
        assert len(content) == 500_000
        assert len(set(content)) == 1
        (tmp_path / "file").unlink()


def test_what_is_no_regular_file_is_written_to_and_stays_what_it_is(tmp_path: Path) -> None:
    pipe, link = tmp_path / "pipe", tmp_path / "null"
    os.mkfifo(pipe)
    link.symlink_to("/dev/null")
    with pytest.raises(OutputError, match="cannot write"):
        atomic_write_text(pipe, "nobody reads")
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        atomic_write_text(pipe, "through")
        assert os.read(reader, 100) == b"through"
    finally:
        os.close(reader)
    atomic_write_text(link, "gone")
    assert link.is_symlink() and Path("/dev/null").is_char_device()
    with pytest.raises(OutputError, match="directory"):
        atomic_write_text(tmp_path, "x")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["null", "pipe"]


def test_permissions_are_those_of_the_umask_or_of_the_older_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    before = os.umask(0o027)
    try:
        atomic_write_text(path, "new")
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o640
    path.chmod(0o600)
    atomic_write_text(path, "newer")
    assert path.stat().st_mode & 0o777 == 0o600


def test_only_regular_files_of_a_bounded_size_are_read(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 2**20)
    assert read_bounded(path, 2**20) == b"x" * 2**20
    path.write_bytes(b"x" * (2**20 + 1))
    with pytest.raises(OSError, match="larger than 1 MiB"):
        read_bounded(path, 2**20)
    os.mkfifo(tmp_path / "pipe")
    for other in (tmp_path / "pipe", tmp_path, Path("/dev/zero")):
        with pytest.raises(OSError, match="not a regular file"):
            read_bounded(other, 2**20)
    with pytest.raises(FileNotFoundError):
        read_bounded(tmp_path / "none", 2**20)


def test_a_socket_and_what_takes_the_place_of_a_file_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look at a name and its opening, a pipe can come to be there."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        with pytest.raises(OSError, match="not a regular file"):
            read_bounded(tmp_path / "socket", 2**20)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").write_text("x")
    regular = (tmp_path / "file").stat()
    monkeypatch.setattr(Path, "stat", lambda *_, **__: regular)
    for read in (read_bounded, read_end):
        with pytest.raises(OSError, match="not a regular file"):
            read(tmp_path / "pipe", 2**20)


def test_links_that_lead_out_of_a_directory_are_found(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "inside").mkdir(parents=True)
    (root / "inside" / "file").write_text("")
    (root / "near").symlink_to(root / "inside")
    (root / "far").symlink_to(tmp_path)
    assert not leads_out(root, root / "inside" / "file")
    assert not leads_out(root, root / "near" / "file")
    assert leads_out(root, root / "far" / "file")


def test_a_file_that_a_library_writes_takes_its_place_only_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "table"
    path.write_text("old")
    with pytest.raises(RuntimeError, match="half"), atomic_path(path) as temporary:
        temporary.write_text("new")
        raise RuntimeError("half")
    assert [(entry.name, entry.read_text()) for entry in tmp_path.iterdir()] == [("table", "old")]
    with atomic_path(path) as temporary:
        temporary.write_text("new")
        assert path.read_text() == "old"
    assert [(entry.name, entry.read_text()) for entry in tmp_path.iterdir()] == [("table", "new")]
    with pytest.raises(OutputError, match=r"cannot write .*No space"), atomic_path(path):
        raise OSError(28, "No space left on device")


def test_what_is_in_the_place_of_a_directory_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match=r"cannot create .*/file: a file is in its place$"):
        make_directory(tmp_path / "file")
    (tmp_path / "link").symlink_to("nowhere")
    said = r"/link: a link to nowhere, which is no directory, is in its place$"
    for place in (tmp_path / "link", tmp_path / "link" / "run"):
        with pytest.raises(OutputError, match=said):
            make_directory(place)
    make_directory(tmp_path / "new" / "run")
    (tmp_path / "other").symlink_to("new")
    make_directory(tmp_path / "other")
    assert (tmp_path / "new" / "run").is_dir()


def test_of_a_link_the_link_alone_is_removed(tmp_path: Path) -> None:
    kept = tmp_path / "kept" / "precious"
    kept.parent.mkdir()
    kept.write_text("content")
    for place, target in (("to a directory", "kept"), ("to a file", "kept/precious")):
        (tmp_path / place).symlink_to(target)
        remove_tree(tmp_path / place)
    (tmp_path / "tree" / "deep").mkdir(parents=True)
    (tmp_path / "tree" / "deep" / "link").symlink_to(tmp_path / "kept")
    (tmp_path / "file").write_text("")
    for place in ("tree", "file", "absent"):
        remove_tree(tmp_path / place)
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    assert kept.read_text() == "content"
