"""From a file and overrides to an :class:`Experiment`, or one line per mistake."""

from __future__ import annotations

import copy
import pathlib
from collections.abc import Iterator, Sequence

from pydantic import ValidationError

from torchscale.errors import ConfigError
from torchscale.schema import strict_yaml
from torchscale.schema.config import Experiment
from torchscale.schema.explain import explain, shown
from torchscale.schema.overrides import Override, apply_overrides, parse_overrides
from torchscale.schema.strict_yaml import Data, Document, Path, format_path, one_line

_AFTER_THE_FILE = 10**9
_MAX_PROBLEMS = 50


def load_experiment(
    path: pathlib.Path | None, overrides: Sequence[str] = (), known_options: Sequence[str] = ()
) -> Experiment:
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
        raise ConfigError(one_line(f"{document.name} {what}; expected keys such as models, batch_sizes, gpu_counts"))
    data = copy.deepcopy(document.data)
    apply_overrides(data, parsed)
    experiment, problems = _validate(data)
    told = [(line, _at(document.name, line, path, text)) for line, path, text in document.problems]
    told += [_locate(path, text, document, parsed) for path, text in problems]
    if told or experiment is None:
        raise ConfigError(_listed(sorted(told, key=lambda item: item[0])))
    return experiment


def read_document(path: pathlib.Path) -> Document:
    """Read a config file.

    Raises:
        ConfigError: it cannot be read, is too large, is not UTF-8, or is not strict YAML or JSON.
    """
    try:
        with path.open("rb") as file:
            content = file.read(strict_yaml.MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigError(one_line(f"{path}: {reason}"), hint="write a config with `torchscale init`") from error
    if len(content) > strict_yaml.MAX_BYTES:
        raise ConfigError(one_line(f"{path}: larger than {strict_yaml.MAX_BYTES:,} bytes; this is no config"))
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigError(one_line(f"{path}:{line}: not UTF-8 text (byte {error.start})")) from error
    reader = strict_yaml.read_json if path.suffix.lower() == ".json" else strict_yaml.read_yaml
    return reader(text, str(path))


def _validate(data: Data) -> tuple[Experiment | None, list[tuple[Path, str]]]:
    """The experiment, or the path and sentence of every problem."""
    broken = [(path, "holds half of a surrogate pair, which is no text") for path in _broken_text(data)]
    if broken:  # pydantic reads no such text at all
        return None, broken
    try:
        return Experiment.model_validate(data), []
    except ValidationError as error:
        return None, explain(error, data)


def _locate(where: Path, text: str, document: Document, overrides: Sequence[Override]) -> tuple[int, str]:
    """Line for sorting, and the sentence behind the override or the file and line that it is about."""
    key = format_path(where)
    for number, override in reversed(list(enumerate(overrides))):  # the last of one key is the one that counts
        made = where not in document.lines and override.path[: len(where)] == where
        if where and (made or where[: len(override.path)] == override.path):
            inside = "" if where == override.path else f"{key}: "
            return _AFTER_THE_FILE + number, one_line(f"{override.text}: {inside}{text}")
    line = next((document.lines[where[:end]] for end in range(len(where), 0, -1) if where[:end] in document.lines), 0)
    return line, _at(document.name, line, where, text)


def _at(name: str, line: int, where: Path, text: str) -> str:
    place = f"{name}:{line}" if line else name
    return one_line(f"{place}: {format_path(where)}: {text}" if where else f"{place}: {text}")


def _listed(told: Sequence[tuple[int, str]]) -> str:
    lines = [text for _, text in told[:_MAX_PROBLEMS]]
    more = len(told) - len(lines)
    return "\n".join([*lines, *([f"… and {more:,} more"] if more else [])])


def _broken_text(data: Data, path: Path = ()) -> Iterator[Path]:
    """Where text cannot be written to a file or an environment."""
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in items:
        if any("\ud800" <= char <= "\udfff" for text in (key, value) if isinstance(text, str) for char in text):
            yield (*path, key)
        yield from _broken_text(value, (*path, key))
