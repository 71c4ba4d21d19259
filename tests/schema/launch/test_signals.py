from __future__ import annotations

import pytest
from pydantic import ValidationError

from torchscale.schema.launch.signals import RankSignals

NOTHING = {
    "collections": 0,
    "collection_seconds": 0.0,
    "longest_collection_seconds": 0.0,
    "page_faults": 0,
}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("unsynchronized_seconds", (0.1, -0.1)),
        ("unsynchronized_wall_seconds", -1e308),
        ("bucket_bytes", (-1,)),
        ("bucket_ready_seconds", (-1e-9,)),
        *((name, -1) for name in NOTHING),
        ("allocation_retries", -1),
    ],
)
def test_times_and_counts_below_0_are_refused(name: str, value: object) -> None:
    with pytest.raises(ValidationError, match="greater than or equal to 0"):
        RankSignals.model_validate({**NOTHING, name: value})
