"""An entry of ``models`` that is a program of the user's own: a script, a module or a whole command,
with placeholders for what the sweep changes."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Literal

from pydantic import BeforeValidator, ConfigDict, Field, field_validator, model_validator

from torchscale.catalog.model_facts import OptionValue
from torchscale.config.base import ConfigSection, PositiveInt, as_axis
from torchscale.util.text import program_name

ScriptForm = Literal["script", "module", "command", "watched"]
ScriptSteps = Literal["auto", "all"] | PositiveInt
FORMS: tuple[ScriptForm, ...] = ("script", "module", "command", "watched")
BATCH, PRECISION, WORLD_SIZE, SEED = "batch_size", "precision", "world_size", "seed"
PLACEHOLDERS = (BATCH, WORLD_SIZE, "gpus", PRECISION, SEED)
"""What every script may name; ``gpus`` is short for ``world_size``."""
_PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")
MAX_CHARACTERS = 8192
"""Of a command line: far more than a person writes, and a part of each cell's file."""


def placeholders(text: str) -> tuple[str, ...]:
    """The names in braces, each once. Other braces, as of JSON, are text."""
    return tuple(dict.fromkeys(_PLACEHOLDER.findall(text)))


def filled_arguments(text: str, values: Mapping[str, object]) -> list[str]:
    """The words of a command line as a shell would split it, with the values of its placeholders.
    A value is never split: one with spaces stays one argument.

    Raises:
        ValueError: a quotation has no end.
        KeyError: a placeholder has no value.
    """
    return [
        _PLACEHOLDER.sub(lambda match: str(values[match[1]]), word) for word in shlex.split(text)
    ]


class ScriptChoice(ConfigSection):
    """A program of the user's own. Keys beside those below are axes of its own: placeholders with a
    value, or with a list of them."""

    model_config = ConfigDict(extra="allow")

    script: str | None = Field(
        None, description="A Python file and its arguments, launched under torchrun."
    )
    module: str | None = Field(
        None, description="A module and its arguments (python -m), launched under torchrun."
    )
    command: str | None = Field(
        None, description="A whole command with its own launcher, which starts {world_size} ranks."
    )
    watched: str | None = Field(
        None, description="A program that `torchscale watch` ran; a benchmark does not start it."
    )
    steps: ScriptSteps = Field(
        "auto",
        description="auto: measured by the rules of `benchmark`, then ended; a number: so many "
        "measured steps; all: it runs to its own end.",
    )

    __pydantic_extra__: dict[str, Annotated[tuple[OptionValue, ...], BeforeValidator(as_axis)]]

    @field_validator("script", "module", "command", "watched")
    @classmethod
    def _can_be_split(cls, text: str | None) -> str | None:
        if text is None:
            return text
        if len(text) > MAX_CHARACTERS or "\0" in text:
            raise ValueError(f"expected a command line of at most {MAX_CHARACTERS:,} characters")
        try:
            words = shlex.split(text)
        except ValueError as error:
            raise ValueError(f"not a command line: {error}") from error
        if not words:
            raise ValueError("expected a program and its arguments")
        return text

    @model_validator(mode="after")
    def _one_form(self) -> ScriptChoice:
        given = [form for form in FORMS if getattr(self, form) is not None]
        if len(given) != 1:
            raise ValueError(
                f"expected one of script, module and command; got {' and '.join(given)}"
            )
        return self

    @model_validator(mode="after")
    def _placeholders_fit(self) -> ScriptChoice:
        used, given = self.placeholders, self.axes
        reserved = [name for name in given if name in PLACEHOLDERS]
        if reserved:
            raise ValueError(
                f"{reserved[0]!r} is set by the sweep: use the keys of the config "
                "(batch_sizes, gpu_counts, training.precision, training.seed)"
            )
        unknown = [name for name in used if name not in PLACEHOLDERS and name not in given]
        if unknown:
            known = ", ".join(f"{{{name}}}" for name in (*PLACEHOLDERS, *given))
            raise ValueError(
                f"{{{unknown[0]}}} has no value: add the key {unknown[0]!r} beside it, or use one "
                f"of {known}"
            )
        unused = [name for name in given if name not in used]
        if unused:
            raise ValueError(
                f"nothing uses the key {unused[0]!r}: write {{{unused[0]}}} into the command line, "
                "or remove the key"
            )
        return self

    @cached_property
    def form(self) -> ScriptForm:
        """Which of the three it is."""
        return next(form for form in FORMS if getattr(self, form) is not None)

    @property
    def text(self) -> str:
        """The command line as written."""
        return str(getattr(self, self.form))

    @property
    def axes(self) -> dict[str, tuple[OptionValue, ...]]:
        """Axes of its own: placeholder → values."""
        return dict(self.__pydantic_extra__ or {})

    @property
    def name(self) -> str:
        """``train.py``, ``package.train``, or the program that a command runs."""
        words = shlex.split(self.text)
        if self.form == "module":
            return words[0]
        if self.form in ("command", "watched"):
            return program_name(words)
        return words[0].rpartition("/")[2]

    @property
    def options(self) -> dict[str, OptionValue]:
        """Axes with a single value."""
        return {name: values[0] for name, values in self.axes.items() if len(values) == 1}

    @property
    def placeholders(self) -> tuple[str, ...]:
        """Those of the command line; of a watched program braces are text."""
        if self.form == "watched":
            return ()
        return placeholders(self.text)

    def uses(self, name: str) -> bool:
        """Whether the command line has this placeholder."""
        return name in self.placeholders
