"""Which names of variables, keys and options are those of secrets."""

from __future__ import annotations

import re

REDACTED = "<redacted>"
PLACEHOLDER = re.compile(r"<redacted(?: \d+)?>")
"""What stands in place of a secret; of several hidden values, with a number."""

_NAMES = (
    r"TOKEN(?!I[SZ])|SECRET|PASSW|PASSPHRASE|PASSCODE|CREDENTIAL|AUTH(?!OR(?!IZ))|COOKIE|PRIVATE|WEBHOOK|API_?KEY|"
    r"(?:^|[_.-])(?:KEY|PWD|PW|PASS|PAT|CREDS?|SIG|SAS|PSK|JWT|BEARER)(?:$|[_.-])|KEY$|PWD$|(?:^|[_.-])SESSION$|"
    r"(?<!BY|UR)(?<!COM)PASS$"
)
_SECRET_NAME = re.compile(_NAMES, re.IGNORECASE)
_HARMLESS_NAME = re.compile(
    r"(?:OLD)?PWD|SHELL_SESSION_ID|DESKTOP_SESSION|TERM_SESSION_ID|GNOME_\w+|(?:XDG|DBUS)_\w+|"
    r"TORCHSCALE_LAUNCH_TOKEN|"
    # Of tokenizers and language models, where a token is a piece of text.
    r"(?:.*[_.-])?(?:pad|bos|eos|unk|sep|cls|mask|start|end|image|decoder_start|num|max|min|tokens?_per\w*)_tokens?(?:_ids?)?|"
    r"(?:.*[_.-])?tokens?_(?:id|ids|type|types|per_\w+|count|length)|"
    r"(?:.*[_.-])?key[_-](?:value|dim|size|head|padding|mask|states|layer|proj|length)\w*|"
    r"(?:.*[_.-])?(?:per|n)[_.-]token|(?:.*[_.-])?first_token_(?:latency|time|seconds|ms)|"
    r"(?:.*[_.-])?tokens?[_-](?:budget|dim|dropout|embedding|len|ratio)s?|"
    r"(?:.*[_.-])?tokens?[_-](?:throughput|rate|size|loss|latency)|"
    r"(?:.*[_.-])?(?:q|k|v|query|key|value)\.(?:weight|bias)|"
    # Passes over data, keys of columns and dictionaries, partitions of InfiniBand.
    r"(?:.*[_.-])?(?:forward|backward|first|second|last|single|num|n)[_-]pass|pass_(?:rate|at_\w+)|"
    r"(?:.*[_.-])?(?:sort|image|label|text|target|batch|metric|group|index)[_-]keys?|"
    r"(?:.*[_.-])?(?:column|feature|primary|foreign)[_-]keys?|"
    r"(?:.*[_.-])?P_?KEY|auth[_-](?:type|method|mode)|(?:mon|tur|don|hoc|joc)key|secretary|"
    # Where a secret is: --token-file, SSL_KEY_PATH, keyfile.
    r".*(?:[_.-](?:files?|filename|paths?|dir|directory|folder|socket)|(?:token|key|pass|password|secret|cookie)s?"
    r"(?:file|path|dir))",
    re.IGNORECASE,
)
"""Names that look like those of secrets and are not."""
_DECIMAL = re.compile(
    r"[+-]?\d{0,15}\.\d{1,17}(?:e[+-]?\d{1,3})?(?:%|x|[kMGT]?i?B|[nuµm]?s)?", re.IGNORECASE
)
"""A figure, such as ``loss_per_token: 2.345``: no service gives out such secrets."""
_AMOUNT = re.compile(r"[\d,_.]{1,20}(?:e\d{1,2}|[kMGTB])?", re.IGNORECASE)
"""So many: ``tokens: 4096``, ``--tokens 10k``."""
_MIN_NUMBER = 4
"""Digits of a number that is taken for a secret because of its name."""
_SWITCHES = frozenset(("", "true", "false", "yes", "no", "on", "off", "none", "null", "auto"))


def is_secret_name(name: str) -> bool:
    """Whether a variable, key or option of this name carries a secret."""
    return _SECRET_NAME.search(name) is not None and _HARMLESS_NAME.fullmatch(name) is None


def hides(name: str, value: str) -> bool:
    """Whether the name says that the value is a secret. A switch or a small number under such a
    name is none."""
    if value.lower() in _SWITCHES or PLACEHOLDER.fullmatch(value) or _DECIMAL.fullmatch(value):
        return False
    if name != "PWD" and name.lower() == "pwd":  # in a connection string, not the shell's directory
        return not value.startswith(("/", ".", "~"))
    if not is_secret_name(name):
        return False
    if "tokens" in name.lower() and _AMOUNT.fullmatch(value):
        return False
    return not value.isdigit() or len(value) >= _MIN_NUMBER
