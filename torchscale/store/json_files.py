"""The JSON files of a run folder: read in full and validated, or refused with a reason."""

from __future__ import annotations

import errno
import json
import re
from collections import Counter
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from torchscale.errors import FILE_SYSTEM_HINT, FileSystemError, StoreError
from torchscale.schema.base import SCHEMA_VERSION
from torchscale.util.files import read_bounded
from torchscale.util.redaction import redact_model

MAX_FILE_BYTES = 64 * 2**20
"""Maximum size of a JSON file: a plan of 20,000 cells, or a record of 1,000 ranks, has half of
it."""
_MAX_LINES_BYTES = 256 * 2**20
_MAX_MESSAGE = 300
_MAX_BITS = 128
"""Maximum number of bits of a whole number in a message: 39 digits say that it is too large."""
_WRITERS = {1: "torchscale 0.1.0"}
"""Programs that wrote each version, by schema version, for the message about a file of an earlier
one."""

_OF_THE_FILE = (
    *(errno.EINVAL, errno.EFBIG, errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP),
    *(errno.ENXIO, errno.ENAMETOOLONG),
)
"""Errors of a file that is missing, too large or no file; all others are of its file system."""

M = TypeVar("M", bound=BaseModel)


class DamagedFileError(Exception):
    """A file of a run folder that cannot be read; the text says which and why."""

    hint = "restore the file, or measure again into another directory"
    refusal: type[StoreError] = StoreError

    def refused(self) -> StoreError:
        """The error of a command that cannot go on without the file."""
        return self.refusal(str(self), hint=self.hint)


class UnreadableFileError(DamagedFileError):
    """A file that may be whole, but whose file system does not give it."""

    hint = FILE_SYSTEM_HINT
    refusal = FileSystemError


class OtherVersionError(DamagedFileError):
    """A file that is whole, in the format of another version."""

    hint = "read it with the torchscale that wrote it, or measure again into another directory"


def read_model(root: Path, path: Path, model: type[M], *, keys_once: bool = False) -> M:
    """Read and validate one JSON file that lies inside ``root``; secrets in its texts are redacted,
    whoever wrote it.

    Args:
        root: The directory that it must be in.
        path: The file.
        model: Schema of the file.
        keys_once: Refuse an object that has a key twice, of which JSON readers take the last. It
            reads the file a second time: for files that people edit and merge.

    Raises:
        DamagedFileError: it leads outside, is too large, is not JSON or breaks the schema.
        UnreadableFileError: its file system fails.
        OtherVersionError: it is of another version.
    """

    def name() -> Path:
        return path.relative_to(root.parent)

    def damaged(reason: str) -> DamagedFileError:
        return DamagedFileError(f"{name()}: {reason}")

    try:
        text = read_bounded(path, MAX_FILE_BYTES, within=root)
    except OSError as error:
        reason = f"{name()}: {error.strerror or error}"
        if error.errno in _OF_THE_FILE:
            raise DamagedFileError(reason) from error
        raise UnreadableFileError(reason) from error
    try:
        content = model.model_validate_json(text)
    except ValidationError as error:
        refused = _refused_version(_version_in(text))
        if refused is not None:
            raise OtherVersionError(f"{name()}: {refused}") from error
        raise damaged(first_mistake(error)) from error
    # The form may fit where the meaning does not.
    refused = _refused_version(getattr(content, "schema_version", SCHEMA_VERSION))
    if refused is not None:
        raise OtherVersionError(f"{name()}: {refused}")
    repeated = _repeated_key(text) if keys_once else None
    if repeated is not None:
        raise damaged(f"the key {repeated[:100]!r} is there twice in one object; expected it once")
    return redact_model(content)


def read_lines(root: Path, path: Path, model: type[M]) -> tuple[M, ...]:
    """Read a file of one JSON object per line that lies inside ``root``.

    Lines that cannot be read are left out; there are none in a file that is missing, leads outside
    or is too large.
    """
    try:
        lines = read_bounded(path, _MAX_LINES_BYTES, within=root).splitlines()
    except OSError:
        return ()
    contents = []
    for line in lines:
        try:
            contents.append(model.model_validate_json(line))
        except ValidationError:
            continue
    return tuple(contents)


def _repeated_key(text: bytes) -> str | None:
    """A key that an object of this JSON has twice; ``None`` where none has."""
    repeated: list[str] = []

    def check(pairs: list[tuple[str, object]]) -> None:
        keys = {key for key, _ in pairs}
        if len(keys) < len(pairs):
            repeated.extend(key for key, count in Counter(k for k, _ in pairs).items() if count > 1)

    json.loads(text, object_pairs_hook=check)
    return next(iter(repeated), None)


def _refused_version(version: int | None) -> str | None:
    """Why files of this schema version are not read; ``None`` for those that are."""
    if version is None or version == SCHEMA_VERSION:
        return None
    if version < SCHEMA_VERSION:
        writer = _WRITERS.get(version, "an older torchscale")
        return f"written by {writer} (format {version}); this version reads format {SCHEMA_VERSION}"
    return f"schema version {version}; this torchscale reads up to {SCHEMA_VERSION}"


def _version_in(text: bytes) -> int | None:
    """The schema version that a file of an unknown form says it has."""
    version = re.search(rb'"schema_version"\s*:\s*(\d{1,9})', text[:4096])
    if version is None:
        return None
    return int(version[1])


def first_mistake(error: ValidationError) -> str:
    """The first thing that is wrong with a file, in a line: ``batches.seconds.0: Input should be a
    finite number, not nan``. Only numbers are quoted: a text may be long, or a secret."""
    first = error.errors(include_url=False)[0]
    key = ".".join(str(part) for part in first["loc"])
    message = str(first["msg"])
    for bound in first.get("ctx", {}).values():
        if isinstance(bound, float):  # pydantic writes all digits of 1e30
            message = f"{message.rpartition(' ')[0]} {bound:g}"
    if key:
        message = f"{key}: {message}"
    value = first["input"]
    if isinstance(value, bool):
        message += f", not {json.dumps(value)}"
    elif isinstance(value, float) or (isinstance(value, int) and value.bit_length() <= _MAX_BITS):
        message += f", not {value}"
    if len(message) <= _MAX_MESSAGE:
        return message
    return message[: _MAX_MESSAGE - 1] + "…"
