"""Where the start of a rank went, from its process to the end of its first step."""

from __future__ import annotations

from pydantic import Field

from torchscale.schema.base import Count, Frozen, Seconds

PARTS = {
    "imports": "interpreter and imports",
    "before_group": "until the process group",
    "group": "process group",
    "before_collective": "until the first collective",
    "loading": "checkpoint load",
    "compiling": "compile",
    "first_step": "first step",
}
"""Name of a part → as it is shown, in the order of time."""


class RankStart(Frozen):
    """Seconds of a rank's start by part. Parts never overlap, and add up to all of it.

    Attributes:
        rank: Which.
        imports: Of the interpreter, until torch was imported; 0 where its import was not seen.
        before_group: Of the program itself, until it called ``init_process_group``.
        group: In that call: it meets the other ranks, and waits for the last of them.
        before_collective: Of the program itself, from there to its first collective.
        loading: Of checkpoints, wherever it came.
        compiling: By torch.compile, wherever it came.
        first_step: All else, until the first step had ended; waiting for other ranks is in it.
        places: Part → the line of the program that it was at for most of it, as
            ``train.py:88 (load)``; none where no line was.
    """

    rank: Count
    imports: Seconds = 0.0
    before_group: Seconds = 0.0
    group: Seconds = 0.0
    before_collective: Seconds = 0.0
    loading: Seconds = 0.0
    compiling: Seconds = 0.0
    first_step: Seconds = 0.0
    places: dict[str, str] = Field(default_factory=dict)

    @property
    def total(self) -> float:
        """From the start of the process to the end of its first step."""
        return float(sum(self.part(name) for name in PARTS))

    def part(self, name: str) -> float:
        """Seconds of a part."""
        return float(getattr(self, name))
