"""What of a run folder is at an address already: told by size and time of each file when it was
copied, in ``.copied.json`` of the folder."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass, field
from pathlib import Path

from torchscale.errors import OutputError
from torchscale.util.files import atomic_write_text, read_bounded

STATE = ".copied.json"
_MAX_BYTES = 64 << 20
"""100,000 files have 15 MB of names."""
Stamp = tuple[int, int]
"""Bytes, and nanoseconds of the last change."""


@dataclass
class CopiedFiles:
    """The files of a folder that were copied to one address.

    Attributes:
        stamps: Path within the folder → its stamp when it was copied.
        is_ours: Whether a copy there was begun from this folder.
    """

    folder: Path
    address: str
    stamps: dict[str, Stamp] = field(default_factory=dict)
    is_ours: bool = False

    @classmethod
    def read(cls, folder: Path, address: str) -> CopiedFiles:
        """What the folder tells; nothing where it cannot be read: then all is copied again."""
        found = cls(folder, address)
        with contextlib.suppress(OSError, KeyError, ValueError, TypeError, AttributeError):
            told = _read(folder)[address]
            found.stamps = {name: (int(size), int(time)) for name, (size, time) in told.items()}
            found.is_ours = True
        return found

    def write(self) -> None:
        """Keep them (writes). Where that fails, files are copied once more."""
        content = {}
        with contextlib.suppress(OSError, ValueError, TypeError):
            content = _read(self.folder)
        content[self.address] = self.stamps
        with contextlib.suppress(OutputError):
            atomic_write_text(self.folder / STATE, json.dumps(content), durable=False)


def _read(folder: Path) -> dict[str, dict[str, Stamp]]:
    """
    Raises:
        OSError, ValueError, TypeError: there is none, or it is damaged.
    """
    content = json.loads(read_bounded(folder / STATE, _MAX_BYTES, within=folder))
    if not isinstance(content, dict):
        raise TypeError(f"{STATE}: not a mapping")
    return content
