"""Whether what a report says of a job is right, and tables of many jobs."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from cause_list import Answer

JOBS = Path(__file__).resolve().parent / "jobs"
SURE = ("high", "medium")
ALWAYS_TRUE = ("exposed_communication", "sync_variance", "small_buckets")
"""Real causes of many runs beside the injected one: gloo over the loopback is neither free nor
steady, and the network is small."""
NEAR = 0.05
"""Share of the steps by which the step where a cause begins may be missed."""
PARTS = ("kind", "rank", "line", "period", "since", "words")
_PLACE = re.compile(r"([\w.-]+\.py):(\d+)")

Finding = dict[str, Any]
Row = dict[str, Any]


def judged(report: dict[str, Any], answer: Answer) -> Row:
    """What was said of a job, and which parts of it are right.

    Args:
        report: ``watch.json``.
        answer: What is right.
    """
    found: list[Finding] = report["findings"]
    chosen = _chosen(found, answer)
    right = _right_parts(chosen, answer, report["steps"])
    sure = [item for item in found if item["finding"]["confidence"] in SURE]
    wrong = [item for item in sure if item["finding"]["rank"] not in (None, answer.rank)]
    other = [
        item
        for item in sure
        if item is not chosen or not right["kind"]
        if item["finding"]["kind"] not in ALWAYS_TRUE
    ]
    if not answer.kinds:
        right = {"kind": not other}
    return {
        "right": right,
        "first": bool(found) and found[0] is chosen,
        "silent": not [item for item in sure if item["finding"]["kind"] not in ALWAYS_TRUE],
        "wrong_names": [said(item) for item in wrong],
        "also": [said(item) for item in other],
        "said": [said(item) for item in found],
        "cost_ratio": _cost_ratio(chosen, answer) if right["kind"] else None,
    }


def _chosen(found: Sequence[Finding], answer: Answer) -> Finding | None:
    """The finding that is about the cause: of the right kind and rank, of the kind, or the
    first."""
    kinds = [item for item in found if item["finding"]["kind"] in answer.kinds]
    named = [item for item in kinds if item["finding"]["rank"] == answer.rank]
    others = [item for item in found if item["finding"]["kind"] not in ALWAYS_TRUE]
    return next(iter([*named, *kinds, *others]), None)


def _right_parts(chosen: Finding | None, answer: Answer, steps: int) -> dict[str, bool]:
    """Of the parts that are asked for."""
    asked = {"kind": True, "rank": True, "line": bool(answer.places), "words": bool(answer.words)}
    asked |= {"period": answer.period is not None, "since": answer.since is not None}
    if chosen is None:
        return dict.fromkeys((part for part in PARTS if asked[part]), False)
    finding = chosen["finding"]
    right = {
        "kind": finding["kind"] in answer.kinds,
        "rank": finding["rank"] == answer.rank,
        "line": _is_place(place_of(chosen), answer),
        "period": finding.get("period_steps") == answer.period,
        "since": _is_near(chosen["first_step"], answer.since, steps),
        "words": bool(re.search(answer.words, str(finding))),
    }
    return {part: right[part] for part in PARTS if asked[part]}


def _is_near(step: int | None, since: int | None, steps: int) -> bool:
    return step is not None and since is not None and abs(step - since) <= NEAR * steps


def place_of(item: Finding) -> tuple[str, int] | None:
    """File and line that a finding names first."""
    if item["lines"]:
        line = item["lines"][0][0]
        return Path(line["file"]).name, line["line"]
    finding = item["finding"]
    texts = (finding["summary"], finding["advice"], *finding["evidence"])
    named = next(iter(_PLACE.findall("\n".join(texts))), None)
    return None if named is None else (named[0], int(named[1]))


def _is_place(place: tuple[str, int] | None, answer: Answer) -> bool:
    if place is None:
        return False
    name, line = place
    return any(
        name == file and any(line in lines for lines in _lines(file, function))
        for file, function in answer.places
    )


def _lines(file: str, function: str) -> list[range]:
    """Of all functions of that name; of the module, all."""
    tree = ast.parse((JOBS / file).read_text())
    if function == "<module>":
        return [range(1, len((JOBS / file).read_text().splitlines()) + 1)]
    return [
        range(node.lineno, (node.end_lineno or node.lineno) + 1)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name == function
    ]


def _cost_ratio(chosen: Finding | None, answer: Answer) -> float | None:
    if chosen is None or not answer.cost:
        return None
    return float(chosen["finding"]["cost_seconds"]) / answer.cost


def said(item: Finding) -> str:
    """A finding in a few words."""
    finding = item["finding"]
    words = [finding["kind"]]
    if finding["rank"] is not None:
        words.append(f"rank {finding['rank']}")
    if finding.get("period_steps") is not None:
        words.append(f"every {finding['period_steps']}")
    if item["first_step"] is not None:
        words.append(f"since {item['first_step']}")
    if item["last_step"] is not None:
        words.append(f"until {item['last_step']}")
    place = place_of(item)
    if place is not None:
        words.append(f"{place[0]}:{place[1]}")
    words.append(f"{finding['cost_percent']:.0f} % {finding['confidence']}")
    return " ".join(words)


def is_right(row: Row) -> bool:
    """Whether all that is asked for is right, and nobody is named wrongly."""
    return all(row["right"].values()) and not row["wrong_names"]


def table(rows: Sequence[Row]) -> list[str]:
    """Lines: of each cause the runs, and how many are right as a whole and by part."""
    heads = ("runs", "right", "silent", "wrong names", "also", *PARTS, "first", "cost")
    lines = [f"{'cause':<18}" + "".join(f"{head:>{max(8, len(head) + 2)}}" for head in heads)]
    names = list(dict.fromkeys(row["cause"] for row in rows))
    for name in [*names, "all"]:
        chosen = [row for row in rows if name in (row["cause"], "all")]
        counts = [
            str(len(chosen)),
            str(sum(map(is_right, chosen))),
            str(sum(row["silent"] for row in chosen)),
            str(sum(bool(row["wrong_names"]) for row in chosen)),
            str(sum(bool(row["also"]) for row in chosen)),
            *(_part_text(chosen, part) for part in PARTS),
            str(sum(row["first"] for row in chosen)),
            _ratio_text(chosen),
        ]
        cells = (
            f"{text:>{max(8, len(head) + 2)}}" for head, text in zip(heads, counts, strict=True)
        )
        lines.append(f"{name:<18}" + "".join(cells))
    return lines


def _part_text(rows: Iterable[Row], part: str) -> str:
    """``3/4`` of the runs that are asked for it."""
    answers = [row["right"][part] for row in rows if part in row["right"]]
    return f"{sum(answers)}/{len(answers)}" if answers else "–"


def _ratio_text(rows: Iterable[Row]) -> str:
    """The median of told ÷ injected cost."""
    ratios = [row["cost_ratio"] for row in rows if row["cost_ratio"] is not None]
    return f"×{median(ratios):.2f}" if ratios else "–"


def confusions(rows: Sequence[Row]) -> list[str]:
    """Lines: what was said instead, of each cause."""
    wrong = Counter(
        (row["cause"], ", ".join(_kinds(row)) or "nothing") for row in rows if not is_right(row)
    )
    return [f"{cause}: {number} × {told}" for (cause, told), number in wrong.most_common()]


def _kinds(row: Row) -> list[str]:
    missed = [part for part, right in row["right"].items() if not right]
    kinds = [told.split()[0] for told in row["said"]]
    kept = [kind for kind in kinds if kind not in ALWAYS_TRUE] or kinds
    return [*kept, f"(wrong: {' '.join(missed) or 'a name'})"]
