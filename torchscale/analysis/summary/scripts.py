"""Scripts of a user's own that have one name and differ in their arguments."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from torchscale.schema.cells.training import TrainingCell

ARGUMENT = "argument "
"""How the names of :func:`named_arguments` begin."""
_MAX_CHARACTERS = 40
"""Of arguments in a name: more make a table of names alone."""


def differing_arguments(cells: Iterable[TrainingCell]) -> dict[str, str]:
    """Cell id → the arguments that not all scripts of its name have; without cells that have
    none."""
    named: dict[str, dict[str, list[str]]] = {}
    for cell in cells:
        if cell.script is not None:
            texts = named.setdefault(cell.model, {})
            texts.setdefault(cell.script.text, []).append(cell.id)
    return {
        cell_id: words
        for texts in named.values()
        for text, words in _differing(list(texts)).items()
        for cell_id in texts[text]
        if words
    }


def _differing(texts: Sequence[str]) -> dict[str, str]:
    arguments = {text: _arguments(text) for text in texts}
    common = Counter(arguments[texts[0]])
    for each in arguments.values():
        common &= Counter(each)
    found = {text: " ".join(_without(each, common)) for text, each in arguments.items()}
    if len(set(found.values())) < len(found):  # they differ in their order alone
        found = {text: " ".join(each[1:]) for text, each in arguments.items()}
    return _cut(found)


def _arguments(text: str) -> list[str]:
    """Words of a command line, an option together with its value."""
    joined: list[str] = []
    for word in shlex.split(text):
        takes_it = joined and joined[-1].startswith("-") and not set(" =") & set(joined[-1])
        if takes_it and not word.startswith("-"):
            joined[-1] += f" {word}"
        else:
            joined.append(word)
    return joined


def named_arguments(text: str) -> dict[str, str]:
    """The words of a command line by what they are: ``argument 1`` for the first that is no option,
    ``argument --lr`` for an option, whose value is ``given`` where it has none; all values of an
    option that is repeated."""
    named: dict[str, list[str]] = {}
    places = 0
    for argument in _arguments(text):
        name, value = argument, "given"
        if not argument.startswith("-"):
            places += 1
            name, value = str(places), argument
        elif set(" =") & set(argument):
            name, value = re.split("[ =]", argument, maxsplit=1)
        named.setdefault(ARGUMENT + name, []).append(value)
    return {name: ", ".join(values) for name, values in named.items()}


def _without(arguments: Sequence[str], common: Counter[str]) -> list[str]:
    left, kept = Counter(common), []
    for argument in arguments:
        if left[argument]:
            left[argument] -= 1
        else:
            kept.append(argument)
    return kept


def _cut(found: Mapping[str, str]) -> dict[str, str]:
    """Of long ones the beginning, else the end, whichever still tells them apart."""
    room = _MAX_CHARACTERS - 1
    for begin, end in ((room, 0), (0, room)):
        cut = {
            text: words
            if len(words) <= _MAX_CHARACTERS
            else f"{words[:begin]}…{words[len(words) - end :]}"
            for text, words in found.items()
        }
        if len(set(cut.values())) == len(cut):
            return cut
    return dict(found)
