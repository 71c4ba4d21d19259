"""The files of a run folder that follow from its records, such as ``summary.csv``."""

from __future__ import annotations

from collections.abc import Callable

from torchscale.door import Slot
from torchscale.store.run_folder import RunFolder

_WRITERS: Slot[Callable[[RunFolder], None]] = Slot("derived files")
"""File → what makes it anew. One that cannot be written is left as it is: the records are the
data."""


def write_derived_files(folder: RunFolder) -> None:
    """Make them true of a folder that has other records than before (writes)."""
    for name in _WRITERS:
        _WRITERS[name](folder)
