"""A number that a program prints or writes, such as its loss: where it is found, and its last value.
Any sign, zero, NaN and infinities are values."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from torchscale.errors import UsageError
from torchscale.util.files import read_bounded, read_end
from torchscale.util.processes.subprocesses import tail

_GAP = r"[^\S\r\n]"
"""Space within a line: what follows on the next one is of something else."""
_DIGITS = r"\d{1,3}(?:,\d{3})+(?:\.\d*)?|\d+\.\d*|\d+(?!,\d)|\.\d+"
"""A comma stands before three digits, or ends the number; in 2,31 it is neither."""
LOSS_PATTERN = (
    r"(?i)loss['\"]?"  # of train_loss, val/loss, "loss"
    rf"(?:{_GAP}*(?:[:=│|]|\bis\b){_GAP}*|{_GAP}+)"
    rf"['\"]?(?:[\w.]+\({_GAP}*)?"  # tensor(, np.float32(
    rf"([-+]?(?:nan|inf(?:inity)?|(?:{_DIGITS})(?:e[-+]?\d+)?))(?!\.?\w)"
)
"""A word that ends in ``loss``, a colon, ``=``, ``is``, the line of a table or a space, and a
number on the same line."""
LOSS_KEY = "loss"
"""Of a file, where no other is named."""
_PRINTED_BYTES = 1 << 20
"""The end of what a program prints: the last number is looked for there."""
_FILE_BYTES = 16 << 20
"""A larger file is read from its end, as lines."""


_ABSENT = object()
"""What a key leads to that is not there; null is there."""


class NoNumberError(Exception):
    """No number was found; the text says why, for the reason of a launch that failed."""


@dataclass(frozen=True)
class PrintedNumber:
    """Where a number is found.

    Attributes:
        name: What it is called: ``loss``, or the key.
        pattern: Its first group is the number; the last match in what the program prints counts.
        key: Of a JSON object, in place of the pattern: of the last line printed that is one and has
            the key. Dots lead into objects and lists: ``eval.loss``, ``log_history.-1.loss``.
        file: JSON or lines of JSON that the program writes, in place of what it prints; from the
            directory of the launch.
    """

    name: str = "loss"
    pattern: str = LOSS_PATTERN
    key: str = ""
    file: Path | None = None

    def __post_init__(self) -> None:
        """
        Raises:
            UsageError: the pattern is none, or has no group.
        """
        check_pattern(self.pattern)

    @property
    def subject(self) -> str:
        """Of a sentence."""
        return self.name if self.key else f"The {self.name}"

    def written(self, cwd: Path | None) -> tuple[int, ...]:
        """Which content the file has before a launch in ``cwd``; empty where it is not there."""
        if self.file is None:
            return ()
        try:
            found = ((cwd or Path()) / self.file).stat()
        except OSError:
            return ()
        return found.st_ino, found.st_size, found.st_mtime_ns

    def read(self, log: Path, cwd: Path | None, before: tuple[int, ...]) -> float:
        """The number of a launch that has ended.

        Args:
            log: What it printed.
            cwd: Its directory.
            before: What :meth:`written` said before it.

        Raises:
            NoNumberError: there is none.
        """
        if self.file is not None:
            return self._of_file((cwd or Path()) / self.file, self.written(cwd), before)
        text = tail(log, _PRINTED_BYTES)
        if self.key:
            return self._of_lines(text, "printed")
        found = [match[1] or "" for match in re.finditer(self.pattern, text)]
        if not found and self.pattern == LOSS_PATTERN:
            raise NoNumberError("printed no number after a word that ends in loss")
        if not found:
            raise NoNumberError(f"printed nothing that {self.pattern!r} finds")
        try:
            return float(found[-1].replace(",", ""))
        except ValueError:
            raise NoNumberError(f"printed {found[-1]!r}, which is no number") from None

    def _of_file(self, path: Path, after: tuple[int, ...], before: tuple[int, ...]) -> float:
        if not after:
            raise NoNumberError(f"wrote no {self.file}")
        if after == before:
            raise NoNumberError(f"{self.file} is older than the launch, which did not write it")
        try:
            if after[1] > _FILE_BYTES:
                return self._of_lines(read_end(path, _FILE_BYTES).decode(errors="replace"), "wrote")
            text = read_bounded(path, _FILE_BYTES).decode(errors="replace")
        except OSError as error:
            raise NoNumberError(f"{self.file} cannot be read: {error.strerror or error}") from None
        try:
            content = json.loads(text)
        except (ValueError, RecursionError):
            return self._of_lines(text, "wrote")
        return self._number(_inside(content, self.key or LOSS_KEY))

    def _of_lines(self, text: str, did: str) -> float:
        """Of the last line that is an object and has the key."""
        key = self.key or LOSS_KEY
        for content in _objects(text):
            found = _inside(content, key)
            if found is not _ABSENT:
                return self._number(found)
        raise NoNumberError(f"{did} no line that is a JSON object with {key}")

    def _number(self, found: object) -> float:
        key = self.key or LOSS_KEY
        if found is _ABSENT:
            raise NoNumberError(f"{self.file} has no {key}")
        if found is None:  # some write NaN as null
            raise NoNumberError(f"{key} is null, and no number")
        if isinstance(found, bool) or not isinstance(found, int | float | str):
            raise NoNumberError(f"{key} is {type(found).__name__}, and no number")
        try:
            return float(found)
        except (ValueError, OverflowError):
            raise NoNumberError(f"{key} is {str(found)[:40]!r}, and no number") from None


def check_pattern(pattern: str) -> None:
    """
    Raises:
        UsageError: the pattern is none, or has no group.
    """
    try:
        groups = re.compile(pattern).groups
    except re.error as error:
        raise UsageError(f"--metric-regex {pattern}: {error}") from error
    if groups < 1:
        raise UsageError(
            f"--metric-regex {pattern}: has no group",
            hint="put the number in parentheses: 'tokens/s: ([0-9.]+)'",
        )


def _objects(text: str) -> Iterator[dict[str, object]]:
    """The lines that are JSON objects, the last one first."""
    for line in reversed(text.splitlines()):
        if not line.lstrip().startswith("{"):
            continue
        try:
            content = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(content, dict):
            yield content


def _inside(content: object, key: str) -> object:
    """What a key leads to, one with dots in its name first; ``_ABSENT`` for nothing."""
    if isinstance(content, dict) and key in content:
        return content[key]
    name, _, rest = key.partition(".")
    found: object = _ABSENT
    if isinstance(content, dict):
        found = content.get(name, _ABSENT)
    elif isinstance(content, list) and re.fullmatch(r"-?\d{1,9}", name):
        place = int(name)
        found = content[place] if -len(content) <= place < len(content) else _ABSENT
    return _inside(found, rest) if rest and found is not _ABSENT else found
