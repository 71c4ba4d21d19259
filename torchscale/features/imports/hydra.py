"""Files that a config of Hydra names in ``defaults`` and that lie beside it, as one config."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from torchscale.config.load import read_config_text
from torchscale.config.yaml_reader import Data, read_yaml
from torchscale.errors import ConfigError

_PLAIN = re.compile(r"[A-Za-z0-9_][\w.-]*")
"""A file of the same directory: no path leads out of it."""
_SELF = "_self_"
_MAX_FILES = 50


def composed(data: Mapping[str, Data], directory: Path) -> dict[str, Data]:
    """The config with the content of the files beside it that its ``defaults`` name; what is not
    there stays in ``defaults``.

    Raises:
        ConfigError: a file beside it cannot be read.
    """
    return _Composer(directory).composed(dict(data))


class _Composer:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._read: set[str] = set()

    def composed(self, data: dict[str, Data]) -> dict[str, Data]:
        entries = data.pop("defaults", None)
        if not isinstance(entries, list):
            return data
        kept: list[Data] = []
        whole: dict[str, Data] = {}
        if _SELF not in entries:
            entries = [*entries, _SELF]
        for entry in entries:
            if entry == _SELF:
                _merge(whole, data)
                continue
            other = self._beside(entry)
            if other is None:
                kept.append(entry)
                continue
            inner = self.composed(other)
            chosen = inner.pop("defaults", [])
            kept += chosen if isinstance(chosen, list) else []
            _merge(whole, inner)
        return {"defaults": kept, **whole}

    def _beside(self, entry: Data) -> dict[str, Data] | None:
        """The content of a file of this directory; ``None`` where there is none."""
        if not isinstance(entry, str) or not _PLAIN.fullmatch(entry) or entry in self._read:
            return None
        path = self._directory / f"{entry.removesuffix('.yaml')}.yaml"
        if not path.is_file() or path.is_symlink():
            return None
        self._read.add(entry)
        if len(self._read) > _MAX_FILES:
            raise ConfigError(f"{path}: defaults name more than {_MAX_FILES} files")
        data = read_yaml(read_config_text(path), str(path), anchors=True).data
        return data if isinstance(data, dict) else None


def _merge(whole: dict[str, Data], other: Mapping[str, Data]) -> None:
    """Set what ``other`` sets; sections are joined, other values replaced."""
    for key, value in other.items():
        known = whole.get(key)
        if isinstance(known, dict) and isinstance(value, dict):
            joined = dict(known)
            _merge(joined, value)
            whole[key] = joined
        else:
            whole[key] = value
