"""Keys of objects as names of files. A key is any text: whoever can write to a bucket may have
chosen it to lead out of the folder, or to be two files at once."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import PurePosixPath

_LONGEST_NAME, _LONGEST_PATH = 255, 1024
"""Bytes: of a name on all file systems of Linux, and of a key in S3."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def relative_key(root: str, key: str) -> str | None:
    """The part of a key behind its folder; ``None`` for the folder itself, and for what stands for
    a folder within it."""
    if key.rstrip("/") == root or key.endswith("/"):
        return None
    if not key.startswith(f"{root}/"):
        return key  # no name of a file there: refused below
    return key[len(root) + 1 :]


def is_safe(name: str) -> bool:
    """Whether a relative key can be a path of a file below a folder: no part is empty or leads
    elsewhere, and a terminal shows all of it."""
    if _CONTROL.search(name) or "\\" in name:
        return False
    try:
        sizes = [len(os.fsencode(part)) for part in name.split("/")]
    except UnicodeEncodeError:
        return False
    parts = name.split("/")
    too_long = max(sizes) > _LONGEST_NAME or sum(sizes) + len(sizes) > _LONGEST_PATH
    return not too_long and all(part not in ("", ".", "..") for part in parts)


def without_collisions(names: Iterable[str]) -> tuple[list[str], list[str]]:
    """The names that can be files together, and those that are a folder of others too."""
    all_names = list(names)
    folders = {str(above) for name in all_names for above in PurePosixPath(name).parents}
    return (
        [name for name in all_names if name not in folders],
        [name for name in all_names if name in folders],
    )
