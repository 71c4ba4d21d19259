"""What must be equal on all nodes, and how a difference is named."""

from __future__ import annotations

from typing import Any

import pytest

from tests.factories import VERSIONS
from torchscale.features.cluster.nodes.descriptions import CheckDescription, NodeDescription
from torchscale.features.cluster.nodes.preflight import differences


def description(**changes: Any) -> NodeDescription:
    """A node with four devices."""
    defaults: dict[str, Any] = {
        "hostname": "n0",
        "versions": VERSIONS,
        "device": "cuda",
        "device_names": ("NVIDIA H100",),
        "devices_per_node": 4,
        "threads_per_rank": 8,
        "plan_hash": "abc",
        "config": {"benchmark.max_steps": "400", "launch.env": "{}"},
    }
    return NodeDescription(**{**defaults, **changes})


def test_equal_nodes_fit() -> None:
    assert differences(description(), description(hostname="n1")) == []


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"versions": VERSIONS.model_copy(update={"torch": "2.12.0"})},
            "torch: 2.12.0, 2.13.0 on n0",
        ),
        ({"versions": VERSIONS.model_copy(update={"nccl": "2.21"})}, "nccl: 2.21, none on n0"),
        (
            {"config": {"benchmark.max_steps": "40", "launch.env": "{}"}},
            "benchmark.max_steps: 40, 400 on n0",
        ),
        ({"config": {"benchmark.max_steps": "400"}}, "launch.env: none, {} on n0"),
        ({"devices_per_node": 8}, "devices per node: 8, 4 on n0"),
        ({"device_names": ("NVIDIA A100",)}, "device names: NVIDIA A100, NVIDIA H100 on n0"),
        ({"threads_per_rank": 1}, "threads per rank: 1, 8 on n0"),
        ({"plan_hash": "abd"}, "plan: abd, abc on n0"),
    ],
)
def test_a_difference_is_named_with_both_values(changes: dict[str, Any], expected: str) -> None:
    assert differences(description(), description(hostname="n1", **changes)) == [expected]


def test_a_long_value_is_cut() -> None:
    (text,) = differences(
        description(), description(config={"benchmark.max_steps": "400", "launch.env": "x" * 9999})
    )
    assert len(text) < 200


def test_nodes_of_validate_may_differ_in_all_but_its_options() -> None:
    first = CheckDescription(hostname="n0", settings={"--timeout": "120 s"})
    assert (
        differences(first, CheckDescription(hostname="n1", settings={"--timeout": "120 s"})) == []
    )
    other = CheckDescription(hostname="n1", settings={"--timeout": "60 s"})
    assert differences(first, other) == ["--timeout: 60 s, 120 s on n0"]


def test_two_commands_do_not_fit() -> None:
    checks = CheckDescription(hostname="n1", settings={})
    assert differences(description(), checks) == ["command: validate, benchmark on n0"]
    assert differences(checks, description()) == ["command: benchmark, validate on n1"]
