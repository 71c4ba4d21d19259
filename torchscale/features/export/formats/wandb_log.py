"""The file of an offline run of W&B's: protobuf messages in the log format of LevelDB."""

from __future__ import annotations

import struct
from pathlib import Path

_HEADER_BYTES = 7
"""Of the file: ``:W&B``, a magic number and a version."""
_BLOCK = 32_768
_PART = struct.Struct("<IHB")
"""Head of a part of a record: checksum, length, kind."""
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4


def read_records(path: Path) -> list[bytes]:
    """The records that are whole, up to the end of the file or the first that is not.

    Raises:
        OSError: it cannot be read.
    """
    data = path.read_bytes()
    found: list[bytes] = []
    parts, position = b"", _HEADER_BYTES
    while True:
        left = _BLOCK - position % _BLOCK
        if left < _PART.size:  # no room for the head of a part: the next block
            position += left
        begin = position + _PART.size
        if begin > len(data):
            return found
        _, length, kind = _PART.unpack(data[position:begin])
        position = begin + length
        follows = bool(parts)
        if (
            position > len(data)
            or (kind in (_MIDDLE, _LAST)) != follows
            or not _FULL <= kind <= _LAST
        ):
            return found
        parts += data[begin:position]
        if kind in (_FULL, _LAST):
            found.append(parts)
            parts = b""


def has_ended(path: Path) -> bool:
    """Whether the file holds a run to its end; not while W&B's service still writes it."""
    from wandb.proto.wandb_internal_pb2 import Record  # noqa: PLC0415 - an extra

    try:
        records = read_records(path)
    except FileNotFoundError:
        return False
    return any(Record.FromString(record).WhichOneof("record_type") == "exit" for record in records)
