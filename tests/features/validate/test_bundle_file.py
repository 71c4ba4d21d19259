"""Archives with digests: what was changed is found, and what is no bundle is one error."""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from torchscale.errors import UsageError
from torchscale.features.validate.bundle_file import (
    MANIFEST,
    changed_files,
    manifest_of,
    read_archive,
    read_manifest,
    write_archive,
)
from torchscale.features.validate.bundle_schema import BundleManifest

FILES = {"validation.json": b'{"fit": true}', "report.html": b"<p>fit</p>"}


def bundle() -> dict[str, bytes]:
    manifest = manifest_of(FILES, tool_version="1", hostname="n1", created_at="2026-01-01")
    return {**FILES, MANIFEST: manifest.model_dump_json().encode()}


def test_what_was_written_is_read_and_equal(tmp_path: Path) -> None:
    write_archive(tmp_path / "a.zip", bundle())
    files = read_archive(tmp_path / "a.zip").files
    assert files == bundle()
    assert changed_files(files, read_manifest(files)) == []


def test_equal_files_give_equal_archives(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_archive(tmp_path / name, bundle())
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@pytest.mark.parametrize("name", list(FILES))
def test_every_changed_byte_is_found(name: str) -> None:
    files = bundle()
    manifest = read_manifest(files)
    for place in range(len(FILES[name])):
        changed = bytearray(FILES[name])
        changed[place] ^= 1
        assert changed_files({**files, name: bytes(changed)}, manifest) == [f"{name} was changed"]


def test_missing_and_added_files_are_found() -> None:
    files = bundle()
    manifest = read_manifest(files)
    del files["report.html"]
    files["more"] = b""
    assert changed_files(files, manifest) == ["more was added", "report.html is missing"]


def _zip(files: list[tuple[str, bytes]], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, content in files:
            archive.writestr(name, content)
    return buffer.getvalue()


def _damaged() -> bytes:
    data = bytearray(_zip([("a", os.urandom(5000))], zipfile.ZIP_STORED))
    data[2000] ^= 1
    return bytes(data)


def _twice() -> bytes:
    with pytest.warns(UserWarning, match="Duplicate name"):
        return _zip([("a", b""), ("a", b"x")])


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "no bundle"),
        (b"not an archive", "no bundle"),
        (_damaged(), "Bad CRC"),
        (_zip([(str(number), b"") for number in range(33)]), "33 files"),
        (_zip([("bomb", bytes(70 << 20))]), "more than 64 MiB"),
        (_zip([("a", b"x")], zipfile.ZIP_LZMA), "another way"),
        (_zip([("a", b"x")])[:-30], "no bundle"),
    ],
    ids=["empty", "text", "damaged", "many", "bomb", "lzma", "cut"],
)
def test_what_is_no_bundle_is_one_error(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "a.zip").write_bytes(content)
    with pytest.raises(UsageError, match=said):
        read_archive(tmp_path / "a.zip")


def test_a_name_that_is_in_it_twice_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_bytes(_twice())
    with pytest.raises(UsageError, match="in it twice"):
        read_archive(tmp_path / "a.zip")


def test_pipes_and_missing_files_are_errors(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name in ("pipe", "missing", "."):
        with pytest.raises(UsageError, match="cannot read"):
            read_archive(tmp_path / name)


@pytest.mark.parametrize("manifest", [None, b"", b"{}", b'{"kind": "other"}', b"\xff"])
def test_an_archive_without_a_manifest_is_an_error(manifest: bytes | None) -> None:
    files = {} if manifest is None else {MANIFEST: manifest}
    with pytest.raises(UsageError, match="can be read"):
        read_manifest(files)


def test_a_manifest_says_where_and_when() -> None:
    manifest = read_manifest(bundle())
    assert isinstance(manifest, BundleManifest)
    assert (manifest.hostname, manifest.created_at) == ("n1", "2026-01-01")
    assert [file.size_bytes for file in manifest.files] == [10, 13]


def test_an_archive_is_known_by_every_byte(tmp_path: Path) -> None:
    """Each byte of it changed by itself: where it still opens, it is not as it was written."""
    write_archive(tmp_path / "a.zip", bundle())
    whole = (tmp_path / "a.zip").read_bytes()
    assert read_archive(tmp_path / "a.zip").is_as_written
    opened = 0
    for place in range(len(whole)):
        changed = bytearray(whole)
        changed[place] ^= 1
        (tmp_path / "b.zip").write_bytes(changed)
        try:
            found = read_archive(tmp_path / "b.zip")
        except UsageError:
            continue
        opened += 1
        assert found.is_as_written is False, place
    assert opened > 10, "times, versions and attributes"


def _commented(data: bytes) -> bytes:
    buffer = io.BytesIO(data)
    with zipfile.ZipFile(buffer, "a") as archive:
        archive.comment = b"as it was written"
    return buffer.getvalue()


def _in_another_order(data: bytes) -> bytes:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return _zip(
            [(name, archive.read(name)) for name in reversed(archive.namelist())],
            zipfile.ZIP_STORED,
        )


@pytest.mark.parametrize(
    "change",
    [
        lambda data: b"#!/bin/sh\n" + data,
        lambda data: data + b"\0",
        _commented,
        _in_another_order,
    ],
    ids=["before", "after", "comment", "order"],
)
def test_bytes_around_the_files_are_found(tmp_path: Path, change: Callable[[bytes], bytes]) -> None:
    write_archive(tmp_path / "a.zip", bundle())
    data = change((tmp_path / "a.zip").read_bytes())
    (tmp_path / "a.zip").write_bytes(data)
    found = read_archive(tmp_path / "a.zip")
    assert found.files == bundle()
    assert found.is_as_written is False


def test_of_a_compressed_archive_the_bytes_around_its_files_are_not_known(tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_bytes(_zip(list(bundle().items())))
    found = read_archive(tmp_path / "a.zip")
    assert (found.files, found.is_as_written) == (bundle(), None)
