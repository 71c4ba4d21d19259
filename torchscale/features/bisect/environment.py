"""What an environment is: the packages in it, a revision of the user's code, and variables."""

from __future__ import annotations

import hashlib
import json

from torchscale.schema.base import Frozen

_DIGEST_CHARACTERS = 12
"""Of a hexadecimal digest: environments of one cache are not mistaken for each other."""


class ProgramEnvironment(Frozen):
    """One set of factors. Without requirements it is the user's own Python, in which nothing is
    installed."""

    requirements: tuple[str, ...] = ()
    """Lines as pip takes them, sorted."""
    revision: str = ""
    """Full name of a commit; empty for the working tree as it is."""
    variables: tuple[tuple[str, str], ...] = ()
    """Names and values, sorted."""

    @property
    def digest(self) -> str:
        """The same for equal environments, on every machine."""
        text = json.dumps(self.model_dump(mode="json"), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:_DIGEST_CHARACTERS]


class Candidate(Frozen):
    """An environment of a bisection, and what people call it."""

    label: str
    environment: ProgramEnvironment


class Factor(Frozen):
    """What differs between both ends."""

    name: str
    """A package, a variable, or ``code``."""
    old: str | None
    """As the good end has it; ``None`` where it has none."""
    new: str | None
    is_variable: bool = False

    @property
    def change(self) -> str:
        """``torch 2.9 → 2.10``, ``NCCL_ALGO=Ring → Tree``."""
        new = "none" if self.new is None else self.new or "''"
        return f"{self.at(is_new=False)} → {new}"

    def at(self, *, is_new: bool) -> str:
        """One of both sides: ``torch 2.9``, ``NCCL_ALGO=Ring``, ``no torch``."""
        value = self.new if is_new else self.old
        if value is None:
            return f"no {self.name}"
        return f"{self.name}={value}" if self.is_variable else f"{self.name} {value}"
