"""What is known of a job whose programs have roles: ``watch DIR --json`` and ``report DIR``."""

from __future__ import annotations

from typing import Literal

from torchscale.schema.base import SCHEMA_VERSION, Count, Frozen
from torchscale.schema.watch.report import WatchReport


class WatchedRoles(Frozen):
    """The programs of a job, each judged by itself: their ranks are counted, and wait, apart.

    Attributes:
        roles: Those that were judged, in the order of their names.
        unjudged: Roles of which nothing is known yet.
    """

    schema_version: Count = SCHEMA_VERSION
    kind: Literal["watch-roles"] = "watch-roles"
    roles: tuple[WatchReport, ...]
    unjudged: tuple[str, ...] = ()
