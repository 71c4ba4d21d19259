"""Removes secrets from text before it is written or shown.

What is removed: user names and passwords in URLs, values under names such as ``api_token`` or
``DB_PASS``, the formats of well-known tokens, and the values that this process's environment holds
under such names, wherever they turn up.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import itertools
import json
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from torchscale.util.secret_arguments import redact_command
from torchscale.util.secret_names import (
    NAME,
    NAME_WORDS,
    PLACEHOLDER,
    REDACTED,
    cut,
    hides,
    is_secret_name,
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
_PLAIN_WORD = re.compile("[A-Za-z_-]*|[0-9]*")

_VALUE = (
    r"(?P<quote>\\{0,7}[\"'])?(?P<value>(?(quote)(?:(?!(?P=quote))[^\n]){3,}(?=(?P=quote))"
    r"|(?!<)[^\s,;&\"'<>(){}\[\]]{3,2048}(?<!:)))"
)
"""A value in quotes, or without; the colon behind one is of the sentence around it."""
_PLAIN = r"\s{0,3}:\s{0,3}[A-Za-z]+(?![^\s,;&\"'<>(){}\[\]])"
"""A word behind a name, as in messages about files (``/run/token: missing``) and tokens."""
_PATTERNS = (
    # Each part that can begin at many places of a line is bounded, or a line of a megabyte takes hours.
    # The longest passwords are signed tokens of a kilobyte.
    r"(?<=://)(?P<value>(?:[^/\s'\"<>]|<redacted>){1,2048}|[^/\s:@'\"<>]{0,2048}:(?!\d{1,5}/)[^\s@'\"<>]{1,2048})(?=@)",
    # Addresses that are secrets as a whole.
    r"(?:hooks\.slack\.com/(?:services|workflows)/|discord(?:app)?\.com/api/webhooks/|webhook\.office\.com/|"
    r"outlook\.office\.com/webhook/|api\.telegram\.org/bot)(?P<value>[^\s'\"<>]+)",
    r"(?:authorization|cookie|x-api-key|x-auth-token)[\"']?\s*[:=]\s*(?P<value>(?![\s<])[^\r\n\"'<>]+)",
    r"\bBearer\s+(?P<value>[\w.~+/=-]{8,})",
    r"(?P<value>-----BEGIN [A-Z ]*PRIVATE KEY(?: BLOCK)?-----.*?(?:-----END [A-Z ]*PRIVATE KEY(?: BLOCK)?-----|\Z))",
    r"\bcurl\b[^\n]{0,400}?\s(?:-u|--user)[ =]{0,3}[\"']?[^\s:\"']{1,100}:(?P<value>(?!<)[^\s\"']+)",
    r"\bwandb\s+login\s+(?:--\S+\s+){0,5}(?P<value>(?![-<])\S{16,})",
    # Tokens of services.
    r"\b(?P<value>(?-i:(?:gh[pousr]_|github_pat_|glpat-|sk-|[sr]k_(?:live|test)_|ya29\.|pypi-|nvapi-|dop_v1_|wandb_v1_|"
    r"dckr_[op]at_|tgp_v1_|ATATT3)[\w=-]{16,}|hf_[A-Za-z0-9]{16,}|xox[abeoprs]-[\w-]{10,}|(?:AKIA|ASIA)[0-9A-Z]{16}|"
    r"AIza[\w-]{30,}|npm_\w{30,}|hv[sb]\.[\w-]{20,}|SG\.[\w-]{16,}\.[\w-]{16,}|gsk_\w{20,}|r8_\w{24,}|"
    r"dapi[0-9a-f]{32}(?:-\d)?|AGE-SECRET-KEY-1\w{20,}|eyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)?))",
    # Settings: of an address, as an assignment, as JSON, also within JSON, and as an option, also in a list.
    r"[?&;#](?:[\w.-]*(?:token|secret|passw|credential|signature|key|auth|session)[\w.-]*|sig|pass|pwd|code|sas)="
    r"(?P<value>(?!<)[^\s&;#'\"<>]+)",
    rf"(?<![\w.])(?:(?<!/)(?<!-file[ =])(?<!-path[ =])(?<!-dir[ =])|(?![\w.-]+{_PLAIN}))(?![\w.-]*tokens{_PLAIN})"
    r"(?!(?:key|session|pass|pwd|sig|sas|pat|cookie|private)\\{0,7}[\"']?\s{0,3}:)"
    rf"{NAME}\\{{0,7}}[\"']?\s{{0,3}}[=:]\s{{0,3}}(?={_VALUE})",
    rf"(?<![\w-])--?{NAME}(?:\s+|\\{{0,7}}[\"'],\s{{0,20}})(?=\\{{0,7}}[\"'](?!-))(?={_VALUE})",
    rf"(?<![\w-])--?{NAME}\s+(?=(?P<value>(?![-<])[^\s\"'<>]{{3,2048}}(?<!:)))",
)  # fmt: skip
_HINTS = (
    f"{NAME_WORDS}|://|curl|wandb|telegram|ghp_|gho_|ghu_|ghs_|ghr_|glpat|hf_|sk-|k_live|k_test|xox|akia|asia|aiza|ya29|"
    "npm_|pypi-|nvapi|hvs.|hvb.|dop_v1|sg.|dckr_|gsk_|tgp_|r8_|dapi|atatt|eyj|code="
).split("|")
"""Parts of texts that may be secrets: a text without any of these fits none of the patterns."""
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


def note_arguments(arguments: Sequence[str]) -> None:
    """Look for the secrets in this command line in all later texts of this process, unless they are
    too short: the program that gets them may print them without their names."""
    for argument, shown in zip(arguments, redact_arguments(arguments), strict=True):
        note_values(removed_parts(argument, shown))


def removed_parts(text: str, redacted: str) -> Iterator[str]:
    """The secrets that :func:`redact` took out of ``text``; of ``name:password`` also the
    password."""
    kept = [re.escape(part) for part in PLACEHOLDER.split(redacted)]
    match = re.fullmatch("(.+?)".join(kept), text, re.DOTALL)
    for part in match.groups() if match else ():
        yield from (part, part.partition(":")[2])


def secret_values() -> tuple[str, ...]:
    """What is looked for in all texts: the values of the environment under names of secrets, and
    those noted; the longest first."""
    return tuple(sorted({*_secrets_in(tuple(os.environ.items())), *_noted}, key=len, reverse=True))


@functools.lru_cache(maxsize=8)
def _secrets_in(values: tuple[tuple[str, str], ...]) -> frozenset[str]:
    """Values worth looking for: those under names of secrets, with their lines, and what is secret
    in those under other names. A plain word in the latter (``key=length``) is looked for nowhere
    else, unless it is a password behind a user."""
    parts: list[str] = []
    for name, value in values:
        within = _removed_from(value)
        parts += [part.partition(":")[2] for part in within]
        if is_secret_name(name) and not (value.startswith("/") and os.path.lexists(value)):
            parts += [value, value.strip(), *within]
            parts += [line for line in value.splitlines() if len(line) >= _MIN_LINE]
        parts += [part for part in within if not _PLAIN_WORD.fullmatch(part)]
    return frozenset(_worth_looking_for(parts))


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
            yield from {value, quote(value, safe="", errors="surrogateescape"), repr(value)[1:-1]}


def redact(name: str, value: str) -> str:
    """The value of a variable, key or option called ``name``, without secrets."""
    return REDACTED if hides(name, value) else redact_text(value)


def redact_text(text: str, secrets: Sequence[str] | None = None) -> str:
    """``text`` without secrets; :data:`REDACTED` stands in their place.

    ``secrets`` are values to look for beside the known formats: :func:`secret_values` by default.
    """
    text = hide_secrets(text, secrets)
    lowered = text.lower()
    if any(hint in lowered for hint in _HINTS):
        for pattern in _PATTERNS:
            text = cut(pattern, text)
    return text


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


def _texts_in(values: Collection[object]) -> Iterator[str]:
    """All texts and keys of mappings within ``values``. Records have many parts of one kind and many
    numbers: values of one type are looked at together."""
    by_kind: dict[type[Any], list[Any]] = collections.defaultdict(list)
    for value in values:
        by_kind[type(value)].append(value)
    for kind, members in by_kind.items():
        if issubclass(kind, (str, os.PathLike)):
            yield from set(map(str, members))
        elif issubclass(kind, Mapping):
            yield from _texts_in([part for one in members for pair in one.items() for part in pair])
        elif issubclass(kind, (tuple, list, set, frozenset)):
            yield from _texts_in(list(itertools.chain.from_iterable(members)))
        elif hasattr(kind, "model_fields"):
            extra = (one.__pydantic_extra__ for one in members)
            yield from _texts_in([*map(vars, members), *extra])


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
