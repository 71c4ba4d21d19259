from __future__ import annotations

from torchscale.features.validate.health.rule import (
    COLLECTIVE,
    GPUS,
    HOST,
    HealthRules,
    RuleOutcome,
    not_applicable,
    passed,
)
from torchscale.schema.node.check import Status
from torchscale.schema.node.probe import CollectiveFacts, GpuFacts, HostFacts, NodeFacts

RULES = HealthRules()


@RULES.rule_on_node("name", "host", "host name", HOST)
def name(host: HostFacts, facts: NodeFacts) -> RuleOutcome:
    return passed(f"{host.hostname}, driver read: {facts.driver is not None}")


@RULES.rule("gpus", "GPUs", "GPUs", GPUS)
def gpus(found: tuple[GpuFacts, ...]) -> RuleOutcome:
    return not_applicable(f"{len(found)} GPUs")


@RULES.rule("sum", "collective", "sum", COLLECTIVE)
def total(allreduce: CollectiveFacts) -> RuleOutcome:
    return passed(allreduce.backend)


def test_a_rule_is_given_its_facts_and_names_its_check() -> None:
    check = name(NodeFacts(host=HostFacts(hostname="n1", cores=4)))
    assert (check.id, check.group, check.title) == ("name", "host", "host name")
    assert (check.status, check.seen) == (Status.PASS, "n1, driver read: False")


def test_a_rule_whose_facts_are_missing_is_not_called_and_says_why() -> None:
    check = name(NodeFacts(unknown={"host": "PermissionError: /proc"}))
    assert (check.status, check.seen) == (
        Status.WARN,
        "could not be checked: PermissionError: /proc",
    )
    assert name(NodeFacts()).seen == "could not be checked: not reported"
    assert total(NodeFacts()).seen == "could not be checked: not run"


def test_a_rule_about_gpus_is_called_without_a_driver_too() -> None:
    assert gpus(NodeFacts()).seen == "0 GPUs"


def test_rules_run_in_the_order_of_their_definition() -> None:
    assert [rule(NodeFacts()).id for rule in RULES] == ["name", "gpus", "sum"]
