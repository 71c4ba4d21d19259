from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from torchscale.features.machine.batch_search import largest_fitting, next_batch


def search(capacity: int, start: int, multiple: int, largest: int) -> tuple[int | None, list[int]]:
    """What the search finds where batches up to ``capacity`` fit, and what it tried."""
    tried: dict[int, bool] = {}
    while (batch := next_batch(tried, start=start, multiple=multiple, largest=largest)) is not None:
        assert batch not in tried
        tried[batch] = batch <= capacity
    return largest_fitting(tried), list(tried)


@given(
    capacity=st.integers(0, 5000),
    start=st.integers(1, 300),
    multiple=st.integers(1, 7),
    largest=st.integers(300, 6000),
)
def test_the_search_finds_what_trying_all_would(
    capacity: int, start: int, multiple: int, largest: int
) -> None:
    found, tried = search(capacity, start, multiple, largest)
    everything = [batch for batch in range(multiple, largest + 1, multiple) if batch <= capacity]
    assert found == (max(everything) if everything else None)
    assert all(batch % multiple == 0 for batch in tried)
    assert len(tried) <= 28


def test_it_doubles_and_then_bisects() -> None:
    assert search(100, 1, 1, 1 << 20) == (
        100,
        [1, 2, 4, 8, 16, 32, 64, 128, 96, 112, 104, 100, 102, 101],
    )
    assert search(1000, 8, 8, 64) == (64, [8, 16, 32, 64])
    assert search(0, 4, 1, 64) == (None, [4, 2, 1])
