"""Secrets of a command line: the words that stand where programs take a secret.

A word is a secret by the name before it (``--token VALUE``, ``--set api_key VALUE``), by its place
(``login USER PASSWORD``) or by its form (``-u USER:PASSWORD``, ``--header 'Authorization: …'``).
"""

from __future__ import annotations

from collections.abc import Sequence

from torchscale.util.secret_names import NAME, cut

# A command line is one text here, with a zero byte, which no word can contain, before each word and
# at the end: ``\0--token\0VALUE\0``.
_REST = r"(?=(?P<value>[^\0]+))"
_NEXT = rf"\0(?!-){_REST}"
_LOGIN = r"\0(?:[^\0]*/)?(?:log-?[io]n|sign-?in|authenticate)(?:\.\w+)?(?=\0)"
_FLAGS = r"(?:\0-[^\0]*)*"
_WORD = rf"{_FLAGS}\0[^\0-][^\0]*"
_PLACES = (
    rf"\0bearer{_NEXT}",
    rf"\0--?{NAME}{_NEXT}",
    # A setting ends where the next one begins: password=VALUE,lr=0.1. A mapping is hidden as a whole.
    rf"(?:[\0,:/+=-]|\0-[A-Za-z](?=\w+=)){NAME}=(?=(?P<value>[^\0,]+(?:,(?![A-Za-z_][\w.-]*=)[^\0,]*)*))",
    rf"[\0=](?=(?P<value>\{{[^\0]*?(?<![\w.-]){NAME}[\"']?\s*:[^\0]*))",
    # Options and words that a name and its value follow: --set key VALUE, config set key VALUE.
    r"(?<=\0)-{0,2}(?:[\w.-]*[_.-])?(?:set(?:ex|ting)?|add|put|env|conf(?:ig)?|opt(?:ion)?|override|param(?:eter)?|define|"
    rf"var(?:iable)?|arg|prop(?:erty)?|header|[scodeH])s?[\0=](?=\s*{NAME}(?:\s+|:?\0(?!-))(?P<value>[^\0]+))",
    # The header of a request, and what else has a name of several words.
    rf"\0(?:(?:-H|--?headers?)[\0=]|(?=\w*(?:[_.-]|passw|apikey)[\w.-]*\s*:\s)){NAME}\s*:\s*(?!\s){_REST}",
    rf"\0{NAME}:{_NEXT}",
    rf"\0(?=(?:[\w.-]*[_.-])?(?P<name_last>\w+)\0)(?=[\w.]*[_.-]|\w*(?:passw|apikey)){NAME}{_NEXT}",
    # A user and a password: in a word, before a host, or in two words.
    rf"[\0-](?:u[\0=]?|(?:[\w.-]*[_.-])?user(?:name|pwd|pass|info)?[\0=])[^\s:/@\0]+:(?!//|\d+\0){_REST}",
    r"\0[\w.+-]{1,256}:(?=(?P<value>[^@/\s\0]{1,2048})@(?!sha\d+:)[\w.\[])",
    rf"\0--?(?:[\w.-]*[_.-])?(?:auth|creds|credentials|login|user-?pass)\0[^\0-][^\0]*{_NEXT}",
    rf"{_LOGIN}(?:(?=\0-){_WORD})?{_WORD}{_FLAGS}{_NEXT}",
    rf"{_LOGIN}{_FLAGS}\0(?=(?P<value>(?=[^\0]*\d)[\w+/=-]{{16,}})\0)",
    # -p is also a partition, a port and a plugin: a password only of programs that take one there.
    rf"(?:\0(?:[^\0]*/)?(?:mysql\w*|mariadb|mongo(?:dump)?|sshpass)(?=\0)|{_LOGIN})(?:\0(?!-p)[^\0]*){{0,30}}\0-p\0?(?!-){_REST}",
)


def redact_command(arguments: Sequence[str]) -> list[str]:
    """The words of a command line, without those that are secrets by their place."""
    line = "".join(f"\0{word}" for word in arguments) + "\0"
    for pattern in _PLACES:
        line = cut(pattern, line)
    return line.split("\0")[1:-1]
