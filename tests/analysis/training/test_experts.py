from __future__ import annotations

import pytest

from tests.analysis.training.test_expert_load import USE, result
from torchscale.analysis.training.experts import expert_figures


def test_shares_by_hand() -> None:
    """Layer 0: 400, 200, 100, 100, mean 200; layer 3: 100, 100, 200, 800, mean 300. Ranks have 100
    and 120 tokens; experts take 10 and 12 ms of a step of 100 ms."""
    found, _ = result(2)
    experts = expert_figures(found)
    assert experts is not None
    assert (experts.experts, experts.chosen, experts.layers, experts.degree) == (4, 2, 4, 2)
    assert (experts.hottest.layer, experts.hottest.expert) == (3, 3)
    assert experts.peak == pytest.approx(800 / 300)
    assert experts.mean_peak == pytest.approx((2 + 800 / 300) / 2)
    assert experts.rank_shares == pytest.approx((100 / 110, 120 / 110))
    assert experts.rank_peak == pytest.approx(120 / 110)
    assert experts.step_share == pytest.approx(0.011 / 0.1)


def test_whole_models_have_no_share_of_ranks() -> None:
    found, _ = result(2, USE.model_copy(update={"degree": 1}))
    experts = expert_figures(found)
    assert experts is not None
    assert (experts.rank_shares, experts.rank_peak) == ((), None)


def test_none_without_tokens() -> None:
    found, _ = result(2, None)
    assert expert_figures(found) is None
    empty = USE.model_copy(update={"tokens": ((0,) * 4,) * 2})
    found, _ = result(2, empty)
    assert expert_figures(found) is None


def test_without_signals_the_time_is_not_known() -> None:
    found, _ = result(2)
    experts = expert_figures(found.model_copy(update={"signals": None}))
    assert experts is not None
    assert (experts.step_share, experts.rank_shares) == (None, ())
