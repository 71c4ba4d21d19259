"""Copies of results at an address: ``--copy-to``, and ``torchscale export --to storage``."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

from torchscale.errors import TorchscaleError, UsageError
from torchscale.features.export.formats.store import Stored
from torchscale.observer import SILENT, Observer
from torchscale.read.folders import chosen_run
from torchscale.store.storage.copy import copy_folder
from torchscale.util.addresses import is_copy, storage_address
from torchscale.util.units import format_bytes
from torchscale.util.words import plural


def copy_to_storage(source: Path | None, place: str | None, observer: Observer = SILENT) -> Stored:
    """Copy a folder of results to an address, under its own name; what is there is not copied
    again.

    Raises:
        UsageError: there is no such folder or bucket, or no address is named.
        StoreError: another run is at the address.
        FileSystemError: it denies access or does not answer.
    """
    if place is None:
        raise UsageError("--to storage needs an address", hint="name it: --output s3://bucket/runs")
    address = storage_address(place)
    folder = chosen_run(source, observer)
    if is_copy(folder):
        raise UsageError("the results are at an address already; expected a local folder")
    if not folder.is_dir():
        raise UsageError(f"--to storage takes a folder of results, not the file {folder}")
    copied = copy_folder(folder, address, observer)
    if copied is None:  # nobody cancels it
        return Stored(address.text, ())
    return Stored(copied.address, (f"{plural(copied.files, 'file')}, {format_bytes(copied.size)}",))


def copy_results(
    folder: Path, place: str, observer: Observer, cancelled: Callable[[], bool] = lambda: False
) -> bool:
    """Copy results at the end of a command, which are safe in their folder. Returns whether all of
    them are at the address; a failure is a warning, with the command that copies them later."""
    try:
        copied = copy_folder(folder, storage_address(place), observer, cancelled)
    except TorchscaleError as error:
        problem = "; ".join(filter(None, (error.message, error.hint)))
        observer.note(f"warning: not copied: {problem}")
    else:
        if copied is not None:
            observer.note(f"Copied to {copied.address}")
            return True
        observer.note("warning: not copied: interrupted")
    observer.note(f"The results are in {folder}. To copy them: {copy_command(folder, place)}")
    return False


def copy_command(folder: Path, place: str) -> str:
    """The command that copies results later."""
    words = ["torchscale", "export", "--to", "storage", str(folder), "-o", place]
    return shlex.join(words)
