"""Secrets of a command line: the words that stand where programs take a secret.

A word is a secret by the name before it (``--token VALUE``, ``--set api_key VALUE``), by its place
(``login USER PASSWORD``) or by its form (``-u USER:PASSWORD``, ``--header 'Authorization: …'``).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence

from torchscale.util.secret_names import REDACTED, hides, is_secret_name

_PASSWORD = "password"  # noqa: S105 - the name under which a word stands that is one by its place
_NAME = re.compile(r"[A-Za-z_][\w.\[\]-]*")
_SETTERS = re.compile(
    r"(?:.*[_.-])?(?:set|setex|add|put|env|conf|config|option|opt|override|param|parameter|define|"
    r"var|variable|arg|property|prop|setting|header|[scodeH])s?",
    re.IGNORECASE,
)
"""Options and words that a name and its value follow: ``--set key VALUE``, ``config set key
VALUE``."""
_PLAIN_WORDS = re.compile(
    r"auth|keys?|session|tokens?|secrets?|private|cookies?|pass|credentials?|creds?|authorization|"
    r"pwd|pw|pat|sig|sas|psk|jwt|webhook",
    re.IGNORECASE,
)
"""Words that are also subcommands and values (``gh auth login``): names only behind a setter."""
_SCHEMES = frozenset(("bearer", "basic", "digest", "negotiate"))
_LOGINS = frozenset(("login", "log-in", "signin", "sign-in", "logon", "authenticate"))
_PAIRS = re.compile(r"(?:.*[_.-])?(?:auth|creds|credentials|login|user-?pass)", re.IGNORECASE)
"""Options that may take a user and a password as two words."""
_USERS = re.compile(r"[uU]|(?:.*[_.-])?user(?:name|pwd|pass|info)?", re.IGNORECASE)
"""Options that take ``USER:PASSWORD``."""
_USER_AND_PASSWORD = re.compile(r"([^\s:/@]+:)(?!//)(?!\d+$)(.+)", re.DOTALL)
_JOINED_USER = re.compile(r"(-[uU][^\s:/@=]+:)(?!//)(?!\d+$)(.+)", re.DOTALL)
_USER_AT_HOST = re.compile(r"\A([\w.+-]{1,256}:)([^@/\s]{1,2048})(?=@(?!sha\d+:)[\w.\[])")
_HEADER = re.compile(r"([\w.-]+\s*:\s*)(\S.*)", re.DOTALL)
_NAME_AND_VALUE = re.compile(r"\s*([A-Za-z_][\w.-]*)\s+(\S.*)", re.DOTALL)
_KEY = re.compile(r"(?=.*\d)[\w+/=-]{16,}")
"""The key that ``wandb login`` takes: no name of a user or a host is so long and has no dot."""
_PASSWORD_AFTER_P = frozenset(
    ("mysql", "mysqldump", "mysqladmin", "mysqlimport", "mariadb", "mongo", "mongodump", "sshpass")
)
"""Programs whose ``-pPASSWORD`` has no blank."""
_NEXT_SETTING = re.compile(r",(?=[A-Za-z_][\w.-]*=)")


def redact_command(arguments: Sequence[str], redact_text: Callable[[str], str]) -> tuple[str, ...]:
    """A command line without secrets.

    Args:
        arguments: The words.
        redact_text: Takes secrets out of a text of any kind.
    """
    return tuple(
        _redact_word(word, name, redact_text)
        for word, name in zip(arguments, _names(arguments), strict=True)
    )


def _names(words: Sequence[str]) -> Iterator[str]:
    """The name whose value each word is; empty where there is none."""
    login = _Login()
    before, name_before, option_before, is_set = "", "", "", False
    takes_password = False
    for word in words:
        option = ""
        if before.startswith("-") and "=" not in before:
            option = before.lstrip("-")
        at_password = login.takes(word, is_option_value=bool(option))
        bare = _bare_name(before, is_set=is_set)
        name = ""
        if word.startswith("-"):
            if takes_password and re.match(r"-p[^-]", word):
                name = _PASSWORD
        elif before == "-p":  # of mysql, sshpass, docker login …: a password, unless it is a port
            name = "" if word.isdigit() else _PASSWORD
        elif option and not (at_password and not is_secret_name(option)):
            name = option
        elif at_password:
            name = _PASSWORD
        elif bare and (before.lower() in _SCHEMES or not hides(name_before, before)):
            name = bare
        elif option_before and _PAIRS.fullmatch(option_before) and not os.path.lexists(word):
            name = _PASSWORD
        yield name
        is_set = _SETTERS.fullmatch(before.lstrip("-")) is not None
        takes_password |= _stem(word) in _PASSWORD_AFTER_P
        before, name_before, option_before = word, name, option


def _bare_name(word: str, *, is_set: bool) -> str:
    """The name that ``word`` is, whose value comes next; empty if it is none."""
    if word.startswith("-"):
        setter, equals, word = word.partition("=")
        is_set = bool(equals) and _SETTERS.fullmatch(setter.lstrip("-")) is not None
        if not is_set:
            return ""
    name = word.removesuffix(":")
    if not _NAME.fullmatch(name) or not is_secret_name(name):
        return ""
    last = re.split(r"[_.-]", name)[-1]  # train_token_classifier.py is no name of a token
    if is_set or name != word or (is_secret_name(last) and not _PLAIN_WORDS.fullmatch(name)):
        return name
    return ""


class _Login:
    """Where a password stands behind ``login``: second, and wherever it may be the second."""

    def __init__(self) -> None:
        self._words, self._sure = -1, 0

    def takes(self, word: str, *, is_option_value: bool) -> bool:
        """Go on by a word; whether it may be the password. What follows an option is its value or,
        if the option is a flag, the user or the password."""
        if word.startswith("-"):
            return False
        if self._words < 0:
            if _stem(word) in _LOGINS and not is_option_value:
                self._words = 0
            return False
        self._words += 1
        self._sure += not is_option_value
        if is_option_value:
            return self._words >= 2 and self._sure < 2
        return self._words >= 2 or _KEY.fullmatch(word) is not None


def _stem(word: str) -> str:
    """``login`` of ``/opt/bin/login.py``."""
    return word.rpartition("/")[2].partition(".")[0].lower()


def _redact_word(word: str, name: str, redact_text: Callable[[str], str]) -> str:
    if name == _PASSWORD and word.startswith("-p"):
        return f"-p{REDACTED}"
    joined = _JOINED_USER.fullmatch(word)
    if joined is not None:
        return f"{joined[1]}{REDACTED}"
    if not word.startswith("-"):
        return _redact_value(name, word, redact_text)
    option, equals, value = word.partition("=")
    if not equals or not _is_word(option):
        return redact_text(word)
    # -Dpassword=… has its name behind one letter.
    glued = option[2:] if re.match("-[A-Za-z]", option) else ""
    if hides(glued, value):
        return f"{option}={REDACTED}"
    return f"{option}={_redact_value(option.lstrip('-'), value, redact_text)}"


def _redact_value(name: str, value: str, redact_text: Callable[[str], str]) -> str:
    """A value that stands under ``name``, which may be a setting itself: ``password=…``."""
    keys = re.findall(r"[\w.-]+(?=[\"']?\s*:)", value) if "{" in value else []
    last = name.rpartition(".")[2]
    if any(map(is_secret_name, keys)) or hides(name, value) or hides(last, value):
        return REDACTED
    if _USERS.fullmatch(name) and (user := _USER_AND_PASSWORD.fullmatch(value)):
        return f"{user[1]}{REDACTED}"
    header = _HEADER.fullmatch(value)
    if header is not None and "://" not in value:
        called = header[1].rstrip(": \t\n")
        is_header = name in ("H", "header", "headers") or " " in header[1]
        if is_header and not _is_prose(called, name) and hides(called, header[2]):
            return f"{header[1]}{REDACTED}"
    pair = _NAME_AND_VALUE.fullmatch(value) if _SETTERS.fullmatch(name) else None
    if pair is not None and hides(pair[1], pair[2]):
        return f"{value[: pair.start(2)]}{REDACTED}"
    parts = _NEXT_SETTING.split(value)
    return ",".join(_redact_setting(part, redact_text) for part in parts)


def _is_prose(called: str, name: str) -> bool:
    """Whether ``key: …`` is more likely a text than a header."""
    return name not in ("H", "header", "headers") and _PLAIN_WORDS.fullmatch(called) is not None


def _redact_setting(text: str, redact_text: Callable[[str], str]) -> str:
    """``NAME=VALUE``, also ``env:NAME=VALUE`` and ``+group/NAME=VALUE``, or any other text."""
    front, equals, value = text.partition("=")
    name = re.split(r"[:/+]", front)[-1]
    if equals and _is_word(name):
        shown = REDACTED if _hides_setting(name, value) else redact_text(value)
        if _USERS.fullmatch(name) and (user := _USER_AND_PASSWORD.fullmatch(value)):
            shown = f"{user[1]}{REDACTED}"
        return f"{redact_text(front)}={shown}"
    return redact_text(_USER_AT_HOST.sub(rf"\1{REDACTED}", text) if "://" not in text else text)


def _hides_setting(name: str, value: str) -> bool:
    return hides(name, value) or hides(name.rpartition(".")[2], value)


def _is_word(text: str) -> bool:
    return re.fullmatch(r"-{0,2}[\w.\[\]-]+", text) is not None
