"""A failing file described without anything of what it holds."""

from __future__ import annotations

import re
from pathlib import Path

from torchscale.util.redaction import redact_text

SQLITE = "SQLite"
_KINDS = (
    (b"\x1f\x8b", "gzip"),
    (b"PK\x03\x04", "zip"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"BZh", "bzip2"),
    (b"\xfd7zXZ", "xz"),
    (b"SQLite format 3\0", SQLITE),
    (b"\xef\xbb\xbf", "UTF-8 with a byte order mark"),
    (b"\xff\xfe", "UTF-16"),
    (b"\xfe\xff", "UTF-16"),
    (b"\x80", "pickle"),
)
_OF_TEXT = {b"{": "a JSON object", b"[": "a JSON list", b"<": "HTML or XML"}
_QUOTED = re.compile(r"'[^'\n]*'|\"[^\"\n]*\"")


def kind_of(beginning: bytes) -> str:
    """What a file that begins like this may be."""
    if not beginning:
        return "nothing"
    for magic, kind in _KINDS:
        if beginning.startswith(magic):
            return kind
    kind = _OF_TEXT.get(beginning.lstrip()[:1], "text")
    if b"\0" in beginning:
        return "bytes that are no text"
    return kind


def without_content(message: str, path: Path) -> str:
    """An error's message without the name of the file, what it quotes, and secrets."""
    for name in (str(path.resolve()), str(path), path.name):
        message = message.replace(name, "FILE")
    return redact_text(_QUOTED.sub("'…'", message))
