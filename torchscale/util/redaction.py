"""Removes secrets from text before it is written or shown.

What is removed: user names and passwords in URLs, values under names such as ``api_token`` or
``DB_PASS``, the formats of well-known tokens, and the values that this process's environment holds
under such names, wherever they turn up.
"""

from __future__ import annotations

import functools
import itertools
import json
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, Union, get_args, get_origin
from urllib.parse import quote

from torchscale.util.secret_arguments import redact_command
from torchscale.util.secret_names import PLACEHOLDER, REDACTED, hides, is_secret_name

if TYPE_CHECKING:
    from pydantic import BaseModel

_MIN_VALUE = 6
"""Characters of a value that is looked for in all texts: shorter ones (``1``, ``true``, ``auto``)
turn up everywhere, and no service gives out shorter secrets."""
_MIN_DIGITS = 8
"""Minimum number of digits of a value of digits alone: shorter ones are counts and ports."""
_MIN_LINE = 16
"""Characters of a line of a longer value, such as a private key, that is looked for by itself."""
_COMMON_VALUES = frozenset(
    (
        "disabled",
        "enabled",
        "default",
        "required",
        "optional",
        "password",
        "localhost",
        "negotiate",
        "kerberos",
        "unlimited",
    )
)
"""Values of settings that have names like those of secrets."""

_URL_CREDENTIALS = re.compile(
    r"(?<=://)(?:[^/\s'\"<>]{1,2048}|[^/\s:@'\"<>]{0,2048}:(?!\d{1,5}/)[^\s@'\"<>]{1,2048})(?=@)"
)
"""Bounded, as every part of these patterns that can begin at many places of one line: else a line
of a megabyte takes hours. The longest passwords are signed tokens of a kilobyte."""
_URL_PASSWORD = re.compile(r"://[^/\s:@'\"<>]{0,2048}:([^/\s'\"<>]{1,2048})@")
_PATTERNS = (
    # Addresses that are secrets as a whole.
    (re.compile(r"(hooks\.slack\.com/(?:services|workflows)/|discord(?:app)?\.com/api/webhooks/|"
                r"webhook\.office\.com/|outlook\.office\.com/webhook/|api\.telegram\.org/bot)[^\s'\"<>]+"),
     rf"\1{REDACTED}"),
    (re.compile(r"((?:authorization|cookie|x-api-key|x-auth-token)[\"']?\s*[:=]\s*)(?![\s<])[^\r\n\"'<>]+",
                re.IGNORECASE), rf"\1{REDACTED}"),
    (re.compile(r"\b(Bearer\s+)[\w.~+/=-]{8,}", re.IGNORECASE), rf"\1{REDACTED}"),
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY(?: BLOCK)?-----.*?"
                r"(?:-----END [A-Z ]*PRIVATE KEY(?: BLOCK)?-----|\Z)", re.DOTALL), REDACTED),
    (re.compile(r"(\bcurl\b[^\n]{0,400}?\s(?:-u|--user)[ =]{0,3}[\"']?[^\s:\"']{1,100}:)(?!<)[^\s\"']+"),
     rf"\1{REDACTED}"),
    (re.compile(r"(\bwandb\s+login\s+(?:--\S+\s+){0,5})(?![-<])\S{16,}"), rf"\1{REDACTED}"),
    (re.compile(
        r"\b(?:gh[pousr]_\w{16,}|github_pat_\w{16,}|glpat-[\w-]{16,}|hf_[A-Za-z0-9]{16,}|sk-[\w-]{16,}|"
        r"[sr]k_(?:live|test)_\w{16,}|xox[abeoprs]-[\w-]{10,}|(?:AKIA|ASIA)[0-9A-Z]{16}|AIza[\w-]{30,}|ya29\.[\w-]{16,}|"
        r"npm_\w{30,}|pypi-[\w-]{16,}|nvapi-[\w-]{16,}|hv[sb]\.[\w-]{20,}|dop_v1_\w{16,}|SG\.[\w-]{16,}\.[\w-]{16,}|"
        r"wandb_v1_\w{16,}|dckr_(?:pat|oat)_[\w-]{16,}|gsk_\w{20,}|tgp_v1_[\w-]{16,}|r8_\w{24,}|dapi[0-9a-f]{32}(?:-\d)?|"
        r"ATATT3[\w=-]{16,}|AGE-SECRET-KEY-1\w{20,}|"
        r"eyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)?)"), REDACTED),
)  # fmt: skip
_QUERY = re.compile(
    r"(?P<head>[?&;#](?:[\w.-]*(?:token|secret|passw|credential|signature|key|auth|session)[\w.-]*|sig|pass|pwd|code|sas)=)"
    r"(?!<)[^\s&;#'\"<>]+",
    re.IGNORECASE,
)
_ASSIGNMENT = re.compile(
    r"(?P<name>(?<![A-Za-z0-9_.])[A-Za-z_][\w.-]{0,100})(?P<between>\\{0,7}[\"']?\s{0,3}[=:]\s{0,3})"
    r"(?P<value>\\{1,7}\"[^\"\\\n]*\\{1,7}\"|\"[^\"\n]*\"|'[^'\n]*'|(?!<)[^\s,;&\"'<>(){}\[\]]+)"
)
"""``Password=…``, ``api_key: "…"``, and JSON within JSON: ``\\"api_key\\": \\"…\\"``."""
_OPTION = re.compile(
    r"(?P<name>(?<![\w-])--?[A-Za-z][\w.-]*)(?:(?P<between>\s+)(?P<value>\"[^\"\n]*\"|'[^'\n]*'|(?![-<])[^\s\"'<>]+)"
    r"|(?P<comma>\\{0,7}[\"'],\s{0,20})"
    r"(?P<item>\\{1,7}\"(?!-)[^\"\\\n]*\\{1,7}\"|\"(?!-)[^\"\n]*\"|'(?!-)[^'\n]*'))"
)
"""``--password …`` in a text, and ``'--password', '…'`` in a list of arguments as Python or JSON
writes it: errors of subprocesses quote their command so."""
_HINTS = (
    *(
        "://",
        "token",
        "secret",
        "pass",
        "credential",
        "auth",
        "cookie",
        "private",
        "webhook",
        "key",
        "pwd",
        "bearer",
    ),
    *(
        "ghp_",
        "gho_",
        "ghu_",
        "ghs_",
        "ghr_",
        "github_pat",
        "glpat",
        "hf_",
        "sk-",
        "k_live",
        "k_test",
        "xox",
        "akia",
        "asia",
        "aiza",
        "ya29",
        "npm_",
        "pypi-",
        "nvapi",
        "curl",
        "wandb",
        "dckr_",
        "gsk_",
        "tgp_",
        "r8_",
        "dapi",
        "atatt",
        "pw",
    ),
    *(
        "hvs.",
        "hvb.",
        "dop_v1",
        "sg.",
        "eyj",
        "sig=",
        "sas=",
        "pat=",
        "pat:",
        "psk",
        "jwt",
        "creds",
        "session",
        "telegram",
    ),
)
"""Parts of texts that may be secrets: without any of these in it, in lower case, a text fits none
of the patterns: a fast path for large files."""
_WORDS_IN_TEXT = re.compile(r"key|session|pass|pwd|sig|sas|pat|cookie|private", re.IGNORECASE)
"""Names that, alone before a colon, are words of messages (``unknown key: …``) and not names of
secrets. ``tokens`` before a plain word is one too."""
_UNTOUCHED = frozenset(
    (
        "id",
        "cell_id",
        "kind",
        "state",
        "plan_hash",
        "device",
        "model",
        "precision",
        "optimizer",
        "source",
        "backend",
    )
)
"""Fields by which files are found and told apart: no value of the environment is looked for in
them."""

M = TypeVar("M", bound="BaseModel")

_noted: set[str] = set()


def note_secrets(values: Mapping[str, str]) -> None:
    """Look for the values that ``values`` holds under names of secrets in all later texts of this
    process too, as for those of the environment."""
    _noted.update(_secrets_in(values))


def note_values(values: Iterable[str]) -> None:
    """Look for these secrets in all later texts of this process, unless they are too short to be
    looked for."""
    _noted.update(_worth_looking_for(values))


def note_arguments(arguments: Sequence[str]) -> None:
    """Look for the secrets in this command line in all later texts of this process, unless they are
    too short: the program that gets them may print them without their names."""
    for argument, shown in zip(arguments, redact_arguments(arguments), strict=True):
        if argument != shown:
            note_values(removed_parts(argument, shown))


def removed_parts(text: str, redacted: str) -> Iterator[str]:
    """The secrets that :func:`redact` took out of ``text``; of ``name:password`` also the
    password."""
    kept = [re.escape(part) for part in PLACEHOLDER.split(redacted)]
    match = re.fullmatch("(.+?)".join(kept), text, re.DOTALL)
    if match is None:
        return
    for part in match.groups():
        yield part
        yield part.partition(":")[2]


def secret_values() -> tuple[str, ...]:
    """What is looked for in all texts: the values of the environment under names of secrets, and
    those noted; the longest first."""
    found = {*_secrets_of(tuple(os.environ.items())), *_noted}
    return tuple(sorted(found, key=len, reverse=True))


@functools.lru_cache(maxsize=4)
def _secrets_of(environment: tuple[tuple[str, str], ...]) -> frozenset[str]:
    """Those of an environment, which is the same for thousands of records."""
    return frozenset(_secrets_in(dict(environment)))


def redact(name: str, value: str) -> str:
    """The value of a variable, key or option called ``name``, without secrets."""
    if value and hides(name, value):
        return REDACTED
    return redact_text(value)


def redact_text(text: str, secrets: Sequence[str] | None = None) -> str:
    """``text`` without secrets; :data:`REDACTED` stands in their place.

    ``secrets`` are values to look for beside the known formats: :func:`secret_values` by default.
    """
    if "://" in text:
        text = _URL_CREDENTIALS.sub(REDACTED, text)
    for secret in secret_values() if secrets is None else secrets:
        if secret in text:
            text = text.replace(secret, REDACTED)
    lowered = text.lower()
    if not any(hint in lowered for hint in _HINTS):
        return text
    for pattern, replacement in _PATTERNS:
        text = pattern.sub(replacement, text)
    text = _QUERY.sub(rf"\g<head>{REDACTED}", text)
    return _OPTION.sub(_redact_option, _ASSIGNMENT.sub(_redact_assignment, text))


def hide_secrets(text: str) -> str:
    """``text`` of ours without the values of :func:`secret_values`.

    A text that we wrote, such as a hint, is in it as written, ``--token-file token`` included: no
    pattern looks at it. What a user typed goes through :func:`redact_text` or
    :func:`redact_arguments` before it is put into one.
    """
    for secret in secret_values():
        text = text.replace(secret, REDACTED)
    return text


def redact_arguments(arguments: Sequence[str]) -> tuple[str, ...]:
    """A command line without secrets: the values of ``--some.SECRET=value``, ``--some.SECRET
    value`` and ``-p value``, whole mappings (``--launch.env={SECRET: value}``) whose keys have such
    names, and what stands where programs take a password (:mod:`.secret_arguments`)."""
    return redact_command(arguments, redact_text)


def redact_model(model: M) -> M:
    """``model`` without secrets in its texts; itself where there are none. What the form of a field
    does not allow to be redacted (a name of a fixed list) stays."""
    secrets = secret_values()
    texts = set(itertools.chain.from_iterable(_texts_in([model])))
    if not any(_is_suspicious(text) or any(secret in text for secret in secrets) for text in texts):
        return model
    return _redacted(type(model), model.model_dump(mode="json"), model, secrets)


def _texts_in(values: Collection[object]) -> Iterator[Iterable[str]]:
    """All texts and keys of mappings within ``values``. Records have many parts of one kind, many
    numbers and few different texts: values of one type are looked at together, and what cannot hold
    a text by its type not at all."""
    kinds: set[type[Any]] = set(map(type, values))
    for kind in kinds - _WITHOUT_TEXT:
        members: Collection[Any] = values
        if len(kinds) > 1:
            members = [value for value in values if type(value) is kind]
        names = _fields_with_text(kind)  # type: ignore[arg-type] # a class is hashable
        if kind is str:
            yield members
        elif issubclass(kind, (tuple, list, set, frozenset)):
            yield from _texts_in(list(itertools.chain.from_iterable(members)))
        elif issubclass(kind, dict):
            yield from _texts_in(
                [item for mapping in members for pair in mapping.items() for item in pair]
            )
        elif names is not None:
            for name in names:
                yield from _texts_in([getattr(member, name) for member in members])
        elif not issubclass(kind, Enum):
            yield map(str, members)


_WITHOUT_TEXT: frozenset[type[Any]] = frozenset((int, float, bool, type(None)))


@functools.cache
def _fields_with_text(kind: type) -> tuple[str, ...] | None:
    """Attributes of a schema class whose values can contain a text; ``None`` for other classes."""
    fields = getattr(kind, "model_fields", None)
    if fields is None:
        return None
    names = tuple(name for name, field in fields.items() if _may_hold_text(field.annotation))
    return (*names, "__pydantic_extra__") if kind.model_config.get("extra") == "allow" else names  # type: ignore[attr-defined]


def _may_hold_text(annotation: object) -> bool:
    """Whether values of this type can contain a text that is not one of a fixed list."""
    origin = get_origin(annotation)
    if origin is Literal:
        return False
    if origin is Annotated:
        return _may_hold_text(get_args(annotation)[0])
    if origin in (Union, UnionType, tuple, list, set, frozenset):
        return any(_may_hold_text(part) for part in get_args(annotation) if part is not Ellipsis)
    if not isinstance(annotation, type):
        return True
    if (names := _fields_with_text(annotation)) is not None:
        return bool(names)
    return annotation not in _WITHOUT_TEXT and not issubclass(annotation, Enum)


@functools.lru_cache(maxsize=4096)
def _is_suspicious(text: str) -> bool:
    return is_secret_name(text) or redact_text(text, ()) != text


def _redacted(model: type[M], data: object, whole: M, secrets: Sequence[str]) -> M:
    for values in (secrets, ()):
        cleaned = _redact_data(data, values)
        if cleaned == data:
            return whole
        try:
            return model.model_validate_json(json.dumps(cleaned))
        except ValueError:  # pydantic's, which would take long to import here
            continue  # a value of the environment is also a name that the form needs
    return whole


def _redact_data(data: object, secrets: Sequence[str], name: str = "") -> object:
    if isinstance(data, str):
        if hides(name, data):
            return REDACTED
        return redact_text(data, () if name in _UNTOUCHED else secrets)
    if isinstance(data, list):
        if name == "command" and all(isinstance(item, str) for item in data):
            data = list(redact_arguments(data))
        return [_redact_data(item, secrets, name) for item in data]
    if isinstance(data, dict):
        return {key: _redact_data(value, secrets, key) for key, value in data.items()}
    return data


def _redact_assignment(match: re.Match[str]) -> str:
    name, between, value = match["name"], match["between"], match["value"]
    plain = value.strip(_QUOTES)
    bare = ":" in between and (
        _WORDS_IN_TEXT.fullmatch(name)
        or (plain.isalpha() and (name.lower().endswith("tokens") or _is_file(match)))
    )
    if bare or len(plain) < 3 or not hides(name, plain):
        return f"{name}{between}{_redact_inner(value)}"
    mark = _quote_mark(value)
    return f"{name}{between}{mark}{REDACTED}{mark}{_ending(value)}"


def _is_file(match: re.Match[str]) -> bool:
    """Whether the name is that of a file, of which a message says something: ``--token-file token:
    mode 0666``, ``/run/token: not text``."""
    before = match.string[max(0, match.start() - _BEFORE) : match.start()]
    return before.endswith("/") or _FILE_OPTION.search(before) is not None


def _redact_inner(value: str) -> str:
    """A value that is an assignment itself: ``env:API_TOKEN=…``, ``FLAGS=token=…``."""
    before = 0
    for match in itertools.islice(re.finditer("=", value), _MOST_INNER):
        name = value[before : match.start()].rpartition(":")[2].lstrip(_QUOTES)
        plain = value[match.end() :].strip(_QUOTES)
        if len(plain) >= 3 and len(name) <= 100 and hides(name, plain):
            mark = _quote_mark(value)
            return f"{value[: match.end()]}{REDACTED}{mark}{_ending(value)}"
        before = match.end()
    return value


def _ending(value: str) -> str:
    """The colon after a value without quotes, which is of the sentence around it."""
    return ":" if value.endswith(":") else ""


def _redact_option(match: re.Match[str]) -> str:
    name, value = match["name"], match["value"] or match["item"]
    plain = value.strip(_QUOTES)
    if len(plain) < 3 or not hides(name.lstrip("-"), plain):
        return match[0]
    if match["item"] is None:
        return f"{name}{match['between']}{REDACTED}{_ending(value)}"
    mark = _quote_mark(value)
    return f"{name}{match['comma']}{mark}{REDACTED}{mark}"


_BEFORE = 40
_MOST_INNER = 8
"""Names within a value that are looked at: lines of a megabyte take no hours."""
_FILE_OPTION = re.compile(r"-(?:file|path|dir)[ =]$")
_QUOTES = "\"'\\"


def _quote_mark(value: str) -> str:
    """What a quoted value begins and ends with; empty for one without quotes."""
    return value[: len(value) - len(value.lstrip(_QUOTES))]


def _secrets_in(values: Mapping[str, str]) -> set[str]:
    """Values worth looking for: those under names of secrets, with their parts, and what is secret
    in those under other names."""
    found: set[str] = set()
    for name, value in values.items():
        found.update(_worth_looking_for(match[1] for match in _URL_PASSWORD.finditer(value)))
        if is_secret_name(name) and not _is_place(value):
            found.update(_worth_looking_for(_parts(value)))
        else:
            found.update(_worth_looking_for(_within(value)))
    return found


def _parts(value: str) -> Iterator[str]:
    """The value, its lines, and texts under names of secrets in a value that is JSON."""
    yield value
    yield value.strip()
    yield from (line for line in value.splitlines() if len(line) >= _MIN_LINE)
    yield from _named_texts(value)


def _named_texts(text: str) -> Iterator[str]:
    """Texts under names of secrets, at any depth, in a text that is JSON."""
    if not text.lstrip().startswith(("{", "[")):
        return
    try:
        pending = [("", json.loads(text))]
    except (ValueError, RecursionError):
        return
    while pending:
        name, value = pending.pop()
        if isinstance(value, dict):
            pending += [(str(key), item) for key, item in value.items()]
        elif isinstance(value, list):
            pending += [(name, item) for item in value]
        elif isinstance(value, str) and hides(name, value):
            yield value


@functools.lru_cache(maxsize=512)
def _within(value: str) -> tuple[str, ...]:
    """What is secret in the value of a variable whose name does not say so: options, a connection
    string, JSON. A plain word (``key=length``) is looked for nowhere else."""
    parts = [*_named_texts(value), *removed_parts(value, redact_text(value, ()))]
    return tuple(part for part in parts if not _WORD.fullmatch(part))


_WORD = re.compile("[A-Za-z_-]*|[0-9]*")


def _worth_looking_for(values: Iterable[str]) -> Iterator[str]:
    for value in values:
        shortest = _MIN_VALUE
        if value.isdigit():
            shortest = _MIN_DIGITS
        if len(value) < shortest or value.lower() in _COMMON_VALUES:
            continue
        yield from {value, quote(value, safe="", errors="surrogateescape"), repr(value)[1:-1]}


def _is_place(value: str) -> bool:
    """A path that is there names where a secret is, and is none."""
    try:
        return value.startswith("/") and os.path.lexists(value)
    except ValueError:
        return False
