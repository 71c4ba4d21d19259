"""The outcomes of a rule, as checks."""

from __future__ import annotations

from torchscale.analysis.health import fixes
from torchscale.schema.node.check import Check, Status
from torchscale.schema.node.probe import GpuFacts, NodeFacts

Rule = tuple[str, str, str]
"""A check's id, group and title."""


def passed(rule: Rule, seen: str) -> Check:
    """A check that holds, with the value seen."""
    return _check(rule, Status.PASS, seen)


def warned(rule: Rule, seen: str, expected: str, advice: str, commands: fixes.Fixes) -> Check:
    """Training works, but may be slow or unreliable. ``commands`` mend it, or show the cause."""
    return _check(rule, Status.WARN, seen, expected, advice, commands=commands)


def failed(rule: Rule, seen: str, expected: str, advice: str, commands: fixes.Fixes) -> Check:
    """Training fails, or its results cannot be trusted. ``commands`` mend it, or show the cause."""
    return _check(rule, Status.FAIL, seen, expected, advice, commands=commands)


def not_applicable(rule: Rule, seen: str) -> Check:
    """The rule does not apply to this node."""
    return _check(rule, Status.NOT_APPLICABLE, seen)


def unknown(rule: Rule, reason: str | None) -> Check:
    """The facts for the rule are missing; ``reason`` says why."""
    advice = "run the probe to see its output: python -m torchscale.worker.probe"
    seen = f"could not be checked: {reason or 'not reported'}"
    return _check(rule, Status.WARN, seen, "", advice, commands=fixes.PROBE)


def gpus_of(facts: NodeFacts) -> tuple[GpuFacts, ...]:
    """That the driver lists."""
    if facts.driver is None:
        return ()
    return facts.driver.gpus


def cuda_devices_of(facts: NodeFacts) -> int | None:
    """How many torch may use; ``None`` where that is not known."""
    if facts.software is None:
        return None
    return facts.software.cuda_devices


def _check(
    rule: Rule,
    status: Status,
    seen: str,
    expected: str = "",
    advice: str = "",
    *,
    commands: fixes.Fixes = (),
) -> Check:
    identity, group, title = rule
    return Check(
        id=identity,
        group=group,
        title=title,
        status=status,
        seen=seen,
        expected=expected,
        advice=advice,
        fixes=commands,
    )
