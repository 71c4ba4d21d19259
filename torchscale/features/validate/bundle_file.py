"""An archive of small files with a manifest of their digests: written once, and read with
suspicion."""

from __future__ import annotations

import hashlib
import io
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from torchscale.errors import UsageError
from torchscale.features.validate.bundle_schema import BundledFile, BundleManifest
from torchscale.util.files import atomic_write_bytes, read_bounded

MANIFEST, SIGNATURE = "manifest.json", "manifest.json.sig"
_MOST_BYTES = 64 << 20
"""Of the archive and of all of its files: a node of sixteen GPUs makes less than 1 MB."""
_MOST_FILES = 32
_DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    NotImplementedError,
    RuntimeError,
    ValueError,
    EOFError,
)
"""What reading a damaged, encrypted or foreign archive raises."""
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_STAMP = (1980, 1, 1, 0, 0, 0)
"""The first time that an archive can hold: the manifest has the right one."""


@dataclass(frozen=True)
class Archive:
    """An archive that was read.

    Attributes:
        files: Its files by name.
        is_as_written: Whether every byte of it is, those outside its files included; ``None`` for
            one that is compressed, as of earlier versions: each zlib writes other bytes.
    """

    files: dict[str, bytes]
    is_as_written: bool | None


def manifest_of(
    files: Mapping[str, bytes], *, tool_version: str, hostname: str, created_at: str
) -> BundleManifest:
    """The manifest of these files, by name."""
    return BundleManifest(
        tool_version=tool_version,
        hostname=hostname,
        created_at=created_at,
        files=tuple(_described(name, content) for name, content in sorted(files.items())),
    )


def write_archive(path: Path, files: Mapping[str, bytes]) -> None:
    """Write the archive, atomically.

    Raises:
        OutputError: it cannot be written.
    """
    atomic_write_bytes(path, _packed(files))


def read_archive(path: Path) -> Archive:
    """Read an archive; nothing is written anywhere.

    Raises:
        UsageError: it cannot be read, is no archive, or holds more than a bundle may.
    """
    try:
        data = read_bounded(path, _MOST_BYTES)
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            files, methods = _contents(archive), {info.compress_type for info in archive.infolist()}
        if zipfile.ZIP_DEFLATED in methods:
            return Archive(files, is_as_written=None)
        return Archive(files, is_as_written=data == _packed(files))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from error
    except _DAMAGE as error:
        raise UsageError(
            f"{path} is no bundle of torchscale: {error}",
            hint="give the file that `torchscale validate --bundle FILE` wrote",
        ) from error


def read_manifest(files: Mapping[str, bytes]) -> BundleManifest:
    """The manifest of an archive.

    Raises:
        UsageError: it has none, or one that cannot be read.
    """
    try:
        return BundleManifest.model_validate_json(files[MANIFEST])
    except (KeyError, ValidationError) as error:
        raise UsageError(
            f"the archive has no {MANIFEST} that can be read",
            hint="give the file that `torchscale validate --bundle FILE` wrote",
        ) from error


def changed_files(files: Mapping[str, bytes], manifest: BundleManifest) -> list[str]:
    """What differs from the manifest, a sentence each."""
    wanted = {file.name: file for file in manifest.files}
    found = {name: content for name, content in files.items() if name not in (MANIFEST, SIGNATURE)}
    problems = [f"{name} is missing" for name in wanted.keys() - found.keys()]
    problems += [f"{name} was added" for name in found.keys() - wanted.keys()]
    problems += [
        f"{name} was changed"
        for name in wanted.keys() & found.keys()
        if _described(name, found[name]) != wanted[name]
    ]
    return sorted(problems)


def _packed(files: Mapping[str, bytes]) -> bytes:
    """The one archive of these files: by name, not compressed, all attributes the same."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, content in sorted(files.items()):
            info = zipfile.ZipInfo(name, _STAMP)
            info.create_system = 3  # Unix, also where another system checks it
            archive.writestr(info, content)
    return buffer.getvalue()


def _described(name: str, content: bytes) -> BundledFile:
    digest = hashlib.sha256(content).hexdigest()
    return BundledFile(name=name, sha256=digest, size_bytes=len(content))


def _contents(archive: zipfile.ZipFile) -> dict[str, bytes]:
    """All files, read up to the bound: what the archive says of their sizes may be a lie.

    Raises:
        ValueError: too many files, too many bytes, or a name twice.
    """
    infos = archive.infolist()
    if len(infos) > _MOST_FILES:
        raise ValueError(f"{len(infos)} files, at most {_MOST_FILES} are expected")
    contents: dict[str, bytes] = {}
    left = _MOST_BYTES
    for info in infos:
        if info.filename in contents:
            raise ValueError(f"{info.filename[:100]!r} is in it twice")
        if info.compress_type not in _METHODS:
            raise ValueError(f"{info.filename[:100]!r} is compressed in another way")
        with archive.open(info) as file:
            content = file.read(left + 1)
        left -= len(content)
        if left < 0:
            raise ValueError(f"more than {_MOST_BYTES >> 20} MiB")
        contents[info.filename] = content
    return contents
