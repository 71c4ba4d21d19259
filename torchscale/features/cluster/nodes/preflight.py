"""What must be equal on all nodes before the first launch. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torchscale.features.cluster.nodes.descriptions import (
    CheckDescription,
    Description,
    NodeDescription,
)
from torchscale.util.text import one_line

MAX_CLOCK_OFFSET_SECONDS = 5.0
"""Failures of ranks are put in order by their times, and the earliest is taken for the cause. A
rank fails within a few seconds of another; clocks that NTP keeps differ by milliseconds."""
_LONG_AGO = 1e10
"""Seconds, of 300 years: a clock that is so far off shows no time, whose digits do not matter."""
_MAX_SHOWN = 120
"""Characters of a value in a message."""
_MAX_NAMED = 8
"""Differences in a message: with the longest values they fit into the 2,000 characters that a node
is told."""


def differences(first: Description, other: Description) -> list[str]:
    """What of ``other`` differs from the first node, each as ``torch: 2.12.0, 2.13.0 on n1``; empty
    where nothing that matters does."""
    where = f"on {first.hostname}"
    if isinstance(first, NodeDescription) and isinstance(other, NodeDescription):
        differing: list[tuple[str, object, object]] = list(_pairs(first, other))
    elif isinstance(first, CheckDescription) and isinstance(other, CheckDescription):
        names = sorted({*first.settings, *other.settings})
        values = [(name, first.settings.get(name), other.settings.get(name)) for name in names]
        differing = [(name, ours, theirs) for name, ours, theirs in values if ours != theirs]
    else:
        differing = [("command", _command(first), _command(other))]
    return [
        f"{_shown(name)}: {_shown(theirs)}, {_shown(ours)} {where}"
        for name, ours, theirs in differing
    ]


def first_of(differing: Sequence[str]) -> str:
    """The first differences in a line: configs of two experiments differ in all their keys."""
    shown = list(differing[:_MAX_NAMED])
    if len(differing) > _MAX_NAMED:
        shown.append(f"and {len(differing) - _MAX_NAMED} more")
    return "; ".join(shown)


def clock_text(offset_seconds: float) -> str:
    """``2.0 s ahead``."""
    seconds = f"{abs(offset_seconds):.1f} s"
    if abs(offset_seconds) >= _LONG_AGO:
        seconds = f"{abs(offset_seconds):.3g} s"
    if offset_seconds > 0:
        return f"{seconds} ahead"
    return f"{seconds} behind"


def _command(description: Description) -> str:
    return "benchmark" if isinstance(description, NodeDescription) else "validate"


def _pairs(first: NodeDescription, other: NodeDescription) -> Iterator[tuple[str, object, object]]:
    """Name, value on the first node, value on the other, of all that differs; the cause before its
    consequences."""
    ours, theirs = first.versions.model_dump(), other.versions.model_dump()
    values: list[tuple[str, object, object]] = [(name, ours[name], theirs[name]) for name in ours]
    config = sorted({*first.config, *other.config})
    values += [(name, first.config.get(name), other.config.get(name)) for name in config]
    values += [
        ("device", first.device, other.device),
        ("device names", ", ".join(first.device_names), ", ".join(other.device_names)),
        ("devices per node", first.devices_per_node, other.devices_per_node),
        ("threads per rank", first.threads_per_rank, other.threads_per_rank),
    ]
    differing = [(name, mine, its) for name, mine, its in values if mine != its]
    if not differing and first.plan_hash != other.plan_hash:
        differing = [("plan", first.plan_hash, other.plan_hash)]
    yield from differing


def _shown(value: object) -> str:
    if value is None:
        return "none"
    text = one_line(str(value))
    if len(text) <= _MAX_SHOWN:
        return text
    return text[:_MAX_SHOWN] + "…"
