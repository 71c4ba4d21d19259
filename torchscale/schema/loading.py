"""From a file and overrides to an :class:`Experiment`, or one line per mistake."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from torchscale.errors import ConfigError
from torchscale.schema import strict_yaml
from torchscale.schema.config import Experiment
from torchscale.schema.explain import explain, shown
from torchscale.schema.overrides import Override, apply_overrides, parse_overrides
from torchscale.schema.strict_yaml import Document, format_path


def load_experiment(path: Path | None, overrides: Sequence[str] = (), known_options: Sequence[str] = ()) -> Experiment:
    """The experiment in a file (YAML, or JSON by its ending) after overrides.

    Args:
        path: ``None`` for an experiment made of overrides alone.
        overrides: As on the command line, ``--key.sub=value``.
        known_options: Real options of the command, for suggestions.

    Raises:
        ConfigError: a line per mistake: file and line (or the override), key, value, what was expected.
        UsageError: an override is none.
    """
    parsed = parse_overrides(overrides, known_options)
    document = Document("command line", {}) if path is None else read_document(path)
    if not isinstance(document.data, dict):
        what = "is empty" if document.data is None else f"holds {shown(document.data)}"
        raise ConfigError(f"{document.name} {what}; expected keys such as models, batch_sizes, gpu_counts")
    data = copy.deepcopy(document.data)
    apply_overrides(data, parsed)
    try:
        return Experiment.model_validate(data)
    except ValidationError as error:
        lines = [_locate(where, text, document, parsed) for where, text in explain(error, data)]
        raise ConfigError("\n".join(text for _, text in sorted(lines))) from None


def read_document(path: Path) -> Document:
    """Read a config file.

    Raises:
        ConfigError: it cannot be read, is too large, is not UTF-8, or is not strict YAML or JSON.
    """
    try:
        if path.is_file() and path.stat().st_size > strict_yaml.MAX_BYTES:
            raise ConfigError(f"{path}: larger than {strict_yaml.MAX_BYTES:,} bytes; this is no config")
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 text (byte {error.start})") from error
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigError(f"{path}: {reason}", hint="write a config with `torchscale init`") from error
    reader = strict_yaml.read_json if path.suffix == ".json" else strict_yaml.read_yaml
    return reader(text, str(path))


def _locate(where: strict_yaml.Path, text: str, document: Document, overrides: Sequence[Override]) -> tuple[int, str]:
    """Line for sorting, and the sentence behind the override or the file and line that it is about."""
    key = format_path(where)
    for number, override in enumerate(overrides):
        if where[: len(override.path)] == override.path:
            inside = f"{key}: " if where != override.path else ""
            return 10**9 + number, f"{override.text}: {inside}{text}"
    line = next((document.lines[where[:end]] for end in range(len(where), 0, -1) if where[:end] in document.lines), 0)
    place = f"{document.name}:{line}" if line else document.name
    return line, f"{place}: {key}: {text}" if key else f"{place}: {text}"
