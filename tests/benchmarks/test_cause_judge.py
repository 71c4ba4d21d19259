"""Each part of an answer is judged by itself, and a rank that has no part in it is counted."""

from __future__ import annotations

from typing import Any

import pytest
from cause_judge import JOBS, confusions, is_right, judged, table
from cause_list import Answer

SLOW = JOBS / "slow_rank.py"
LINE = next(
    number
    for number, text in enumerate(SLOW.read_text().splitlines(), 1)
    if text.startswith("def route_tokens")
)
RIGHT = Answer(
    ("straggler",), 1, (("slow_rank.py", "route_tokens"),), period=7, since=150, cost=0.005
)


def finding(**changes: Any) -> dict[str, Any]:
    """A straggler as it should be named."""
    inner = {
        "kind": "straggler",
        "rank": 1,
        "confidence": "high",
        "cost_percent": 20.0,
        "cost_seconds": 0.004,
        "period_steps": 7,
        "summary": "rank 1 is slow",
        "advice": "look",
        "evidence": [],
    }
    place = changes.pop("line", LINE + 1)
    lines = [[{"file": str(SLOW), "line": place, "function": "route_tokens"}, 0.004]]
    outer = {"first_step": changes.pop("first_step", 152), "last_step": None, "lines": lines}
    return {**outer, "finding": {**inner, **changes}}


def report(*findings: dict[str, Any]) -> dict[str, Any]:
    return {"findings": list(findings), "steps": 300}


def test_all_parts_right() -> None:
    row = judged(report(finding()), RIGHT)
    assert row["right"] == dict.fromkeys(("kind", "rank", "line", "period", "since"), True)
    assert row["cost_ratio"] == pytest.approx(0.8)
    assert is_right(row)


@pytest.mark.parametrize(
    ("part", "changes"),
    [
        ("kind", {"kind": "load_imbalance"}),
        ("rank", {"rank": None}),
        ("line", {"line": LINE - 2}),
        ("period", {"period_steps": 14}),
        ("since", {"first_step": 180}),
        ("since", {"first_step": None}),
    ],
)
def test_each_part_can_be_wrong_by_itself(part: str, changes: dict[str, Any]) -> None:
    row = judged(report(finding(**changes)), RIGHT)
    assert [name for name, right in row["right"].items() if not right] == [part]
    assert not is_right(row)


def test_the_line_may_stand_in_the_words() -> None:
    told = finding(evidence=[f"slow_rank.py:{LINE + 1} in route_tokens"])
    told["lines"] = []
    assert judged(report(told), RIGHT)["right"]["line"]


def test_a_wrong_name_counts_also_beside_the_right_one() -> None:
    row = judged(report(finding(), finding(kind="pauses", rank=0, confidence="medium")), RIGHT)
    assert len(row["wrong_names"]) == 1
    assert all(row["right"].values())
    assert not is_right(row)


def test_a_wrong_name_of_low_confidence_does_not_count() -> None:
    assert judged(report(finding(), finding(rank=0, confidence="low")), RIGHT)["wrong_names"] == []


def test_of_nothing_injected_only_nothing_is_right() -> None:
    network = finding(kind="exposed_communication", rank=None)
    assert is_right(judged(report(network), Answer(())))
    assert not is_right(judged(report(network, finding()), Answer(())))
    assert not is_right(judged(report(finding(kind="pauses", rank=None)), Answer(())))


def test_the_table_has_each_cause_and_all() -> None:
    rows = [
        {"cause": "forward", **judged(report(finding()), RIGHT)},
        {"cause": "forward", **judged(report(), RIGHT)},
        {"cause": "none", **judged(report(), Answer(()))},
    ]
    _, forward, none, every = table(rows)
    assert forward.split()[:4] == ["forward", "2", "1", "1"]
    assert none.split()[:4] == ["none", "1", "1", "1"]
    assert every.split()[:4] == ["all", "3", "2", "2"]
    assert "1/2" in forward
    assert "×0.80" in forward
    assert confusions(rows) == ["forward: 1 × (wrong: kind rank line period since)"]
