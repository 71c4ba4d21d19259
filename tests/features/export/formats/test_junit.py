"""JUnit XML: its elements and attributes as the schema that CI servers share has them."""

from __future__ import annotations

from xml.etree.ElementTree import Element, fromstring

import pytest
from junitparser import Error, Failure, JUnitXml, Skipped, TestSuite

from tests.features.export.formats.runs import CHECKS, HOSTILE, RUN, cell
from tests.report.test_machine import machine_summary
from torchscale.features.export.formats import junit
from torchscale.features.export.formats.junit import figure_text
from torchscale.report.figures.figure import ExportedRun
from torchscale.report.figures.run import exported_run
from torchscale.schema.state import State

GRAMMAR: dict[str, tuple[set[str], set[str], set[str]]] = {
    # element: attributes that it must have, those that it may have, elements in it
    "testsuites": (set(), {"name", "time", "tests", "failures", "errors"}, {"testsuite"}),
    "testsuite": ({"name", "tests", "failures", "errors"}, {"skipped", "time"}, {"testcase"}),
    "testcase": ({"name", "classname"}, {"time"}, {"failure", "error", "skipped", "system-out"}),
    "failure": (set(), {"message", "type"}, set()),
    "error": (set(), {"message", "type"}, set()),
    "skipped": (set(), {"message"}, set()),
    "system-out": (set(), set(), set()),
}
"""Of Jenkins' junit-10.xsd, as far as it is used here; a test case has its outcome before its
output."""


def read(run: ExportedRun) -> Element:
    """The root, once every element is as the grammar has it and every count is right."""
    root = fromstring(junit.render(run).text)  # noqa: S314 - our own
    _check(root)
    return root


def _check(element: Element) -> None:
    needed, optional, children = GRAMMAR[element.tag]
    assert needed <= element.attrib.keys() <= needed | optional, element.tag
    assert {child.tag for child in element} <= children, element.tag
    if element.tag == "testcase":
        tags = [child.tag for child in element]
        assert len([tag for tag in tags if tag != "system-out"]) <= 1
        assert tags == sorted(tags, key=lambda tag: tag == "system-out")
    if element.tag in ("testsuites", "testsuite"):
        found = {
            "tests": "testcase",
            "failures": "failure",
            "errors": "error",
            "skipped": "skipped",
        }
        for name, tag in found.items():
            if name in element.attrib:
                assert element.get(name) == str(len(list(element.iter(tag))))
    for child in element:
        _check(child)


def outcomes(root: Element) -> dict[str, str]:
    """Test case → its outcome."""
    return {
        case.get("name", ""): next(
            (child.tag for child in case if child.tag != "system-out"), "passed"
        )
        for case in root.iter("testcase")
    }


def test_a_cell_is_a_test_case_with_its_outcome() -> None:
    root = read(RUN)
    assert outcomes(root) == {
        "gpt2-n2": "passed",
        "comm": "passed",
        "flagged": "passed",
        "oom": "failure",
        "lost": "error",
        "skipped": "skipped",
        "waiting": "skipped",
    }
    assert [suite.get("name") for suite in root] == ["nightly: collectives", "nightly: training"]
    (failure,) = root.iter("failure")
    assert (failure.get("message"), failure.get("type"), failure.text) == (
        "out of memory",
        "oom",
        "out of memory",
    )


@pytest.mark.parametrize("run", [RUN, CHECKS, HOSTILE], ids=["run", "checks", "hostile"])
def test_another_reader_finds_the_same_outcomes(run: ExportedRun) -> None:
    suites = JUnitXml.fromstring(junit.render(run).text.encode())
    names = {Failure: "failure", Error: "error", Skipped: "skipped"}
    found = {}
    for suite in suites:
        assert isinstance(suite, TestSuite)
        for case in suite:
            outcome = [names[type(result)] for result in case.result]
            found[case.name] = outcome[0] if outcome else "passed"
    assert found == outcomes(read(run))
    assert suites.failures == list(found.values()).count("failure")


def test_figures_stand_in_the_output() -> None:
    (case,) = read(ExportedRun("r", (cell(flags=("noisy",)),))).iter("testcase")
    assert case.findtext("system-out") == (
        "samples_per_second: 1450.25 samples/s (95 %: 1441 to 1459.5)\nstep_mean_seconds: 0.02 "
        "s\nflags: noisy"
    )
    assert figure_text(RUN.cells[1].figures[0]).startswith(
        "bus_bandwidth_bytes_per_second operation=all_reduce: 3e+09"
    )


@pytest.mark.parametrize("state", State)
def test_every_state_has_one_outcome(state: State) -> None:
    (outcome,) = outcomes(read(ExportedRun("r", (cell(state=state, figures=()),)))).values()
    if state is State.OK:
        assert outcome == "passed"
    else:
        assert outcome in (
            "skipped" if state in (State.SKIPPED, State.WAITING, State.PARTIAL) else "failure error"
        )


def test_checks_of_a_node_are_test_cases() -> None:
    root = read(CHECKS)
    assert outcomes(root) == {
        "pass": "passed",
        "warn": "passed",
        "fail": "failure",
        "n/a": "skipped",
    }
    (failure,) = root.iter("failure")
    assert failure.text == "64 MiB\nmore\nmount it"


def test_any_text_is_xml() -> None:
    assert "\ufffd" in "".join(outcomes(read(HOSTILE)))


def test_a_whole_run_of_every_kind_is_exported() -> None:
    summary = machine_summary()
    found = outcomes(read(exported_run(summary)))
    assert found.keys() == {cell.cell.id for cell in summary.in_plan_order}
    assert sorted(found.values()).count("failure") == 2
