"""Predictions of memory that are kept between runs, by the content of all that they depend on: to make
them takes seconds of imports, and a user plans the same cells again and again."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from importlib import metadata
from pathlib import Path

from pydantic import ValidationError

from torchscale.errors import OutputError
from torchscale.launch.machine import has_gpu_driver
from torchscale.schema.cells.memory import PredictedMemory
from torchscale.store.locations import cache_directory
from torchscale.util.files import atomic_write_text, read_bounded

_FILE = "predictions.json"
_MOST_KEPT = 1000
"""Predictions, of 0.4 KB each; the oldest go."""
_MOST_BYTES = 1 << 22
"""Far more than so many take: a larger file is not ours."""
_SOURCES = ("worker", "schema", "catalog", "config")
"""Packages of ours that make a cell's model, optimizer and batch, and predict."""
_LIBRARIES = ("torch", "transformers", "torchvision", "timm", "torchao")
"""Those that models and optimizers come from."""


class KeptPredictions:
    """What was predicted before. A file that cannot be read holds nothing, and one that cannot be
    written stays as it is. Of commands that write it at the same time the last one counts."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        """Read them. ``variables``: of the user's, which the launches will have."""
        self._path = None
        with suppress(RuntimeError):  # nobody's home directory is known
            self._path = cache_directory() / _FILE
        self._world = _digest([*_versions(), _sources(), *_devices(), sorted(variables.items())])
        self._entries: dict[str, object] = {}
        if self._path is None:
            return
        with suppress(OSError, ValueError, RecursionError):
            content = json.loads(read_bounded(self._path, _MOST_BYTES))
            self._entries = content if isinstance(content, dict) else {}

    def find(self, content: str) -> PredictedMemory | None:
        """The prediction of a cell with this content as JSON; ``None`` where none is kept."""
        try:
            return PredictedMemory.model_validate(self._entries.get(self._key(content)))
        except ValidationError:
            return None

    def keep(self, predictions: Mapping[str, PredictedMemory]) -> None:
        """Keep new ones, by the content of their cells."""
        for content, predicted in predictions.items():
            self._entries[self._key(content)] = predicted.model_dump(mode="json")
        newest = dict(list(self._entries.items())[-_MOST_KEPT:])
        if self._path is None:
            return
        with suppress(OutputError, OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            atomic_write_text(self._path, json.dumps(newest), durable=False)

    def _key(self, content: str) -> str:
        return _digest([self._world, content])


def _digest(content: object) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def _versions() -> list[str]:
    found = []
    for name in _LIBRARIES:
        with suppress(metadata.PackageNotFoundError):
            found.append(f"{name} {metadata.version(name)}")
    return found


def _devices() -> list[object]:
    """On which depends whether tensors are those of CUDA: as far as it is known without torch."""
    return [has_gpu_driver(), os.environ.get("CUDA_VISIBLE_DEVICES")]


@cache
def _sources() -> str:
    """Changes with every line of ours that a prediction may depend on."""
    digest, home = hashlib.sha256(), Path(__file__).parents[1]
    for package in _SOURCES:
        for path in sorted((home / package).rglob("*.py")):
            digest.update(str(path.relative_to(home)).encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()
