"""Ids that end in a hash of what they name."""

from __future__ import annotations

import hashlib
import json
from typing import Any


def content_hash(content: dict[str, Any]) -> str:
    """Eight hexadecimal digits that change with any part of ``content`` (as JSON)."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:8]


def file_name(text: str) -> str:
    """``text`` as a part of a file name: letters of other scripts go, since bytes and not
    characters bound it."""
    plain = "".join(
        char if char.isascii() and (char.isalnum() or char in "._-") else "-" for char in text
    )
    return plain.strip(".-")[:60]
