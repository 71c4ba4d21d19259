"""What ``validate`` concludes from facts: its checks, and what to do with each part of a node."""

from __future__ import annotations

from enum import Enum

from torchscale.schema.base import (
    SCHEMA_VERSION,
    Count,
    Frozen,
    Name,
)
from torchscale.schema.exports.base import PublishedDocument
from torchscale.schema.node.acceptance import Acceptance
from torchscale.schema.node.burn_in import BurnIn
from torchscale.schema.node.check import Check
from torchscale.schema.node.policy import Policy
from torchscale.schema.node.probe import NodeFacts


class Disposition(str, Enum):
    """What to do with a part of a node, from the best to the gravest. ``UNDECIDED``: no fault was
    found, and too little was looked at to keep it."""

    KEEP = "keep"
    UNDECIDED = "undecided"
    RETEST = "retest"
    RETURN = "return"


class PartVerdict(Frozen):
    """What to do with a GPU, or with the node.

    Attributes:
        part: ``GPU 3 (0000:9b:00.0, GPU-1b3f…)``, or ``node``.
        gpu: Its number as ``nvidia-smi`` shows it; ``None`` for the node, and for a GPU that the
            driver cannot reach.
        action: What to do first; empty where it is kept.
        reasons: What was seen of it.
    """

    part: str
    gpu: Count | None = None
    uuid: Name | None = None
    disposition: Disposition
    action: str = ""
    reasons: tuple[str, ...] = ()


class Validation(Frozen):
    """The whole answer of ``validate --json``.

    Attributes:
        fit: Whether no check failed.
        disposition: The gravest verdict of all parts.
        verdict: That in a sentence; without an acceptance, what the checks say.
        burn_in, acceptance: There if they were asked for.
        policy: What *keep* asked for; ``None`` where no acceptance was asked for.
        parts: What to do with each GPU and the node.
        unseen: What that does not rest on.
    """

    schema_version: Count = SCHEMA_VERSION
    fit: bool
    disposition: Disposition = Disposition.UNDECIDED
    verdict: str
    checks: tuple[Check, ...]
    facts: NodeFacts
    burn_in: BurnIn | None = None
    acceptance: Acceptance | None = None
    policy: Policy | None = None
    parts: tuple[PartVerdict, ...] = ()
    unseen: tuple[str, ...] = ()


DOCUMENT = PublishedDocument(
    Validation,
    SCHEMA_VERSION,
    "torchscale validation",
    "The checks of a node: `torchscale validate --json`.",
)
