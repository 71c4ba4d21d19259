"""A validation on paper: what to do comes first, and every check is in it."""

from __future__ import annotations

from tests.features.validate.health.test_disposition import of, validated
from tests.features.validate.test_bundle import SLOW
from torchscale.features.validate.document import validation_document
from torchscale.report.formats.markdown import render_markdown
from torchscale.report.table import Table


def test_what_is_not_kept_comes_first_and_no_check_is_left_out() -> None:
    validation = validated(of(remapping_failed=True))
    document = validation_document(validation, "node-17", "2026-01-01")
    parts, checks = document.sections
    table = parts.blocks[0]
    assert isinstance(table, Table)
    assert [row[0].text for row in table.rows] == ["return", "keep", "keep", "keep", "keep"]
    assert table.rows[0][1].text.startswith("GPU 2")
    listed = checks.blocks[0]
    assert isinstance(listed, Table)
    assert len(listed.rows) == len(validation.checks)
    text = render_markdown(document)
    assert "Validation of node-17" in text
    assert "Not looked at: burn-in" in text


def test_the_figures_of_an_acceptance_are_shown_with_interval_limit_and_cause() -> None:
    document = validation_document(SLOW, "node-17", "2026-01-01")
    section = next(section for section in document.sections if section.title == "Speeds")
    (table,) = [block for block in section.blocks if isinstance(block, Table)]
    (row,) = table.rows  # one figure: its slowest part is the only one that is not within
    texts = [value.text for value in row]
    assert texts[:3] == ["low", "memory bandwidth", "GPU 2"]
    assert "95 % interval" in texts[3]
    assert texts[4].startswith("at least 2.")
    assert texts[5] == "host: the others of this node are not slow in the same rounds"
