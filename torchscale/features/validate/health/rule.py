"""How a health rule is registered and called, and what it may say.

A rule is a function from one group of a node's facts to a :class:`RuleOutcome`. The decorator names
the check and the group::

    @HOST_RULES.rule("open_files", "host", "ulimit -n (open files)", HOST)
    def open_files(host: HostFacts) -> RuleOutcome: ...

What it leaves under the function's name takes all facts of a node and returns the check: that the
facts are missing, and why, or what the function says. ``rule_on_node`` is for rules that look at
other groups beside theirs, of which any may be missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import wraps
from typing import Generic, TypeVar

from torchscale.features.validate.health import fixes
from torchscale.schema.node.check import Check, Status
from torchscale.schema.node.probe import (
    CollectiveFacts,
    DiskFacts,
    DriverFacts,
    GpuFacts,
    HostFacts,
    KernelLogFacts,
    NodeFacts,
    NsysFacts,
    SoftwareFacts,
    SystemFacts,
)

Facts = TypeVar("Facts")
NodeRule = Callable[[NodeFacts], Check]


@dataclass(frozen=True)
class RuleOutcome:
    """What a rule says: the value seen and, unless it passed, what was expected and what to do.

    ``commands`` mend it, or show the cause where no command mends it.
    """

    status: Status
    seen: str
    expected: str = ""
    advice: str = ""
    commands: fixes.Fixes = ()

    def check(self, identity: str, group: str, title: str) -> Check:
        """The outcome under the name of its rule."""
        return Check(
            id=identity,
            group=group,
            title=title,
            status=self.status,
            seen=self.seen,
            expected=self.expected,
            advice=self.advice,
            fixes=self.commands,
        )


def passed(seen: str) -> RuleOutcome:
    """The outcome of a check that passed, with the value seen."""
    return RuleOutcome(Status.PASS, seen)


def warned(seen: str, expected: str, advice: str, commands: fixes.Fixes) -> RuleOutcome:
    """Training works, but may be slow or unreliable."""
    return RuleOutcome(Status.WARN, seen, expected, advice, commands)


def failed(seen: str, expected: str, advice: str, commands: fixes.Fixes) -> RuleOutcome:
    """Training fails, or its results cannot be trusted."""
    return RuleOutcome(Status.FAIL, seen, expected, advice, commands)


def not_applicable(seen: str) -> RuleOutcome:
    """The rule does not apply to this node."""
    return RuleOutcome(Status.NOT_APPLICABLE, seen)


def unknown(reason: str | None = None) -> RuleOutcome:
    """The facts for the rule are missing; ``reason`` says why."""
    advice = "run the probe to see its output: python -m torchscale.worker.probe"
    seen = f"could not be checked: {reason or 'not reported'}"
    return RuleOutcome(Status.WARN, seen, "", advice, fixes.PROBE)


@dataclass(frozen=True)
class FactGroup(Generic[Facts]):
    """Facts that a rule needs.

    Attributes:
        name: Name of the group whose reason in ``NodeFacts.unknown`` says why they are missing.
        read: The facts; ``None`` where they are missing.
        without_reason: What is said where no reason is known.
    """

    name: str
    read: Callable[[NodeFacts], Facts | None]
    without_reason: str = "not reported"

    def why_missing(self, facts: NodeFacts) -> str:
        """The reason that the probe gave."""
        return facts.unknown.get(self.name, self.without_reason)


def gpus_of(facts: NodeFacts) -> tuple[GpuFacts, ...]:
    """GPUs that the driver lists."""
    if facts.driver is None:
        return ()
    return facts.driver.gpus


def cuda_devices_of(facts: NodeFacts) -> int | None:
    """How many torch may use; ``None`` where that is not known."""
    if facts.software is None:
        return None
    return facts.software.cuda_devices


SOFTWARE: FactGroup[SoftwareFacts] = FactGroup("software", lambda facts: facts.software)
DRIVER: FactGroup[DriverFacts] = FactGroup("driver", lambda facts: facts.driver)
DRIVER_IF_ANY: FactGroup[DriverFacts] = FactGroup(
    "driver", lambda facts: facts.driver or DriverFacts()
)
"""Facts of the driver for rules that do not apply without GPUs, whatever the reason."""
GPUS: FactGroup[tuple[GpuFacts, ...]] = FactGroup("driver", gpus_of)
"""None of them where the driver was not read."""
HOST: FactGroup[HostFacts] = FactGroup("host", lambda facts: facts.host)
SYSTEM: FactGroup[SystemFacts] = FactGroup("system", lambda facts: facts.system)
KERNEL: FactGroup[KernelLogFacts] = FactGroup("kernel", lambda facts: facts.kernel)
DISK: FactGroup[DiskFacts] = FactGroup("disk", lambda facts: facts.disk)
NSYS: FactGroup[NsysFacts] = FactGroup("nsys", lambda facts: facts.nsys)
COLLECTIVE: FactGroup[CollectiveFacts] = FactGroup(
    "collective", lambda facts: facts.collective, without_reason="not run"
)
NODE: FactGroup[NodeFacts] = FactGroup("node", lambda facts: facts)
"""All of them, for rules of which no single group decides whether they can judge."""


class HealthRules:
    """Rules of one subject, in the order in which they are defined and their checks are shown."""

    def __init__(self) -> None:
        self._rules: list[NodeRule] = []

    def __iter__(self) -> Iterator[NodeRule]:
        return iter(self._rules)

    def rule(
        self, identity: str, group: str, title: str, needs: FactGroup[Facts]
    ) -> Callable[[Callable[[Facts], RuleOutcome]], NodeRule]:
        """Registers a function of one group of facts.

        Args:
            identity: The check's ``id`` in ``validate --json``.
            group: The heading under which the check is shown.
            title: The check's name under that heading.
            needs: What the function is given.
        """

        def register(judge: Callable[[Facts], RuleOutcome]) -> NodeRule:
            @wraps(judge)
            def judged(found: Facts, _: NodeFacts) -> RuleOutcome:
                return judge(found)

            return self.rule_on_node(identity, group, title, needs)(judged)

        return register

    def rule_on_node(
        self, identity: str, group: str, title: str, needs: FactGroup[Facts]
    ) -> Callable[[Callable[[Facts, NodeFacts], RuleOutcome]], NodeRule]:
        """Registers a function that is given all facts of the node beside its group of facts;
        otherwise as :meth:`rule`."""

        def register(judge: Callable[[Facts, NodeFacts], RuleOutcome]) -> NodeRule:
            @wraps(judge)
            def check_node(facts: NodeFacts) -> Check:
                found = needs.read(facts)
                if found is None:
                    outcome = unknown(needs.why_missing(facts))
                else:
                    outcome = judge(found, facts)
                return outcome.check(identity, group, title)

            self._rules.append(check_node)
            return check_node

        return register
