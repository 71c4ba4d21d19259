"""Names of cells: what tells them apart, in one line or in columns."""

from __future__ import annotations

import pytest

from tests.factories import cells
from torchscale.report.text.labels import (
    batch_label,
    cell_label,
    identity_values,
    short_batch,
    short_title,
)

ONE, TWO = cells()[:2]


def test_a_cell_is_named_by_model_batch_and_devices() -> None:
    assert cell_label(TWO).startswith(TWO.title)
    assert cell_label(TWO).endswith(f"{batch_label(TWO)}, 2 devices")
    assert cell_label(ONE).endswith(", 1 device")


@pytest.mark.parametrize(
    ("changes", "label", "short"),
    [
        ({"batch_size": 8, "scaling": "weak"}, "batch 8", "8"),
        ({"batch_size": 8, "scaling": "strong"}, "global batch 8", "8 global"),
        ({"batch_size": None}, "own batch", "own"),
    ],
)
def test_a_batch_is_of_a_device_of_all_or_the_scripts_own(
    changes: dict[str, object], label: str, short: str
) -> None:
    cell = TWO.model_copy(update=changes)
    assert (batch_label(cell), short_batch(cell)) == (label, short)


def test_a_short_title_has_the_settings_that_are_not_usual() -> None:
    assert short_title(TWO.model_copy(update={"precision": "bf16"})).endswith(" bf16")
    assert identity_values(TWO)[-1].text == "2"
