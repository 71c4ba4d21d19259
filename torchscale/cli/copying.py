"""``--copy-to``: results at an address too."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

from torchscale.cli.output import TERMINAL
from torchscale.cli.parameters import option
from torchscale.door import Slot
from torchscale.errors import ExitCode
from torchscale.observer import Observer
from torchscale.util.addresses import LIBRARIES, storage_address
from torchscale.util.extras import require_storage

_COPIES: Slot[Callable[[Path, str, Observer], bool]] = Slot("copies of results")


def _address(text: str) -> str:
    """Refused before anything is measured, where it cannot be used here."""
    address = storage_address(text)
    require_storage(address.scheme, LIBRARIES[address.scheme])
    return address.text


CopyOption = Annotated[
    str | None,
    option(
        "--copy-to URL",
        "Copy the results there too, under the name of their folder: s3://bucket/runs. Exit code 1 "
        "if that fails; they are safe in the local folder.",
        parser=_address,
    ),
]


def copy_results(folder: Path, place: str | None) -> bool:
    """Copy a folder of results to the address of ``--copy-to``, if it was given and the folder is
    there. Returns whether nothing is left to copy."""
    if place is None or not folder.is_dir():
        return True
    return _COPIES["storage"](folder, place, TERMINAL)


def with_copy(code: int, folder: Path, place: str | None) -> int:
    """The exit code of a command whose results are copied now: 1 where only that fails."""
    is_copied = copy_results(folder, place)
    if code == ExitCode.OK and not is_copied:
        return ExitCode.FAILED
    return code
