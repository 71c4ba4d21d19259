"""A config of another tool with the keys that they have here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from torchscale.config.dump import to_yaml_text
from torchscale.config.messages import EXPONENTIAL, dotted_keys, keys_of, nearest_key
from torchscale.config.other_names import OTHER_KEYS, SAME_PRECISIONS
from torchscale.config.yaml_reader import MAX_WHOLE, Data, KeyPath, format_path
from torchscale.util.text import one_line

_PRECISION = ("training", "precision")
_NAMED = 3
"""Keys that the first line names; all are listed."""


@dataclass
class Translation:
    """A config with keys of this version.

    Attributes:
        data: The config.
        renamed: Key there → key here, dotted, where they differ.
        left_out: Key there, dotted → why it has no place here.
        suite: The tool whose form it has; empty where it is not recognized.
        missing: Why it does not run yet; empty where it does.
        differs: What is measured otherwise than there.
        notes: What was assumed, and what needs no key here.
    """

    data: dict[str, Data] = field(default_factory=dict)
    renamed: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    suite: str = ""
    missing: list[str] = field(default_factory=list)
    differs: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def to_yaml(self, source: str) -> str:
        """The config file; its comments say what was renamed and what was left out.

        Args:
            source: What the comments call the config that was read.
        """
        lines = [
            f"A torchscale experiment, from {source}.",
            "Every key: `torchscale docs configuration`",
        ]
        lines += [f"does not run yet: {reason}" for reason in self.missing]
        lines += [*self.differs, *self.notes]
        lines += [f"{old} is {new} here" for old, new in self.renamed.items()]
        lines += [f"left out: {key}: {reason}" for key, reason in self.left_out.items()]
        return "".join(f"# {one_line(line)}\n" for line in lines) + to_yaml_text(self.data)

    def summary(self, file: str, source: str) -> list[str]:
        """What a user is told; the first line says whether the config runs, and whether all of the
        source is in it.

        Args:
            file: The config that was written.
            source: The config that was read.
        """
        lines = [self._first_line(file, source)]
        if self.missing:  # else the first line has them
            lines += [f"  {text}" for text in self.differs]
        lines += [f"  {text}" for text in self.notes]
        lines += [f"  {old} → {new}" for old, new in self.renamed.items()]
        lines += [f"  {key} left out: {reason}" for key, reason in self.left_out.items()]
        return [one_line(line) for line in lines]

    def _first_line(self, file: str, source: str) -> str:
        if self.missing:
            return "; ".join([f"{file} does not run yet: {self.missing[0]}", *self.missing[1:]])
        kind = f" ({self.suite})" if self.suite else ""
        parts = [f"Wrote {file} from {source}{kind}", *self.differs]
        if self.left_out:
            named = ", ".join(list(self.left_out)[:_NAMED])
            more = " …" if len(self.left_out) > _NAMED else ""
            parts.append(f"not in it, with the reason below: {named}{more}")
        return "; ".join(parts)


def translated(data: Mapping[str, Data]) -> Translation:
    """Move every key of a config to its place here.

    Names are taken from the table of other names, or are those of a single key here. A key that
    only resembles one is left out: what it meant is not known.
    """
    translation = Translation()
    for path, value in _settings(data):
        key = format_path(path)
        target = path if _is_known(path) else _target(key)
        if path == ("model",) and not isinstance(value, dict):
            target = ("models",)  # a name; here the settings of all models
        name = one_line(key)  # a line break would end the comment that names it
        if target is None:
            reason = f"unknown key{nearest_key(key, keys_of(path[:-1]))}"
            translation.left_out[name] = reason
        elif not put(translation.data, target, _value(target, value)):
            translation.left_out[name] = f"{format_path(target)} has a value already"
        elif target != path:
            translation.renamed[name] = format_path(target)
    return translation


def _settings(data: Mapping[str, Data], above: KeyPath = ()) -> Iterator[tuple[KeyPath, Data]]:
    """Path and value of every key that is no section, here or there."""
    for key, value in data.items():
        path = (*above, key)
        is_section = not _is_known(path) or bool(keys_of(path))
        if isinstance(value, dict) and value and is_section:
            yield from _settings(value, path)
        else:
            yield path, value


def _is_known(path: KeyPath) -> bool:
    return path[-1] in keys_of(path[:-1])


def _target(key: str) -> KeyPath | None:
    name = key.rpartition(".")[2]
    if key in OTHER_KEYS:
        return tuple(OTHER_KEYS[key].split("."))
    renamed = {here for there, here in OTHER_KEYS.items() if there.rpartition(".")[2] == name}
    same = renamed or {known for known in dotted_keys() if known.rpartition(".")[2] == name}
    if len(same) == 1:
        return tuple(same.pop().split("."))
    return None


def put(data: dict[str, Data], path: KeyPath, value: Data, *, replace: bool = False) -> bool:
    """Set a key; ``False`` where it has a value that is not to be replaced."""
    here = data
    for part in path[:-1]:
        section = here.setdefault(str(part), {})
        if not isinstance(section, dict):
            return False
        here = section
    if path[-1] in here and not replace:
        return False
    here[str(path[-1])] = value
    return True


def value_of(data: Mapping[str, Data], dotted_key: str) -> Data:
    """The value of a key; ``None`` where there is none."""
    here: Data = dict(data)
    for part in dotted_key.split("."):
        if not isinstance(here, dict):
            return None
        here = here.get(part)
    return here


def _value(path: KeyPath, value: Data) -> Data:
    """The value in words of this version: ``float16`` is ``fp16``, ``1e-3`` a number."""
    if isinstance(value, list):
        return [_value(path, item) for item in value]
    if not isinstance(value, str):
        return value
    if path == _PRECISION:
        return SAME_PRECISIONS.get(value.casefold(), value)
    return number_of(value)


def number_of(text: str) -> Data:
    """``1e-3`` as a number, which YAML reads as text; any other text as it is."""
    if not EXPONENTIAL.fullmatch(text):
        return text
    number = float(text)
    if number.is_integer() and abs(number) <= MAX_WHOLE:
        return int(number)
    return number
