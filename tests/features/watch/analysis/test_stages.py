"""Which ranks send to which → the stages of a pipeline."""

from __future__ import annotations

from torchscale.features.watch.analysis.stages import stages_of


def _peers(*pairs: tuple[int, int], ranks: int) -> dict[int, frozenset[int]]:
    return {
        rank: frozenset(other for pair in pairs if rank in pair for other in pair if other != rank)
        for rank in range(ranks)
    }


def test_a_chain_is_a_pipeline() -> None:
    assert stages_of(_peers((0, 1), (1, 2), (2, 3), ranks=4)) == ((0,), (1,), (2,), (3,))


def test_copies_of_a_pipeline_share_stages() -> None:
    assert stages_of(_peers((0, 2), (1, 3), ranks=4)) == ((0, 1), (2, 3))


def test_no_messages_a_ring_and_chains_of_two_lengths_are_none() -> None:
    assert stages_of(_peers(ranks=2)) is None
    assert stages_of(_peers((0, 1), (1, 2), (2, 0), ranks=3)) is None
    assert stages_of(_peers((0, 1), (2, 3), (3, 4), ranks=5)) is None


def test_a_star_is_none() -> None:
    assert stages_of(_peers((0, 1), (0, 2), (0, 3), ranks=4)) is None
