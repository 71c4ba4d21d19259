"""What ``validate`` concludes from facts."""

from __future__ import annotations

from enum import Enum

from torchscale.schema.base import SCHEMA_VERSION, Frozen
from torchscale.schema.node.burn_in import BurnIn
from torchscale.schema.node.probe import NodeFacts


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


class Validation(Frozen):
    """The whole answer of ``validate --json``. ``fit`` is false when any check failed; ``burn_in``
    is there if one was asked for."""

    schema_version: int = SCHEMA_VERSION
    fit: bool
    verdict: str
    checks: tuple[Check, ...]
    facts: NodeFacts
    burn_in: BurnIn | None = None
