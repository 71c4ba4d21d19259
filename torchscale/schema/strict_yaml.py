"""YAML and JSON without surprises: data, and the line of every key.

Refused: duplicate keys, tags, anchors and aliases, several documents, deep nesting, huge files. Only ``true`` and
``false`` are booleans, and a number is what looks like one: ``010`` and ``1:30`` stay text, as ``1e3`` does in YAML.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field

import yaml

from torchscale.errors import ConfigError

Data = None | bool | int | float | str | list["Data"] | dict[str, "Data"]
Path = tuple[str | int, ...]

MAX_BYTES = 1_000_000
_MAX_DEPTH = 20
_TAG = "tag:yaml.org,2002:"


class _Loader(yaml.SafeLoader):
    """PyYAML's scanner and composer with resolvers of our own."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 - PyYAML's interface


_Loader.add_implicit_resolver(_TAG + "null", re.compile(r"^(~|null|Null|NULL|)$"), ["~", "n", "N", ""])
_Loader.add_implicit_resolver(_TAG + "bool", re.compile(r"^(true|True|TRUE|false|False|FALSE)$"), list("tTfF"))
_Loader.add_implicit_resolver(_TAG + "int", re.compile(r"^[-+]?(0|[1-9][0-9_]*)$"), list("-+0123456789"))
_Loader.add_implicit_resolver(
    _TAG + "float", re.compile(r"^[-+]?([0-9][0-9_]*\.[0-9_]*|\.[0-9]+)([eE][-+][0-9]+)?$"), list("-+0123456789.")
)


@dataclass
class Document:
    """What a file says and where. ``lines`` maps a path of keys to its line, from 1."""

    name: str
    data: Data
    lines: dict[Path, int] = field(default_factory=dict)


def read_yaml(text: str, name: str) -> Document:
    """Read one YAML document.

    Raises:
        ConfigError: it is not YAML, or not the strict kind; the message names file, line and problem.
    """
    try:
        _check_events(text, name)
        node = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{name}:{mark.line + 1}:{mark.column + 1}" if mark else name
        problem = " ".join(part for part in (error.context, error.problem) if part)
        raise ConfigError(f"{where}: not valid YAML: {problem}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{name}: not valid YAML: {' '.join(str(error).split())}") from error
    document = Document(name, None)
    if node is not None:
        document.data = _construct(node, (), document)
    return document


def read_json(text: str, name: str) -> Document:
    """Read a JSON document; JSON is strict already but for duplicate keys.

    Raises:
        ConfigError: it is not JSON, or a key stands twice.
    """

    def unique(pairs: list[tuple[str, Data]]) -> dict[str, Data]:
        found: dict[str, Data] = {}
        for key, value in pairs:
            if key in found:
                raise ConfigError(f"{name}: {key}: stands twice; keep one")
            found[key] = value
        return found

    try:
        data: Data = json.loads(text, object_pairs_hook=unique)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{name}:{error.lineno}:{error.colno}: not valid JSON: {error.msg}") from error
    except (RecursionError, ValueError) as error:
        raise ConfigError(f"{name}: not valid JSON: nested too deeply or a number too long") from error
    document = Document(name, data)
    try:
        node = yaml.compose(text.replace("\t", " "), Loader=_Loader)
        if node is not None:
            _construct(node, (), document)
    except (yaml.YAMLError, ConfigError, RecursionError):
        document.lines.clear()  # JSON that YAML reads otherwise: errors then name the key without its line
    return document


def _check_events(text: str, name: str) -> None:
    """Refuse what needs no understanding of the content. Events are a stream, so nothing expands."""
    depth = documents = 0
    for event in yaml.parse(text, Loader=_Loader):
        where = f"{name}:{event.start_mark.line + 1}" if event.start_mark else name
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise ConfigError(f"{where}: anchors and aliases (& and *) are not read here; write the value out")
        tag = getattr(event, "tag", None)
        if tag is not None:
            raise ConfigError(f"{where}: tag {tag!r}: tags are not read here; write a plain value")
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if documents > 1:
                raise ConfigError(f"{where}: a second document starts here; keep one")
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > _MAX_DEPTH:
                raise ConfigError(f"{where}: nested more than {_MAX_DEPTH} deep")
        if isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _construct(node: yaml.Node, path: Path, document: Document) -> Data:
    document.lines.setdefault(path, node.start_mark.line + 1)
    if isinstance(node, yaml.SequenceNode):
        return [_construct(item, (*path, index), document) for index, item in enumerate(node.value)]
    if isinstance(node, yaml.MappingNode):
        return _construct_mapping(node, path, document)
    return _scalar(node)


def _construct_mapping(node: yaml.MappingNode, path: Path, document: Document) -> dict[str, Data]:
    found: dict[str, Data] = {}
    for key_node, value_node in node.value:
        line = key_node.start_mark.line + 1
        where = f"{document.name}:{line}"
        if not isinstance(key_node, yaml.ScalarNode):
            raise ConfigError(f"{where}: a key must be plain text, not a list or mapping")
        key = str(key_node.value)
        full = (*path, key)
        if key == "<<":
            raise ConfigError(f"{where}: merge keys (<<) are not read here; write the keys out")
        if key in found:
            first = document.lines.get(full)
            raise ConfigError(f"{where}: {format_path(full)}: stands twice (first in line {first}); keep one")
        document.lines[full] = line
        found[key] = _construct(value_node, full, document)
    return found


def _scalar(node: yaml.Node) -> Data:
    text = str(node.value)
    kind = node.tag.removeprefix(_TAG)
    if kind == "null":
        return None
    if kind == "bool":
        return text.lower() == "true"
    if kind == "int" and len(text) <= 100:
        return int(text.replace("_", ""))
    if kind == "float":
        return float(text.replace("_", ""))
    return text


def format_path(path: Path) -> str:
    """``("models", 0, "name")`` → ``models[0].name``."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text
