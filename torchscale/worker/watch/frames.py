"""Where a call comes from."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from types import CodeType, FrameType


def is_within(frame: FrameType, functions: AbstractSet[CodeType]) -> bool:
    """Whether one of these functions is further up the stack."""
    outer = frame.f_back
    while outer is not None:
        if outer.f_code in functions:
            return True
        outer = outer.f_back
    return False
