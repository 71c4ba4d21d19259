"""Settings and gains as text."""

from __future__ import annotations

from collections.abc import Sequence

from torchscale.features.decide.tune.export_schema import ChangeExport, RatioExport
from torchscale.util.interval_text import format_estimate
from torchscale.util.units import format_change


def setting_label(changes: Sequence[ChangeExport]) -> str:
    """``compile=true fused=true``; those that change more than speed with an asterisk."""
    return " ".join(f"{one.axis}={one.value}{'*' * bool(one.note)}" for one in changes) or "start"


def format_gain(ratio: RatioExport) -> str:
    """``+4.2 % (+2.9 to +5.6 %)``: the change with its 95 % interval."""
    ends = ratio.low, ratio.high
    return format_estimate(ratio.ratio, ends, lambda one: format_change(one - 1))
