"""The outcome of one check of a node."""

from __future__ import annotations

from enum import Enum

from torchscale.schema.base import Frozen


class Status(str, Enum):
    """Outcome of one check."""

    PASS = "pass"  # noqa: S105 - an outcome, no secret
    WARN = "warn"
    FAIL = "fail"
    NOT_APPLICABLE = "n/a"


class Check(Frozen):
    """One check: what was seen and, unless it passed, what was expected and what to do.

    ``fixes`` are commands that mend it, or show the cause where no command mends it; ``validate``
    runs none of them.
    """

    id: str
    group: str
    title: str
    status: Status
    seen: str
    expected: str = ""
    advice: str = ""
    fixes: tuple[str, ...] = ()
