"""The program of a training cell that is the user's own."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from torchscale.config.script import (
    PRECISION,
    ScriptForm,
    ScriptSteps,
    filled_arguments,
    placeholders,
)
from torchscale.schema.base import Frozen

OWN: Literal["own"] = "own"
"""Stands for what a script does by itself and nobody asked it for: its precision, its optimizer, its
strategy."""


class Script(Frozen):
    """A program of the user's own, as a config asks for it.

    Attributes:
        form: Whether the text names a file, a module or a whole command; ``watched`` for a program
            that ``watch`` ran.
        text: The command line with its placeholders.
        steps: ``auto``: measured until a rule of the measurement ends it; a number: so many
            measured steps; ``all``: to its own end.
    """

    form: ScriptForm
    text: str = Field(min_length=1)
    steps: ScriptSteps = "auto"

    @property
    def knows_precision(self) -> bool:
        """Whether it is told its precision."""
        return self._has(PRECISION)

    def _has(self, name: str) -> bool:
        return self.form != "watched" and name in placeholders(self.text)

    def arguments(self, values: Mapping[str, object]) -> list[str]:
        """argv of the program with these values of its placeholders.

        Raises:
            ValueError: the text is no command line.
            KeyError: a placeholder has no value.
        """
        return filled_arguments(self.text, values)

    @property
    def file(self) -> str | None:
        """The Python file that a script names; ``None`` for other forms."""
        if self.form != "script":
            return None
        return shlex.split(self.text)[0]

    @property
    def program(self) -> str | None:
        """The program that a command starts; ``None`` for other forms."""
        if self.form != "command":
            return None
        return shlex.split(self.text)[0]
