"""How a rule words its outcome."""

from __future__ import annotations

from torchscale.schema.check import Check, Status

Rule = tuple[str, str, str]
"""A check's id, group and title."""


def passed(rule: Rule, seen: str) -> Check:
    """All is well."""
    return _check(rule, Status.PASS, seen)


def warned(rule: Rule, seen: str, expected: str, advice: str) -> Check:
    """It works, and may hurt."""
    return _check(rule, Status.WARN, seen, expected, advice)


def failed(rule: Rule, seen: str, expected: str, advice: str) -> Check:
    """It does not work, or results cannot be trusted."""
    return _check(rule, Status.FAIL, seen, expected, advice)


def not_applicable(rule: Rule, seen: str) -> Check:
    """There is nothing here to check."""
    return _check(rule, Status.NOT_APPLICABLE, seen)


def unknown(rule: Rule, reason: str | None) -> Check:
    """The facts are missing: nothing is judged, and why is said."""
    advice = "see what the probe itself says: python -m torchscale.worker.probe"
    return _check(rule, Status.WARN, f"could not be looked at: {reason or 'not reported'}", "", advice)


def _check(rule: Rule, status: Status, seen: str, expected: str = "", advice: str = "") -> Check:
    identity, group, title = rule
    return Check(id=identity, group=group, title=title, status=status, seen=seen, expected=expected, advice=advice)
