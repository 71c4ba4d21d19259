"""A validation on paper: the verdict comes first, and every check is in it."""

from __future__ import annotations

import numpy as np
import pytest

from tests.features.validate.acceptance.runs import a_run, baseline_of, noisy
from tests.features.validate.health.test_disposition import of, validated
from tests.features.validate.test_bundle import SLOW
from torchscale.features.validate.document import validation_document
from torchscale.features.validate.health.node import validate_facts
from torchscale.features.validate.health.required import Requirements
from torchscale.report.charts import Chart
from torchscale.report.document import Document
from torchscale.report.formats.markdown import render_markdown
from torchscale.report.table import Table
from torchscale.schema.node.acceptance import Acceptance, AcceptanceRun, Baseline, Conditions
from torchscale.schema.node.policy import Policy, Subject

NODE = ("all-reduce", "node")
LINKS = Policy(looked_at=(Subject.LINKS,))
BUSY = Conditions(foreign_share=0.4)


def document_of(run: AcceptanceRun, baseline: Baseline | None = None) -> Document:
    acceptance = Acceptance(run=run, baseline=baseline)
    validation = validate_facts(of(), Requirements(), None, acceptance, policy=LINKS)
    return validation_document(validation, "node-17", "2026-01-01")


def table_of(document: Document, anchor: str) -> Table:
    section = document.section(anchor)
    assert section is not None
    return next(block for block in section.blocks if isinstance(block, Table))


def test_what_is_not_kept_comes_first_and_no_check_is_left_out() -> None:
    validation = validated(of(remapping_failed=True))
    document = validation_document(validation, "node-17", "2026-01-01")
    rows = table_of(document, "parts").rows
    assert [row[0].text for row in rows] == ["return", "undecided"]
    assert rows[0][1].text.startswith("GPU 2")
    assert rows[1][1].text == "GPU 0, 1, 3, node"
    assert len(table_of(document, "checks").rows) == len(validation.checks)
    text = render_markdown(document)
    assert "Validation of node-17" in text
    assert "- What to do? **return**" in text
    assert "burn-in: not asked for" in text


def test_the_figures_of_an_acceptance_are_shown_with_interval_limit_and_cause() -> None:
    document = validation_document(SLOW, "node-17", "2026-01-01")
    (row,) = table_of(document, "rounds").rows  # its slowest part is the only one not within
    texts = [value.text for value in row]
    assert texts[:3] == ["low", "memory bandwidth", "GPU 2"]
    assert texts[3].endswith("in 8 rounds")
    assert " to " in texts[4]
    assert texts[5].startswith("at least 2.")
    assert texts[6] == "host: the others of this node are not slow in the same rounds"


def test_the_first_line_is_the_verdict_with_its_action() -> None:
    rng = np.random.default_rng(2)
    kept = document_of(a_run({NODE: noisy(rng, 1e9, 6)})).overview
    assert kept is not None
    assert kept.headline.text.startswith("Keep: put it into service.")
    assert kept.headline.tone.value == "good"
    undecided = document_of(a_run({NODE: noisy(rng, 1e9, 6)}, conditions=[BUSY] * 6)).overview
    assert undecided is not None
    assert undecided.headline.text == (
        "Undecided: 0 of 6 rounds undisturbed, keep asks for 5: other processes had 40 % of the "
        "cores' time in 6 of 6 rounds. Measure again on a quiet node."
    )
    assert [row.answer for row in undecided.statuses[:3]] == [
        "undecided",
        "0 of 6 undisturbed",
        "not judged",
    ]


def test_a_chart_has_every_round_and_what_the_figure_is_held_against() -> None:
    rng = np.random.default_rng(3)
    baseline = baseline_of(a_run({NODE: noisy(rng, 1e9, 8)}))
    conditions = [Conditions(foreign_share=0.0)] * 6 + [BUSY]
    document = document_of(a_run({NODE: noisy(rng, 1e9, 7)}, conditions=conditions), baseline)
    (chart,) = document.charts
    assert isinstance(chart, Chart)
    part, disturbed, reference, limit = chart.series
    assert list(part.x) == [1, 2, 3, 4, 5, 6]
    assert disturbed.marks
    assert list(disturbed.x) == [7]
    assert reference.y[0] == pytest.approx(1.0, abs=0.01)
    assert limit.y[0] == pytest.approx(0.95 * reference.y[0])
    assert chart.y_label == "GB/s"


def test_two_levels_are_told_on_the_first_screen() -> None:
    rng = np.random.default_rng(4)
    values = (*noisy(rng, 1.72e9, 12, 0.003), *noisy(rng, 1.9e9, 8, 0.003))
    document = document_of(a_run({NODE: values}))
    assert document.overview is not None
    (levels,) = [row for row in document.overview.statuses if row.question == "Levels?"]
    assert levels.answer == "1 figure has two"
    assert levels.text == "all-reduce of node: 1.72 GB/s in 12 rounds, 1.90 GB/s in 8"
