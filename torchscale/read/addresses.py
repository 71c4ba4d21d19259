"""Local copies of what is at addresses."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from torchscale.observer import Observer
from torchscale.store.storage.fetch import Parts, fetch
from torchscale.util.addresses import Address


def fetch_all(wanted: Sequence[tuple[Address, Path, bool]], observer: Observer) -> None:
    """Copy each address to its path (writes).

    Args:
        wanted: Address, path, and whether only what figures are made of is needed.
        observer: Is told how far it is.

    Raises:
        UsageError: there is no such bucket, object or folder, or a library is missing.
        StoreError: it is larger than a bound.
        MachineError: there is no room for it.
        FileSystemError: the store denies access or does not answer.
    """
    for address, path, figures_alone in wanted:
        fetch(address, path, Parts.FIGURES if figures_alone else Parts.ALL, observer)
