"""The commands of a comparison: one for each side, as they are typed after ``--``."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
import string
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from torchscale.errors import UsageError
from torchscale.store.locations import RESULTS
from torchscale.util.redaction import redact_arguments

_OVER = re.compile(r"([A-Za-z_]\w*)=(.+)")
_FOLDER_NAME = re.compile(r"[\w.+=-]{1,80}")
_QUOTED = "torchscale compare -- 'torchrun … a.py' 'torchrun … b.py'"
_TEMPLATE = "torchscale compare --over mb=10,25 -- torchrun … train.py --bucket {mb}"


@dataclass(frozen=True)
class CommandSide:
    """A side of a comparison.

    Attributes:
        name: Of the side and of its run folder: a letter, or ``mb=25``.
        command: argv.
    """

    name: str
    command: tuple[str, ...]

    @property
    def shown(self) -> str:
        """Name and command line, without secrets."""
        return f"{self.name}: {shlex.join(redact_arguments(self.command))}"


def parse_sides(words: Sequence[str], over: str | None) -> tuple[CommandSide, ...]:
    """The sides, the reference first.

    Args:
        words: What follows ``--``: quoted command lines; with ``over`` one command as a template.
        over: ``NAME=V1,V2,…``: the template is taken once with each value in place of ``{NAME}``.

    Raises:
        UsageError: there are fewer than two sides, a command line is none, or the template has no
            such place.
    """
    if over is not None:
        return _over(words, over)
    return _quoted(words)


def folder_of(sides: Sequence[CommandSide], launch_seconds: float) -> Path:
    """The folder of a comparison by default: the same for the same one."""
    content = json.dumps([[side.command for side in sides], launch_seconds, str(Path.cwd())])
    return RESULTS / f"compare-{hashlib.sha256(content.encode()).hexdigest()[:8]}"


def _quoted(words: Sequence[str]) -> tuple[CommandSide, ...]:
    if len(words) < 2:
        raise UsageError(
            "one command has nothing to be compared with",
            hint=f"quote each command: {_QUOTED}; or vary one: {_TEMPLATE}",
        )
    option = next((word for word in words if word.startswith("-")), None)
    if option is not None:
        raise UsageError(
            f"{option} after -- is no command; expected each command in quotes", hint=_QUOTED
        )
    names = _letters(len(words))
    return tuple(CommandSide(name, _split(line)) for name, line in zip(names, words, strict=True))


def _over(words: Sequence[str], over: str) -> tuple[CommandSide, ...]:
    match = _OVER.fullmatch(over)
    values = match[2].split(",") if match is not None else []
    if match is None or len(set(values)) < max(2, len(values)) or "" in values:
        raise UsageError(
            f"--over {over}: expected a name and at least two different values, NAME=V1,V2,…",
            hint=_TEMPLATE,
        )
    name, place = match[1], f"{{{match[1]}}}"
    template = _split(words[0]) if len(words) == 1 else tuple(words)
    if not any(place in word for word in template):
        raise UsageError(f"--over {over}: the command has no {place}", hint=_TEMPLATE)
    names = [f"{name}={value}" for value in values]
    if not all(map(_FOLDER_NAME.fullmatch, names)):  # a value may be a path
        names = _letters(len(values))
    return tuple(
        CommandSide(side, tuple(word.replace(place, value) for word in template))
        for side, value in zip(names, values, strict=True)
    )


def _letters(sides: int) -> list[str]:
    if sides > len(string.ascii_uppercase):
        raise UsageError(
            f"{sides} commands are too many; expected {len(string.ascii_uppercase)} at most"
        )
    return list(string.ascii_uppercase[:sides])


def _split(line: str) -> tuple[str, ...]:
    try:
        words = tuple(shlex.split(line))
    except ValueError as error:
        raise UsageError(
            f"{line}: no command line ({str(error).lower()})", hint="close its quotes"
        ) from error
    if not words:
        raise UsageError("a command after -- is empty", hint=_QUOTED)
    return words
