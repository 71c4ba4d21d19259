"""Which names of variables, keys and options are those of secrets, and what stands in their place."""

from __future__ import annotations

import re

REDACTED = "<redacted>"
PLACEHOLDER = re.compile(r"<redacted(?: \d+)?>")
"""What stands in place of a secret; of several hidden values, with a number."""

NAME_WORDS = "token|secret|pass|pw|cred|auth|cookie|private|webhook|key|pat|sig|sas|psk|jwt|bearer|session"  # fmt: skip
"""A name of a secret has one of these in it, in lower or upper case."""
NAME = rf"(?P<name>(?=[\w.\[\]-]{{0,100}}?(?:{NAME_WORDS}))[A-Za-z_][\w.\[\]-]{{0,100}})"
"""A pattern of names, without most of those that are not of a secret."""
_SECRET_NAME = re.compile(
    r"(?i)TOKEN(?!I[SZ])|SECRET|PASSW|PASSPHRASE|PASSCODE|CREDENTIAL|AUTH(?!OR(?!IZ))|COOKIE|PRIVATE|WEBHOOK|API_?KEY|"
    r"(?:^|[_.-])(?:KEY|PWD|PW|PASS|PAT|CREDS?|SIG|SAS|PSK|JWT|BEARER)(?:$|[_.-])|KEY$|PWD$|(?:^|[_.-])SESSION$|"
    r"(?<!BY|UR)(?<!COM)PASS$"
)
_HARMLESS_NAME = re.compile(
    r"(?i)(?:OLD)?PWD|(?:SHELL|TERM)_SESSION_ID|DESKTOP_SESSION|GNOME_\w+|(?:XDG|DBUS)_\w+|TORCHSCALE_LAUNCH_TOKEN|"
    r"auth[_-](?:type|method|mode)|(?:mon|tur|don|hoc|joc)key|secretary|pass_(?:rate|at_\w+)|(?:.*[_.-])?(?:"
    # Of tokenizers and language models, where a token is a piece of text.
    r"(?:pad|bos|eos|unk|sep|cls|class|mask|start|end|image|num|max|min|per|n|tokens?_per\w*)[_.-]tokens?(?:_ids?)?|"
    r"tokens?[_-](?:id|type|per_\w+|count|time|seconds|ms|budget|dim|embedding|len|length|loss|latency|rate|ratio|size|"
    r"throughput|(?:mix(?:er|ing)|dispatch(?:er)?|drop(?:ping|out)?|pool(?:ing|er)|shift|merg(?:e|er|ing))"
    r"(?:[_-](?:type|policy|mode|rate|ratio|dim|size))?)s?|"
    r"key[_-](?:value|dim|size|head|padding|mask|states|layer|proj|length|frame)\w*|"
    r"(?:q|k|v|query|key|value)\.(?:weight|bias)|"
    # Passes over data, keys of columns and dictionaries, partitions of InfiniBand.
    r"(?:forward|backward|first|second|last|single|num|n)[_-]pass|P_?KEY|"
    r"(?:sort|image|label|text|target|batch|metric|group|index|column|feature|primary|foreign)[_-]keys?)|"
    # Where a secret is: --token-file, SSL_KEY_PATH, keyfile; and places in files: token.py:12.
    r".*(?:\.(?:py|cpp|cuh?|sh|ya?ml|json|toml|md|txt|log)|[_.-](?:files?|filename|paths?|dir|directory|folder|socket)|"
    r"(?:token|key|pass|password|secret|cookie)s?(?:file|path|dir))"
)
"""Names that look like those of secrets and are not."""
_HARMLESS_VALUE = re.compile(
    # Of figures, such as loss_per_token: 2.345: no service gives out such secrets. A PIN has four digits.
    r"(?i)true|false|yes|no|on|off|none|null|auto|<redacted(?: \d+)?>|\d{0,3}|"
    r"[+-]?\d{0,15}\.\d{1,17}(?:e[+-]?\d{1,3})?(?:%|x|[kMGT]?i?B|[nuµm]?s)?"
)
"""Switches, figures and small numbers."""
_MADE_UP = re.compile(
    r"(?i)PASSW|PASSPHRASE|PASSCODE|SECRET|CREDENTIAL|WEBHOOK|(?:API|AUTH|ACCESS|HUB|PRIVATE)[_.-]?(?:KEY|TOKEN)|PASS$|"
    r"(?:^|[_.-])(?:P|PWD?|CREDS?|PSK)$"
)
"""Names of what people choose themselves, and full names of secrets: a word may be one too."""
_TYPE = re.compile("str|bytes|int|float|bool|object|Any|Path|SecretStr|(?:torch[.])?Tensor")
"""What stands behind a name in a signature."""
_GIVEN_OUT = re.compile("(?i)(?:TOKEN|AUTH(?:ORIZATION)?|JWT|BEARER|PAT|SAS)s?$")
"""Names of what services give out: no words, but a word behind such a name or option is hidden
nevertheless, except in code (``token = tokenizer.encode``)."""
_DIGIT = re.compile("[0-9]")
_MIN_CALLED = 5
_PART = "[a-z]{0,20}(?:[A-Z]{1,8}[a-z]{2,20})*[A-Z]{0,20}"
_WORD = re.compile(f"{_PART}(?:[_./,;-]{_PART}){{0,20}}[`).]{{0,3}}")
"""Words, identifiers and paths: ``alltoall``, ``self.keyProjection``, ``/data/images``; also before the
end of a sentence."""
_AMOUNT = re.compile(r"(?i)[\d,_.]{1,20}(?:e\d{1,2}|[kMGTB])?")
"""So many: ``tokens: 4096``, ``--tokens 10k``."""
_FLAGS = re.IGNORECASE | re.DOTALL


def is_secret_name(name: str) -> bool:
    """Whether a variable, key or option of this name carries a secret."""
    return _SECRET_NAME.search(name) is not None and _HARMLESS_NAME.fullmatch(name) is None


def is_word(value: str) -> bool:
    """Whether it looks like a word, an identifier or a path, not like what a machine made up."""
    return _WORD.fullmatch(value) is not None


def _is_called(value: str, after: str) -> bool:
    """Whether it is code that is called or indexed: ``key = self.conv2d(x)``. Passwords with brackets
    in them rarely begin with a word."""
    return after in {"(", "["} and len(value) >= _MIN_CALLED and is_word(_DIGIT.sub("", value, 1))


def may_be_word(name: str) -> bool:
    """Whether a secret of this name may be a word, such as a password."""
    return _MADE_UP.search(name) is not None or name.rpartition(".")[2].isupper()


def hides(name: str, value: str, *, is_bare: bool = False) -> bool:
    """Whether the name says that the value is a secret. A switch or a small number under such a
    name is none, nor is a word where no word is a secret (``--session baseline``), which ``is_bare``
    tells of more names: in a text, where no quotes are around it (``token: Tensor``)."""
    if _HARMLESS_VALUE.fullmatch(value) or (is_bare and _TYPE.fullmatch(value)):
        return False
    if name != "PWD" and name.lower() == "pwd":  # in a connection string, not the shell's directory
        return not value.startswith(("/", ".", "~"))
    if not is_secret_name(name) or ("tokens" in name.lower() and _AMOUNT.fullmatch(value)):
        return False
    is_named = may_be_word(name) or (not is_bare and _GIVEN_OUT.search(name) is not None)
    return is_named or not is_word(value)


def cut(pattern: str, text: str) -> str:
    """``text`` with :data:`REDACTED` for the group ``value`` of each match of ``pattern``, if its
    groups ``name…``, where it has any, hide the value; a group ``bare`` says that it has no
    quotes."""
    parts, end = [], 0
    for match in re.finditer(pattern, text, _FLAGS):
        start, stop = match.span("value")
        groups = match.groupdict()
        is_bare = groups.get("bare") is not None
        if is_bare and _is_called(match["value"], text[stop : stop + 1]):
            continue
        names = [name for key, name in groups.items() if key.startswith("name") and name]
        if start >= end and all(hides(name, match["value"], is_bare=is_bare) for name in names):
            parts += [text[end:start], REDACTED]
            end = stop
    return "".join((*parts, text[end:]))
