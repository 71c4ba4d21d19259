"""JUnit XML: a cell is a test case of its kind, a check one of its group. Every CI shows it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import TypeVar
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from torchscale.report.figures.figure import Exported, ExportedCell, ExportedRun, Figure
from torchscale.schema.node.check import Check, Status
from torchscale.schema.state import State

_NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML 1.0 has no place for, escaped or not."""
_FAILURES = frozenset({State.OOM, State.TIMEOUT, State.INVALID})
"""The cell ran and did not do what it should; any other state but these and those below is an error
on its way."""
_NOT_RUN = frozenset({State.SKIPPED, State.WAITING, State.PARTIAL})
_T = TypeVar("_T")


def render(run: ExportedRun) -> Exported:
    """One suite a kind of cell, or a group of checks."""
    root = Element("testsuites", name=_clean(f"torchscale {run.name}"))
    for kind, cells in _grouped(run.cells, lambda cell: cell.kind):
        suite = SubElement(root, "testsuite", name=_clean(f"{run.name}: {kind}"))
        for cell in cells:
            _cell_case(suite, run, cell)
    for group, checks in _grouped(run.checks, lambda check: check.group):
        suite = SubElement(root, "testsuite", name=_clean(f"{run.name}: {group}"))
        for check in checks:
            _check_case(suite, check)
    for parent in (*root, root):
        counts = {
            "tests": "testcase",
            "failures": "failure",
            "errors": "error",
            "skipped": "skipped",
        }
        for name, tag in counts.items():
            if (
                parent is not root or name != "skipped"
            ):  # the root has no such attribute in the common schemas
                parent.set(name, str(sum(1 for _ in parent.iter(tag))))
    indent(root)
    return Exported(
        f'<?xml version="1.0" encoding="utf-8"?>\n{tostring(root, encoding="unicode")}\n'
    )


def _cell_case(suite: Element, run: ExportedRun, cell: ExportedCell) -> None:
    case = SubElement(
        suite, "testcase", classname=_clean(f"{run.name}.{cell.kind}"), name=_clean(cell.id)
    )
    if cell.state is not State.OK:
        tag = _tag(cell.state)
        element = SubElement(case, tag, message=_clean(cell.reason or cell.state.value))
        if tag != "skipped":
            element.set("type", cell.state.value)
            element.text = _clean(cell.reason or cell.state.value)
    lines = [figure_text(figure) for figure in cell.figures]
    if cell.flags:
        lines.append(f"flags: {', '.join(cell.flags)}")
    if lines:
        SubElement(case, "system-out").text = _clean("\n".join(lines))


def _tag(state: State) -> str:
    """XML tag of a cell that is not ``ok``."""
    if state in _FAILURES:
        return "failure"
    if state in _NOT_RUN:
        return "skipped"
    return "error"


def _check_case(suite: Element, check: Check) -> None:
    case = SubElement(
        suite, "testcase", classname=_clean(f"validate.{check.group}"), name=_clean(check.title)
    )
    if check.status is Status.FAIL:
        element = SubElement(case, "failure", message=_clean(check.seen), type=_clean(check.id))
        element.text = _clean("\n".join(filter(None, (check.seen, check.expected, check.advice))))
    elif check.status is Status.NOT_APPLICABLE:
        SubElement(case, "skipped", message=_clean(check.seen))
    if check.status in (Status.PASS, Status.WARN):
        SubElement(case, "system-out").text = _clean(
            "\n".join(
                filter(None, (f"{check.status.value}: {check.seen}", check.expected, check.advice))
            )
        )


def figure_text(figure: Figure) -> str:
    """``samples_per_second: 1450 samples/s (95 %: 1441 to 1459)``."""
    labels = "".join(f" {name}={value}" for name, value in figure.labels.items())
    text = f"{figure.name}{labels}: {figure.value:.6g} {figure.unit}".rstrip()
    if figure.bounds is not None:
        text += " (95 %: {:.6g} to {:.6g})".format(*figure.bounds)
    return text


def _grouped(items: Sequence[_T], key: Callable[[_T], str]) -> Iterable[tuple[str, list[_T]]]:
    ordered = sorted(items, key=key)
    return [(name, list(group)) for name, group in groupby(ordered, key)]


def _clean(text: str) -> str:
    return _NOT_IN_XML.sub("\ufffd", text)
