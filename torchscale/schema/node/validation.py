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
from torchscale.schema.node.probe import NodeFacts


class Disposition(str, Enum):
    """What to do with a part of a node, from the best to the gravest."""

    KEEP = "keep"
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
    """The whole answer of ``validate --json``. ``fit`` is false when any check failed; ``burn_in``
    and ``acceptance`` are there if they were asked for. ``parts`` says what to do with each GPU and the node, and
    ``unseen`` what that does not rest on."""

    schema_version: Count = SCHEMA_VERSION
    fit: bool
    verdict: str
    checks: tuple[Check, ...]
    facts: NodeFacts
    burn_in: BurnIn | None = None
    acceptance: Acceptance | None = None
    parts: tuple[PartVerdict, ...] = ()
    unseen: tuple[str, ...] = ()


DOCUMENT = PublishedDocument(
    Validation,
    SCHEMA_VERSION,
    "torchscale validation",
    "The checks of a node: `torchscale validate --json`.",
)
