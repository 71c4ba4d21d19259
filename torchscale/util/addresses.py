"""Addresses of object stores (``s3://bucket/runs/demo``), as they stand in place of a local path."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from torchscale.errors import UsageError
from torchscale.util.text import escape_json

LIBRARIES: Mapping[str, str] = MappingProxyType(
    {"s3": "s3fs", "gs": "gcsfs", "az": "adlfs", "abfs": "adlfs", "abfss": "adlfs", "memory": ""}
)
"""Scheme → the library that fsspec needs for it; none for what is kept in this process."""
_FORM = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)
_UNFIT = re.compile(r"[\x00-\x20\x7f-\x9f\"<>\\]")
"""Characters that would have to be escaped wherever an address is shown: in JSON and HTML."""
_LOCAL = "file"
_AZURE = ("abfs", "abfss")
"""Their form has an @ between container and account: ``abfs://container@account.dfs…``."""

_copies: dict[str, str] = {}


@dataclass(frozen=True)
class Address:
    """An object or a folder of an object store.

    Attributes:
        text: As typed, without slashes at its end.
        scheme: ``s3``, ``gs`` …
    """

    text: str
    scheme: str

    @property
    def name(self) -> str:
        """The last part: the name of the file or folder."""
        return self.text.rpartition("/")[2]

    def __truediv__(self, name: str) -> Address:
        """What has this name within it."""
        return Address(f"{self.text}/{name}", self.scheme)


def looks_like_address(text: str) -> bool:
    """Whether a text has the form of one, of whatever scheme."""
    return _FORM.fullmatch(text) is not None


def parse_address(text: str) -> Address | Path:
    """The address that a text is; of ``file://`` and of a text without a scheme the local path.

    Raises:
        UsageError: its scheme is unknown, it names no bucket, or it has credentials in it.
    """
    found = _FORM.fullmatch(text)
    if found is None:
        return Path(text)
    scheme, rest = found[1].lower(), found[2].rstrip("/")
    if scheme == _LOCAL:
        return Path(found[2])
    account = rest.partition("/")[0].rpartition("@")[0]
    if "?" in rest or (account and (scheme not in _AZURE or ":" in account)):
        raise UsageError(
            f"{scheme}://…: an address has no credentials, keys or tokens in it",
            hint="set them in the environment (AWS_PROFILE, AWS_ACCESS_KEY_ID, "
            "GOOGLE_APPLICATION_CREDENTIALS, AZURE_STORAGE_CONNECTION_STRING …): "
            "torchscale docs storage",
        )
    from torchscale.util.redaction import redact_text  # noqa: PLC0415 - compiles many patterns

    shown = escape_json(redact_text(text))
    if scheme not in LIBRARIES:
        known = ", ".join(f"{one}://" for one in (*LIBRARIES, _LOCAL))
        raise UsageError(f"{shown}: unknown scheme {scheme}; expected one of {known}")
    name = rest.rpartition("/")[2]
    if not rest or rest.startswith("/") or name in (".", "..") or _UNFIT.search(rest):
        raise UsageError(
            f"{shown}: expected a bucket and a path without spaces and quotes",
            hint=f"write {scheme}://bucket/path",
        )
    return Address(f"{scheme}://{rest}", scheme)


def storage_address(text: str) -> Address:
    """The address that results are copied to.

    Raises:
        UsageError: it is a local path, or as of :func:`parse_address`.
    """
    place = parse_address(text)
    if isinstance(place, Path):
        raise UsageError(
            f"{text} is a local path; expected an address such as s3://bucket/runs",
            hint="results are in a local folder anyway: --output-dir",
        )
    return place


def refuse_address(option: str, text: str) -> None:
    """Check that what is written to is a local path.

    Raises:
        UsageError: it is an address.
    """
    if not looks_like_address(text) or isinstance(parse_address(text), Path):
        return
    raise UsageError(
        f"{option} {text}: only a local path can be here".lstrip(),
        hint="results are copied to an address by --copy-to, or later by torchscale export --to "
        "storage; what is read from one: torchscale docs storage",
    )


def note_copy(path: Path, address: Address) -> None:
    """From now on :func:`with_addresses` shows ``address`` in place of ``path``, where a copy of it
    is."""
    _copies[str(path)] = address.text


def is_copy(path: Path) -> bool:
    """Whether the path is a copy of an address, or in one."""
    return any(Path(copy) in (path, *path.parents) for copy in _copies)


def with_addresses(text: str) -> str:
    """``text`` with the addresses of copies in place of their paths."""
    for path, address in _copies.items():
        text = text.replace(path, address)
    return text
