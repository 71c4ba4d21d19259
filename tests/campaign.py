"""Whether long lists of cases run whole (``make campaign``) or shortened (``make test``)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

WHOLE = bool(os.environ.get("TORCHSCALE_CAMPAIGN"))


def cases(always: Sequence[T], campaign: Sequence[T]) -> list[T]:
    """The cases of every run and, in a campaign, those that take the same paths once more."""
    return [*always, *(campaign if WHOLE else ())]
