"""Loads a config file with typed values and overrides as an :class:`Experiment`, or gives one line
per mistake."""

from __future__ import annotations

import copy
import errno
import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence

from pydantic import ValidationError

from torchscale.config import yaml_reader as strict_yaml
from torchscale.config.experiment import Experiment
from torchscale.config.messages import explain, shown
from torchscale.config.overrides import Override, apply_overrides, override_of, parse_overrides
from torchscale.config.plain_data import plain_data
from torchscale.config.secrets import hide_secrets
from torchscale.config.values import ConfigValue
from torchscale.config.yaml_reader import ConfigDocument, Data, KeyPath, format_path
from torchscale.errors import ConfigError
from torchscale.util.files import similar_path
from torchscale.util.text import one_line

_AFTER_THE_FILE = 10**9
"""Sorts overrides behind every line of a file, which has at most a million bytes."""
_MAX_PROBLEMS = 50
"""A screen of messages; more of them usually have one cause."""


def load_experiment(
    path: pathlib.Path | None,
    overrides: Sequence[str] = (),
    known_options: Sequence[str] = (),
    values: Sequence[ConfigValue] = (),
    *,
    base: Mapping[str, object] | None = None,
) -> Experiment:
    """The experiment in a file (YAML, or JSON by its ending), changed by typed values and then by
    overrides.

    Args:
        path: ``None`` for an experiment made of ``base``, values and overrides alone.
        base: Config keys where there is no file.
        overrides: Overrides as on the command line, ``--key.sub=value``; they win over ``values``.
        known_options: Options of the command, for suggestions.
        values: Typed values of keys, such as the command's own options give; never parsed as YAML.

    Raises:
        ConfigError: a line per mistake: file and line (or the option or override), key, value, what
            was expected.
        UsageError: an argument is not an override.
    """
    parsed = parse_overrides(overrides, known_options)
    made = ConfigDocument("command line", plain_data(base or {}, "command line"))
    document = made if path is None else read_document(path)
    return _experiment(document, [*map(override_of, values), *parsed])


def load_experiment_from(
    data: Mapping[str, object], values: Sequence[ConfigValue] = ()
) -> Experiment:
    """The experiment in a mapping of config keys, as a config file would hold them.

    Args:
        data: Sections and keys with typed values.
        values: Typed values of keys, which win over ``data``.

    Raises:
        ConfigError: a line per mistake: ``config``, key, value, what was expected.
    """
    document = ConfigDocument("config", plain_data(data, "config"))
    return _experiment(document, list(map(override_of, values)))


def _experiment(document: ConfigDocument, overrides: Sequence[Override]) -> Experiment:
    if not isinstance(document.data, dict):
        content = "is empty" if document.data is None else f"holds {shown(document.data)}"
        raise ConfigError(
            one_line(
                f"{document.name} {content}; expected keys such as models, batch_sizes, gpu_counts"
            )
        )
    data = copy.deepcopy(document.data)
    apply_overrides(data, overrides)
    experiment, problems = _validate(data)
    messages = [
        (line, _at(document.name, line, path, text)) for line, path, text in document.problems
    ]
    messages += [_locate(path, text, document, overrides) for path, text in problems]
    if messages or experiment is None:
        raise ConfigError(_listed(sorted(messages, key=lambda message: message[0])))
    return hide_secrets(experiment)


def config_problems(data: Mapping[str, Data]) -> list[tuple[KeyPath, str]]:
    """Path and sentence of every mistake in the content of a config; empty where it loads."""
    _, problems = _validate(dict(data))
    return problems


def read_document(path: pathlib.Path) -> ConfigDocument:
    """Read a config file.

    Raises:
        ConfigError: it cannot be read, is too large, is not UTF-8, or is not strict YAML or JSON.
    """
    text = read_config_text(path)
    if path.suffix.lower() == ".json":
        return strict_yaml.read_json(text, str(path))
    return strict_yaml.read_yaml(text, str(path))


def read_config_text(path: pathlib.Path, max_bytes: int = strict_yaml.MAX_BYTES) -> str:
    """The text of a config file.

    Raises:
        ConfigError: it cannot be read, is too large, or is not UTF-8.
    """
    try:
        _refuse_named_pipe(path)
        with path.open("rb") as file:
            content = file.read(max_bytes + 1)
    except (OSError, ValueError) as error:
        reason = str(error)
        if isinstance(error, OSError):
            near = similar_path(path) if isinstance(error, FileNotFoundError) else ""
            reason = f"{error.strerror}{near}"
        raise ConfigError(
            one_line(f"{path}: {reason}"), hint="create a config with `torchscale init`"
        ) from error
    if len(content) > max_bytes:
        raise ConfigError(one_line(f"{path}: larger than {max_bytes:,} bytes; not a config file"))
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigError(
            one_line(f"{path}:{line}: not UTF-8 text (byte {error.start})")
        ) from error


def _refuse_named_pipe(path: pathlib.Path) -> None:
    """A pipe with a name may never have a writer. One of the shell, ``<(command)``, has one.

    Raises:
        OSError: it is one.
    """
    if path.is_fifo() and path.parent.name != "fd":  # /dev/fd/63, /proc/self/fd/63
        raise OSError(errno.EINVAL, "a named pipe; expected a file")


def _validate(data: Data) -> tuple[Experiment | None, list[tuple[KeyPath, str]]]:
    """The experiment, or the path and sentence of every problem."""
    broken = [
        (path, "contains an unpaired surrogate, which is not valid text")
        for path in _broken_text(data)
    ]
    if broken:  # pydantic cannot read such text
        return None, broken
    try:
        return Experiment.model_validate(data), []
    except ValidationError as error:
        return None, explain(error, data)


def _locate(
    where: KeyPath, text: str, document: ConfigDocument, overrides: Sequence[Override]
) -> tuple[int, str]:
    """The line to sort by, and the message with the override or the file and line in front."""
    for number, override in reversed(list(enumerate(overrides))):  # the last override of a key wins
        made = where not in document.lines and override.path[: len(where)] == where
        if where and (made or where[: len(override.path)] == override.path):
            return _AFTER_THE_FILE + number, override.message(where, text)
    line = next(
        (
            document.lines[where[:end]]
            for end in range(len(where), 0, -1)
            if where[:end] in document.lines
        ),
        0,
    )
    return line, _at(document.name, line, where, text)


def _at(name: str, line: int, where: KeyPath, text: str) -> str:
    place = name
    if line:
        place += f":{line}"
    if where:
        place += f": {format_path(where)}"
    return one_line(f"{place}: {text}")


def _listed(messages: Sequence[tuple[int, str]]) -> str:
    lines = [text for _, text in messages[:_MAX_PROBLEMS]]
    more = len(messages) - len(lines)
    if more:
        lines = [*lines, f"… and {more:,} more"]
    return "\n".join(lines)


def _broken_text(data: Data, path: KeyPath = ()) -> Iterator[KeyPath]:
    """Paths of texts and keys that cannot be encoded as UTF-8."""
    items: Iterable[tuple[str | int, Data]] = ()
    if isinstance(data, dict):
        items = data.items()
    elif isinstance(data, list):
        items = enumerate(data)
    for key, value in items:
        if any(
            "\ud800" <= char <= "\udfff"
            for text in (key, value)
            if isinstance(text, str)
            for char in text
        ):
            yield (*path, key)
        yield from _broken_text(value, (*path, key))
