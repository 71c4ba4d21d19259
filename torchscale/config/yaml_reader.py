"""A strict reader of YAML and JSON: data, and the line of every key.

Refused: duplicate keys, tags, anchors and aliases (which are written out where another tool's
config is read), several documents, deep nesting, huge files and numbers. Only ``true`` and
``false`` are booleans, and a number is what looks like one: ``010`` and ``1:30`` stay text, and so
does ``1e3``, as in YAML.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import yaml

from torchscale.config.anchors import written_out
from torchscale.errors import ConfigError
from torchscale.util.text import one_line

Data = None | bool | int | float | str | list["Data"] | dict[str, "Data"]
KeyPath = tuple[str | int, ...]

MAX_BYTES = 1_000_000
"""Real configs have a few kilobytes; a larger file is the wrong one, such as a data file or a
device."""
MAX_VALUES = 20_000
"""Maximum number of values: of keys, list entries and values together, and as many cells fit one
run; reading them takes a second or two."""
MAX_DEPTH = 20
"""Configs nest three or four levels deep; the limit keeps recursion over the data safe."""
MAX_WHOLE = 2**63 - 1
"""The largest integer that every reader of our files can hold (64 bits, signed)."""
_TAG = "tag:yaml.org,2002:"


class _Loader(yaml.SafeLoader):
    """PyYAML's scanner and composer with resolvers of our own."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 - PyYAML's interface


_Loader.add_implicit_resolver(
    _TAG + "null", re.compile(r"^(~|null|Null|NULL|)$"), ["~", "n", "N", ""]
)
_Loader.add_implicit_resolver(
    _TAG + "bool", re.compile(r"^(true|True|TRUE|false|False|FALSE)$"), list("tTfF")
)
_Loader.add_implicit_resolver(
    _TAG + "int", re.compile(r"^[-+]?(0|[1-9][0-9_]*)$"), list("-+0123456789")
)
_Loader.add_implicit_resolver(
    _TAG + "float",
    re.compile(r"^([-+]?[0-9][0-9_]*\.[0-9_]*|\.[0-9]+)([eE][-+][0-9]+)?$"),
    list("-+0123456789."),
)


@dataclass
class ConfigDocument:
    """The content of a config file, with line numbers.

    Attributes:
        name: Name of the file, for messages.
        data: Content of the file.
        lines: Line, from 1, of the key at each path.
        problems: Line, path and message of mistakes found while reading.
    """

    name: str
    data: Data
    lines: dict[KeyPath, int] = field(default_factory=dict)
    problems: list[tuple[int, KeyPath, str]] = field(default_factory=list)


def read_yaml(text: str, name: str, *, anchors: bool = False) -> ConfigDocument:
    """Read one YAML document.

    Args:
        text: The document.
        name: Name of the file, for messages.
        anchors: Whether anchors, aliases and merge keys are written out rather than refused.

    Raises:
        ConfigError: it is not YAML, or not the strict kind; the message names file, line and
            problem.
    """
    try:
        return _read(text, name, anchors=anchors)
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise _refusal(
            f"{name}:{line}",
            f"not valid YAML: character U+{int(error.character):04X} is not allowed",
        ) from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{name}:{mark.line + 1}:{mark.column + 1}" if mark else name
        problem = " ".join(part for part in (error.context, error.problem) if part)
        if "'\\t'" in problem:
            problem = "a tab cannot indent; use spaces"
        raise _refusal(where, f"not valid YAML: {problem}") from error


def read_json(text: str, name: str) -> ConfigDocument:
    """Read a JSON document, as strictly as YAML.

    Raises:
        ConfigError: it is not JSON, a key is listed twice, or it is nested too deeply.
    """
    repeated: list[str] = []

    def unique(pairs: list[tuple[str, Data]]) -> dict[str, Data]:
        mapping = dict(pairs)
        if len(mapping) < len(pairs):
            repeated.extend(key for key, _ in pairs)
        return mapping

    try:
        data: Data = json.loads(text, object_pairs_hook=unique)
    except json.JSONDecodeError as error:
        raise _refusal(
            f"{name}:{error.lineno}:{error.colno}", f"not valid JSON: {error.msg}"
        ) from error
    except (RecursionError, ValueError) as error:
        raise _refusal(name, "not valid JSON: nested too deeply or a number too long") from error
    try:
        document = _read(
            text.replace("\t", " "), name
        )  # for line numbers, and for checks that JSON lacks
    except yaml.YAMLError as error:
        # Not all JSON is valid YAML: such errors have no line number.
        document = ConfigDocument(name, data)
        if repeated or _depth(data) > MAX_DEPTH:
            raise _refusal(
                name, f"nested more than {MAX_DEPTH} deep, or a key is listed twice"
            ) from error
    document.data = data
    return document


def format_path(path: KeyPath) -> str:
    """``("models", 0, "name")`` → ``models[0].name``."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        elif text:
            text += f".{part}"
        else:
            text = part
    return text


def _refusal(where: str, problem: str) -> ConfigError:
    return ConfigError(one_line(f"{where}: {problem}"))


def _read(text: str, name: str, *, anchors: bool = False) -> ConfigDocument:
    """Reads strictly; raises PyYAML's own errors for invalid YAML."""
    document = ConfigDocument(name, None)
    with _loader(text, name) as loader:
        _check_events(loader, name, anchors=anchors)
    with _loader(text, name) as loader:
        node = loader.get_single_node()
    if node is not None and anchors:
        node = written_out(node, name, MAX_VALUES, MAX_DEPTH)
    if node is not None:
        document.data = _construct(node, (), document)
    return document


@contextmanager
def _loader(text: str, name: str) -> Iterator[_Loader]:
    loader = _Loader(text)
    try:
        yield loader
    except (ValueError, OverflowError) as error:  # PyYAML does not catch its own chr() and int()
        raise _refusal(
            f"{name}:{loader.line + 1}", "not valid YAML: an escape or a number out of range"
        ) from error
    finally:
        loader.dispose()


def _check_events(loader: _Loader, name: str, *, anchors: bool) -> None:
    """Refuse unsupported syntax. Events are a stream, so nothing is expanded."""
    depth = documents = values = 0
    while loader.check_event():
        event: yaml.Event = loader.get_event()  # type: ignore[no-untyped-call]
        where = f"{name}:{event.start_mark.line + 1}" if event.start_mark else name
        has_anchor = (
            isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None
        )
        if has_anchor and not anchors:
            raise _refusal(
                where, "anchors and aliases (& and *) are not supported; write the value out"
            )
        values += isinstance(event, yaml.ScalarEvent | yaml.CollectionStartEvent)
        if values > MAX_VALUES:
            raise _refusal(where, f"more than {MAX_VALUES:,} keys and values; not a config")
        tag = getattr(event, "tag", None)
        if tag is not None:
            raise _refusal(where, f"tag {tag!r}: tags are not supported; write a plain value")
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if documents > 1:
                raise _refusal(where, "a second YAML document starts here; keep one")
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                raise _refusal(where, f"nested more than {MAX_DEPTH} deep")
        if isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _construct(node: yaml.Node, path: KeyPath, document: ConfigDocument) -> Data:
    document.lines.setdefault(path, node.start_mark.line + 1)
    if isinstance(node, yaml.SequenceNode):
        return [_construct(item, (*path, index), document) for index, item in enumerate(node.value)]
    if isinstance(node, yaml.MappingNode):
        return _construct_mapping(node, path, document)
    return _scalar(node, document.name)


def _construct_mapping(
    node: yaml.MappingNode, path: KeyPath, document: ConfigDocument
) -> dict[str, Data]:
    mapping: dict[str, Data] = {}
    for key_node, value_node in node.value:
        line = key_node.start_mark.line + 1
        where = f"{document.name}:{line}"
        if not isinstance(key_node, yaml.ScalarNode):
            raise _refusal(where, "a key must be plain text, not a list or mapping")
        key = str(key_node.value)
        full = (*path, key)
        if key == "<<" and key_node.style is None:
            raise _refusal(where, "merge keys (<<) are not supported; write the keys out")
        if key in mapping:
            first = document.lines[full]
            document.problems.append(
                (line, full, f"is listed twice (first in line {first}); keep one")
            )
            continue
        document.lines[full] = line
        mapping[key] = _construct(value_node, full, document)
    return mapping


def _scalar(node: yaml.Node, name: str) -> Data:
    text = str(node.value)
    kind = node.tag.removeprefix(_TAG)
    if kind == "null":
        return None
    if kind == "bool":
        return text.lower() == "true"
    if kind == "int":
        digits = text.replace("_", "")
        if len(digits) > len(str(MAX_WHOLE)) + 1 or abs(int(digits)) > MAX_WHOLE:
            raise _refusal(
                f"{name}:{node.start_mark.line + 1}", f"{digits[:24]}… is too large a number"
            )
        return int(digits)
    if kind == "float":
        return float(text.replace("_", ""))
    return text


def _depth(data: Data) -> int:
    """The nesting depth of lists and mappings, without recursion."""
    level, depth = [data], 0
    while level := [item for item in level if isinstance(item, dict | list)]:
        depth += 1
        level = [
            child for item in level for child in (item.values() if isinstance(item, dict) else item)
        ]
    return depth
