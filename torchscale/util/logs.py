"""Logs of other programs, as they are kept: of bounded size and without secrets."""

from __future__ import annotations

from pathlib import Path

from torchscale.errors import OutputError
from torchscale.util.files import atomic_write_bytes
from torchscale.util.redaction import redact_text, secret_values

KEPT_BYTES = 16 * 2**20
"""Of a log: the first half of it and the last. An NCCL_DEBUG=INFO log of an hour on eight ranks is smaller."""
_CHUNK_BYTES = 2**20
_END = b"\n"


def keep_log(source: Path, target: Path, *, start: int = 0) -> int:
    """Make ``target`` the log that ``source`` holds from byte ``start`` on: at most :data:`KEPT_BYTES`, with a line
    that says how many bytes are left out, and without secrets. They may be one file.

    Returns:
        The size of ``source``: the ``start`` of what is printed later.

    Raises:
        OutputError: it cannot be read or written.
    """
    try:
        content, size = _bounded(source, start)
    except OSError as error:
        raise OutputError(f"cannot read {source}: {error.strerror or error}") from error
    secrets = secret_values()
    cleaned = b"".join(_clean(chunk, secrets) for chunk in _chunks(content))
    if source != target or len(content) != size or cleaned != content:
        atomic_write_bytes(target, cleaned)
    return size


def clean_logs(directory: Path) -> None:
    """:func:`keep_log` for every ``*.log`` in and below a directory, in place.

    Raises:
        OutputError: one cannot be written.
    """
    for path in sorted(directory.rglob("*.log")):
        if path.is_file() and not path.is_symlink():
            keep_log(path, path)


def _bounded(path: Path, start: int) -> tuple[bytes, int]:
    """What is kept of a file from ``start`` on, and its size."""
    half = KEPT_BYTES // 2
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(start)
        if size - start <= KEPT_BYTES:
            return file.read(KEPT_BYTES), size
        head = file.read(half)
        file.seek(size - half)
        note = f"\n[torchscale: {size - start - 2 * half:,} bytes left out here]\n"
        return head + note.encode() + file.read(half), size


def _chunks(content: bytes) -> list[bytes]:
    """Pieces that end at line breaks, so that no secret is cut in two unless a line is longer than a piece."""
    pieces = []
    while len(content) > _CHUNK_BYTES:
        cut = content.rfind(_END, 0, _CHUNK_BYTES) + 1 or _CHUNK_BYTES
        pieces.append(content[:cut])
        content = content[cut:]
    return [*pieces, content]


def _clean(chunk: bytes, secrets: tuple[str, ...]) -> bytes:
    # Bytes that are no UTF-8 stay as they are.
    return redact_text(chunk.decode("utf-8", "surrogateescape"), secrets).encode("utf-8", "surrogateescape")
