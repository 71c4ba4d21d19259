"""What must be equal on all nodes before the first launch. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from torchscale.schema.launch.nodes import NodeDescription

MAX_CLOCK_OFFSET_SECONDS = 5.0
"""Failures of ranks are put in order by their times, and the earliest is taken for the cause. A rank fails within a few
seconds of another; clocks that NTP keeps differ by milliseconds."""
_MAX_SHOWN = 120
"""Characters of a value in a message."""


def differences(first: NodeDescription, other: NodeDescription) -> list[str]:
    """What of ``other`` differs from the first node, each as ``torch: 2.12.0, 2.13.0 on n1``; empty where nothing
    that matters does."""
    where = f"on {first.hostname}"
    return [f"{name}: {_shown(theirs)}, {_shown(ours)} {where}" for name, ours, theirs in _pairs(first, other)]


def _pairs(first: NodeDescription, other: NodeDescription) -> Iterator[tuple[str, object, object]]:
    """Name, value on the first node, value on the other, of all that differs; the cause before its consequences."""
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
    text = "none" if value is None else str(value)
    return text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "…"
