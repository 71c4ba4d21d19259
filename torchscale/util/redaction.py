"""Removes secrets from text before it is written or shown.

What is removed: user names and passwords in URLs, values under names such as ``api_token`` or
``DB_PASS``, the formats of well-known tokens, and the values that this process's environment holds
under such names, wherever they turn up.
"""

from __future__ import annotations

import base64
import collections
import contextlib
import functools
import itertools
import json
import operator
import os
import re
import types
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar, Union, get_args, get_origin
from urllib.parse import quote

from torchscale.util.secret_arguments import redact_command
from torchscale.util.secret_forms import cut_forms
from torchscale.util.secret_names import (
    PLACEHOLDER,
    REDACTED,
    hides,
    is_secret_name,
    is_word,
    may_be_word,
)

if TYPE_CHECKING:
    from pydantic import BaseModel

_MIN_VALUE = 6
"""Characters of a value that is looked for in all texts: shorter ones (``1``, ``true``, ``auto``)
turn up everywhere, and no service gives out shorter secrets."""
_MIN_DIGITS = 8
"""Minimum number of digits of a value of digits alone: shorter ones are counts and ports."""
_MIN_LINE = 16
"""Characters of a line of a longer value, such as a private key, that is looked for by itself."""
_COMMON = re.compile(
    "(?i)disabled|enabled|default|required|optional|password|localhost|negotiate|kerberos|unlimited"
)
"""Values of settings that have names like those of secrets."""
_NUMBER = re.compile("[0-9]{0,15}")

_UNTOUCHED = re.compile("id|cell_id|kind|state|plan_hash|device|model|precision|optimizer|source|backend")  # fmt: skip
"""Fields by which files are found and told apart: no value of the environment is looked for in
them."""

M = TypeVar("M", bound="BaseModel")

_noted: set[str] = set()


def note_secrets(values: Mapping[str, str]) -> None:
    """Look for the values that ``values`` holds under names of secrets in all later texts of this
    process too, as for those of the environment."""
    _noted.update(_secrets_in(tuple(values.items())))


def note_values(values: Iterable[str]) -> None:
    """Look for these secrets in all later texts of this process, unless they are too short to be
    looked for."""
    _noted.update(_worth_looking_for(values))


def note_removed(text: str, redacted: str, name: str = "") -> None:
    """Look for what :func:`redact` took out of ``text``, the value of ``name``, in all later texts of
    this process; not for a word, unless the name or a user before it says that it is a password."""
    for before, part in zip(PLACEHOLDER.split(redacted), _removed(text, redacted), strict=False):
        note_values([part.partition(":")[2]])
        named = re.search(r"[\w.-]+(?=\W*\Z)", before)
        if may_be_word(named[0] if named else name) or not _is_ordinary(part):
            note_values([part])


def note_arguments(arguments: Sequence[str]) -> None:
    """Look for the secrets in this command line in all later texts of this process, unless they are
    too short or words: the program that gets them may print them without their names."""
    shown = redact_arguments(arguments)
    for before, argument, redacted in zip(("", *arguments), arguments, shown, strict=False):
        note_removed(argument, redacted, before)


def removed_parts(text: str, redacted: str) -> Iterator[str]:
    """The secrets that :func:`redact` took out of ``text``; of ``name:password`` also the
    password."""
    for part in _removed(text, redacted):
        yield from (part, part.partition(":")[2])


def _removed(text: str, redacted: str) -> Sequence[str]:
    kept = [re.escape(part) for part in PLACEHOLDER.split(redacted)]
    match = re.fullmatch("(.+?)".join(kept), text, re.DOTALL)
    return match.groups() if match else ()


def secret_values() -> tuple[str, ...]:
    """What is looked for in all texts: the values of the environment under names of secrets, and
    those noted; the longest first."""
    return tuple(sorted({*_secrets_in(tuple(os.environ.items())), *_noted}, key=len, reverse=True))


@functools.lru_cache(maxsize=8)
def _secrets_in(values: tuple[tuple[str, str], ...]) -> frozenset[str]:
    """Values worth looking for: those under names of secrets, with their lines, and what is secret
    in those under other names. A word in the latter (``key=length``) is looked for nowhere else,
    unless it is a password behind a user."""
    parts: list[str] = []
    for name, value in values:
        within = _removed_from(value)
        parts += [part.partition(":")[2] for part in within]
        if is_secret_name(name) and not (value.startswith("/") and os.path.lexists(value)):
            parts += [value, value.strip(), *within]
            parts += [line for line in value.splitlines() if len(line) >= _MIN_LINE]
        parts += [part for part in within if not _is_ordinary(part)]
    return frozenset(_worth_looking_for(parts))


def _is_ordinary(part: str) -> bool:
    return is_word(part) or _NUMBER.fullmatch(part) is not None


def _removed_from(value: str) -> set[str]:
    """What is secret in a value: in JSON, options or a connection string."""
    removed = set(removed_parts(value, redact_text(value, ())))
    with contextlib.suppress(ValueError, RecursionError):
        data = json.loads(value)
        removed |= {*_texts_in([data])} - {*_texts_in([_redact_data(data, ())])}
    return removed


def _worth_looking_for(values: Iterable[str]) -> Iterator[str]:
    for value in values:
        shortest = _MIN_DIGITS if value.isdigit() else _MIN_VALUE
        if len(value) >= shortest and not _COMMON.fullmatch(value):
            encoded = base64.b64encode(os.fsencode(value)).decode().rstrip("=")
            address = quote(value, safe="", errors="surrogateescape")
            yield from {value, address, repr(value)[1:-1], json.dumps(value)[1:-1], encoded}


def redact(name: str, value: str) -> str:
    """The value of a variable, key or option called ``name``, without secrets."""
    return REDACTED if hides(name, value) else redact_text(value)


def redact_text(text: str, secrets: Sequence[str] | None = None) -> str:
    """``text`` without secrets; :data:`REDACTED` stands in their place.

    ``secrets`` are values to look for beside the known formats: :func:`secret_values` by default.
    """
    return cut_forms(hide_secrets(text, secrets))


def hide_secrets(text: str, secrets: Sequence[str] | None = None) -> str:
    """``text`` of ours without the values of :func:`secret_values`, or these.

    A text that we wrote, such as a hint, is in it as written, ``--token-file token`` included: no
    pattern looks at it. What a user typed goes through :func:`redact_text` or
    :func:`redact_arguments` before it is put into one.
    """
    for secret in secret_values() if secrets is None else secrets:
        text = text.replace(secret, REDACTED)
    return text


def redact_arguments(arguments: Sequence[str]) -> tuple[str, ...]:
    """A command line without secrets: the values of ``--some.SECRET=value``, ``--some.SECRET
    value`` and ``-p value``, whole mappings (``--launch.env={SECRET: value}``) whose keys have such
    names, and what stands where programs take a password (:mod:`.secret_arguments`)."""
    return tuple(map(redact_text, redact_command(arguments)))


def redact_model(model: M) -> M:
    """``model`` without secrets in its texts; itself where there are none. What the form of a field
    does not allow to be redacted (a name of a fixed list) stays."""
    secrets, texts = secret_values(), {*_texts_in([model])}
    if not any(_is_suspicious(text) or hide_secrets(text, secrets) != text for text in texts):
        return model
    data = model.model_dump(mode="json")
    for values in (secrets, ()):
        cleaned = _redact_data(data, values)
        with contextlib.suppress(ValueError):  # a value is also a name that the form needs
            return model if cleaned == data else model.model_validate_json(json.dumps(cleaned))
    return model


_WITHOUT_TEXT = (int, float, bool, type(None))


def _texts_in(values: Collection[object]) -> Iterator[str]:
    """All texts and keys of mappings within ``values``, and names of fields that are those of
    secrets. Records have many parts of one kind and many numbers: values of one type are looked at
    together, and fields of numbers not at all."""
    by_kind: dict[Any, list[Any]] = collections.defaultdict(list)
    for value in values:
        by_kind[type(value)].append(value)
    for kind, members in by_kind.items():
        if kind in _WITHOUT_TEXT:
            continue
        if issubclass(kind, (str, os.PathLike)):
            yield from set(map(str, members))
        elif issubclass(kind, Mapping):
            yield from _texts_in([part for one in members for pair in one.items() for part in pair])
        elif issubclass(kind, (tuple, list, set, frozenset)):
            yield from _texts_in(list(itertools.chain.from_iterable(members)))
        elif hasattr(kind, "model_fields"):
            fields = _text_fields(kind)
            yield from fields.of_secrets
            if fields.names:
                read = operator.attrgetter(*fields.names)
                parts = map(read, members)
                several = len(fields.names) > 1
                yield from _texts_in(
                    [*itertools.chain.from_iterable(parts)] if several else [*parts]
                )


class _TextFields(NamedTuple):
    """Fields of a model whose type allows a text, and those of them with names of secrets."""

    names: tuple[str, ...]
    of_secrets: tuple[str, ...]


@functools.cache
def _text_fields(model: type[BaseModel]) -> _TextFields:
    fields = model.model_fields.items()
    names = [name for name, field in fields if _may_hold_text(field.annotation, {model})]
    further = ["__pydantic_extra__"] * _has_more(model)
    return _TextFields((*names, *further), tuple(filter(is_secret_name, names)))


def _has_more(model: type[BaseModel]) -> bool:
    """Whether it keeps fields that it does not know."""
    return model.model_config.get("extra") == "allow"


def _may_hold_text(annotation: object, within: Set[object]) -> bool:
    """Whether a value of this type may be a text or hold one. Numbers do not, nor do tuples,
    alternatives and models of numbers; ``within`` are models that it is a part of."""
    if annotation in (*_WITHOUT_TEXT, ...):
        return False
    parts = get_args(annotation)
    if isinstance(annotation, type) and hasattr(annotation, "model_fields"):
        inside = within | {annotation}
        fields = () if annotation in within else annotation.model_fields.values()
        return _has_more(annotation) or any(
            _may_hold_text(one.annotation, inside) for one in fields
        )
    if get_origin(annotation) is Annotated:
        parts = parts[:1]
    elif get_origin(annotation) not in (tuple, Union, types.UnionType):
        return True
    return not parts or any(_may_hold_text(part, within) for part in parts)


@functools.lru_cache(maxsize=4096)
def _is_suspicious(text: str) -> bool:
    return is_secret_name(text) or redact_text(text, ()) != text


def _redact_data(data: object, secrets: Sequence[str], name: str = "") -> object:
    if isinstance(data, str):
        looked_for = () if _UNTOUCHED.fullmatch(name) else secrets
        return REDACTED if hides(name, data) else redact_text(data, looked_for)
    if isinstance(data, list):
        is_command = name == "command" and all(isinstance(item, str) for item in data)
        words = redact_arguments(data) if is_command else data
        return [_redact_data(item, secrets, name) for item in words]
    if isinstance(data, dict):
        return {key: _redact_data(value, secrets, key) for key, value in data.items()}
    return data
