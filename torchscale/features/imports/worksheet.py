"""A config of another suite while it is translated: keys that have found their place, and keys that
wait for one."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence

from torchscale.config.messages import shown
from torchscale.config.translate import Translation, number_of, put, translated, value_of
from torchscale.config.yaml_reader import Data
from torchscale.util.text import one_line

Path = tuple[str, ...]
NO_PLACE = "has no place here"
_AUTO = "auto"
"""Accelerate and DeepSpeed write it for what the program decides."""
_LARGEST = 10**9
"""More than any batch, sequence or machine has; products of two stay within 64 bits."""
_DIGITS = 10
"""Of the largest."""
_DEEP = 3
"""Parts of a key's name; in longer ones the first name groups that repeat."""
_ELSEWHERE = "has no value there"


class Worksheet:
    """Keys are moved one by one; what is never asked for is listed as left out.

    Attributes:
        result: The translation so far.
    """

    def __init__(self, suite: str, data: Mapping[str, Data]) -> None:
        self.result = Translation(suite=suite)
        self._waiting: dict[Path, Data] = dict(_leaves(data, ()))
        self._given = frozenset(self._waiting)
        self._taken: set[Path] = set()
        self._placed: set[str] = set()

    def has(self, path: str | Path) -> bool:
        """Whether this key, or one below it, waits."""
        parts = _parts(path)
        return any(key[: len(parts)] == parts for key in self._waiting)

    def is_given(self, path: str | Path) -> bool:
        """Whether the config has this key, or one below it, waiting or not."""
        parts = _parts(path)
        return any(key[: len(parts)] == parts for key in self._given)

    def take(self, path: str | Path) -> Data:
        """The value of a key, which waits no longer; ``None`` where there is none. ``1e-4`` is a
        number."""
        parts = _parts(path)
        if parts in self._waiting:
            self._taken.add(parts)
        value = self._waiting.pop(parts, None)
        if isinstance(value, str):
            return number_of(value)
        return value

    def take_whole(self, path: str | Path) -> int | None:
        """A whole number from 1 to a thousand million; any other value is left out."""
        value = whole_of(self.take(path))
        if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= _LARGEST:
            return value
        if value is not None:
            self.leave(path, _unfit(value, "a whole number of at least 1"))
        return None

    def take_number(self, path: str | Path) -> float | None:
        """A number above 0, which may be written as text; any other value is left out."""
        value = self.take(path)
        number = math.nan
        if isinstance(value, int | float | str) and not isinstance(value, bool):
            number = _number(value)
        if number > 0 and math.isfinite(number):
            return number
        if value is not None:
            self.leave(path, _unfit(value, "a number above 0"))
        return None

    def take_word(self, path: str | Path) -> str:
        """A word in lower case; empty where there is none."""
        value = self.take(path)
        if value is None:
            return ""
        return str(value).casefold()

    def value(self, target: str) -> Data:
        """The value of a key here; ``None`` where it has none yet."""
        return value_of(self.result.data, target)

    def place(self, target: str, value: Data, *sources: str | Path) -> bool:
        """Set a key here; ``False`` where it has another value already. Sources may be the ends of
        keys; those that are not there, so that the value is a default, are not listed."""
        names = [_name(source) for source in sources if self._is_given(_parts(source))]
        known = self.value(target)
        if known is None:
            put(self.result.data, tuple(target.split(".")), value)
        elif known != value:
            for name in names:
                self._say_left(name, f"{target} has a value already ({known})")
            return False
        self._say_placed(target, names)
        return True

    def join(self, target: str, values: Sequence[Data], *sources: str | Path) -> None:
        """Add values to an axis here."""
        axis = list(as_list(self.value(target)))
        for value in values:
            if value not in axis:
                axis.append(value)
        put(self.result.data, tuple(target.split(".")), axis, replace=True)
        self._say_placed(target, [_name(source) for source in sources])

    def move(self, source: str | Path, target: str) -> None:
        """A key that has the same meaning and values here."""
        if self.has(source):
            value = self.take(source)
            if value is None or value == _AUTO:
                self.leave(source, _ELSEWHERE)
            else:
                self.place(target, value, source)

    def leave(self, path: str | Path, reason: str) -> None:
        """Give a key, or all below it, no place here."""
        self._forget(_parts(path))
        self._say_left(_name(path), reason)

    def settle(self, path: str | Path, text: str) -> None:
        """Say in a sentence that a key, or all below it, loses nothing here."""
        if self.has(path):
            self._forget(_parts(path))
            self.note(f"{_name(path)} {text}")

    def leave_present(self, reasons: Mapping[str, str], above: str = "") -> None:
        """:meth:`leave` for those of these keys that are there."""
        for path, reason in reasons.items():
            if self.has(above + path):
                self.leave(above + path, reason)

    def note(self, text: str) -> None:
        """One sentence on what was assumed or changed."""
        if text not in self.result.notes:
            self.result.notes.append(one_line(text))

    def differ(self, text: str) -> None:
        """What is measured otherwise than there, which a user must see first."""
        if text not in self.result.differs:
            self.result.differs.append(one_line(text))

    def done(self) -> Translation:
        """The translation; what still waits is left out."""
        for path, value in list(self._waiting.items()):
            reason = NO_PLACE
            if value is None or value in ({}, []):
                reason = "is empty"
            self._say_left(_name(path), reason)
        self._waiting.clear()
        self._say_needless()
        return self.result

    def done_as_usual(self) -> Translation:
        """The translation; what still waits is looked for among names that several tools use."""
        rest: dict[str, Data] = {}
        for path, value in self._waiting.items():
            put(rest, path, value)
        self._waiting.clear()
        usual = translated(rest)
        for path, value in _leaves(usual.data, ()):
            if not put(self.result.data, path, value):
                self._say_left(_name(path), "has a value already")
        self.result.renamed.update(usual.renamed)
        for name, reason in usual.left_out.items():
            self._say_left(name, reason)
        self._say_needless()
        return self.result

    def _forget(self, parts: Path) -> None:
        for key in [key for key in self._waiting if key[: len(parts)] == parts]:
            del self._waiting[key]

    def _is_given(self, parts: Path) -> bool:
        length = len(parts)
        return any(key[:length] == parts or key[-length:] == parts for key in self._given)

    def _say_placed(self, target: str, names: Sequence[str]) -> None:
        for name in names:
            self._placed.add(name)
            if name != target:
                self.result.renamed[name] = target

    def _say_needless(self) -> None:
        """Name the keys that were read and changed nothing, such as switches that are off."""
        said = {*self._placed, *self.result.renamed, *self.result.left_out}
        needless = {_short(path) for path in self._taken if not _is_said(path, said)}
        if needless:
            self.note(f"without effect, or the same here: {', '.join(sorted(needless))}")

    def _say_left(self, name: str, reason: str) -> None:
        self.result.left_out.setdefault(one_line(name), one_line(reason))


def is_on(value: Data) -> bool:
    """Whether a switch is on: YAML 1.1 also has ``yes`` and ``on``."""
    return value is True or (isinstance(value, str) and value.casefold() in ("true", "yes", "on"))


def whole_of(value: Data) -> Data:
    """A whole number that is written as text or with a point, as a number; others as they are."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str) and value.isdecimal() and len(value) <= _DIGITS:
        return int(value)
    return value


def with_options(name: str, options: Mapping[str, Data]) -> Data:
    """An entry of a strategy: a plain name where it has no options."""
    if not options:
        return name
    return {"name": name, **options}


def as_list(value: Data) -> list[Data]:
    """One value or several as a list; ``a,b`` is two."""
    if isinstance(value, list):
        return value
    if value is None:
        return []
    if isinstance(value, str) and "," in value:
        return [part.strip() for part in value.split(",")]
    return [value]


def _short(path: Path) -> str:
    """A key's name; of a key deep within groups that repeat, its end."""
    if len(path) > _DEEP:
        return path[-1]
    return ".".join(path)


def _is_said(path: Path, said: Collection[str]) -> bool:
    """Whether a key, its end, what is above it or below it is named among these."""
    name = ".".join(path)
    ends = [".".join(path[start:]) for start in range(len(path))]
    return any(
        one in ends or name.startswith(f"{one}.") or one.startswith(f"{path[-1]}.") for one in said
    )


def _leaves(data: Mapping[str, Data], above: Path) -> Iterator[tuple[Path, Data]]:
    for key, value in data.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, (*above, key))
        else:
            yield (*above, key), value


def _parts(path: str | Path) -> Path:
    if isinstance(path, str):
        return tuple(path.split("."))
    return path


def _name(path: str | Path) -> str:
    return one_line(".".join(_parts(path)))


def _number(value: float | str) -> float:
    """As a number; NaN where it is none."""
    try:
        return float(value)
    except (ValueError, OverflowError):
        return math.nan


def _unfit(value: Data, expected: str) -> str:
    if value == _AUTO:
        return _ELSEWHERE
    return f"expected {expected}, got {shown(value)}"
