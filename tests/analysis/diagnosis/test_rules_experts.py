"""Hot experts and slow ranks, told apart on signals made to measure."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.analysis.diagnosis.test_diagnose import BATCHES, STEP, found, quiet, slow, why_not
from torchscale.analysis.diagnosis.diagnose import diagnose
from torchscale.analysis.diagnosis.shared import beyond_even_share, seconds_per_token
from torchscale.analysis.diagnosis.signals import ExpertLoad, Signals
from torchscale.schema.exports.experts import HotExpert
from torchscale.schema.profiles.finding import Confidence, FindingKind

UNEVEN, STRAGGLER = FindingKind.UNEVEN_EXPERTS, FindingKind.STRAGGLER
TOKENS, EACH = 1000.0, 20e-6
"""Tokens of an even share, and what one takes: 20 ms of a step of 100 ms."""


def load(*shares: float, slower: float = 1.0, slow_row: int = -1) -> ExpertLoad:
    """Experts whose ranks have these shares of the tokens, over an even one."""
    noise = np.random.default_rng(3)
    counts = np.array(shares)[:, None] * TOKENS * np.ones((1, BATCHES))
    each = np.full((len(shares), 1), EACH)
    each[slow_row] *= slower if slow_row >= 0 else 1.0
    seconds = counts * each * (1 + 0.01 * noise.standard_normal(counts.shape))
    uneven = np.zeros(len(shares))
    uneven[int(np.argmax(shares))] = (max(shares) - 1) * TOKENS
    hottest = tuple(
        (HotExpert(1, 2 * row, 4.0 if share > 1.2 else 1.1),) for row, share in enumerate(shares)
    )
    return ExpertLoad(counts, seconds, uneven, hottest)


def waiting_for(row: int, seconds: float, signals: Signals) -> dict[str, Any]:
    """The others wait so long for a rank."""
    ranks = len(signals.ranks)
    wait = np.full((ranks, BATCHES), seconds)
    wait[row] = 0.0
    blame = np.full(ranks, 0.02)
    blame[row] = 1 - 0.02 * (ranks - 1)
    return {"wait": wait, "blame": blame}


@pytest.mark.parametrize("ranks", [2, 4])
def test_a_hot_expert_is_named_with_its_rank_and_what_an_even_split_would_gain(ranks: int) -> None:
    others = (1 - 0.4 / (ranks - 1),) * (ranks - 1)
    signals = quiet(ranks)
    signals = replace(signals, **waiting_for(0, 0.009, signals), experts=load(1.4, *others))
    findings = found(signals)
    assert set(findings) == {UNEVEN}
    finding = findings[UNEVEN]
    assert finding.rank == 0
    assert finding.cost_seconds == pytest.approx(0.4 * TOKENS * EACH, rel=0.03)
    assert finding.confidence is Confidence.HIGH
    assert "40 % more tokens than an even share" in finding.summary
    assert "expert 0 of expert layer 1 4.0 × its share" in finding.summary
    assert "expert 0" in finding.advice or "0 of layer 1" in finding.advice


@pytest.mark.parametrize("shares", [(0.0, 0.0), (1.0, 1.0), (1.05, 0.95), (1.03, 1.0, 0.98, 0.99)])
def test_even_experts_are_not_named(shares: tuple[float, ...]) -> None:
    assert found(replace(quiet(len(shares)), experts=load(*shares))) == {}


def test_a_slow_rank_with_an_even_load_is_a_straggler_alone() -> None:
    signals = replace(slow(1, 0.006, ranks=2), experts=load(1.0, 1.0))
    assert {kind: one.rank for kind, one in found(signals).items()} == {STRAGGLER: 1}


@pytest.mark.parametrize("slow_row", [0, 1])
def test_both_are_named_each_with_its_rank(slow_row: int) -> None:
    """The compute of signals is that at an even share: only the slow rank's is longer."""
    signals = slow(slow_row, 0.006, ranks=2)
    wait = np.zeros((2, BATCHES))
    wait[0], wait[1] = (0.0, 0.014) if slow_row == 0 else (0.006, 0.008)
    blame = np.array([1.0, 0.0]) if slow_row == 0 else np.array([0.008, 0.006]) / 0.014
    signals = replace(signals, wait=wait, blame=blame, experts=load(1.4, 0.6))
    named = {kind: one.rank for kind, one in found(signals).items()}
    assert named == {STRAGGLER: slow_row, UNEVEN: 0}


def test_waits_for_tokens_blame_no_straggler_on_four_ranks() -> None:
    """Most waiting is for the hot rank; of the rest, the slow rank has all the blame."""
    signals = slow(2, 0.005, ranks=4)
    caused = np.array([0.012, 0.0, 0.004, 0.0])
    wait = np.full((4, BATCHES), 3 * caused.sum() / 4)
    experts = load(1.6, 0.8, 0.8, 0.8)
    signals = replace(signals, wait=wait, blame=caused / caused.sum(), experts=experts)
    assert {kind: one.rank for kind, one in found(signals).items()} == {STRAGGLER: 2, UNEVEN: 0}
    assert STRAGGLER not in found(replace(signals, experts=None))


@pytest.mark.parametrize(("blame", "is_named"), [(0.33, False), (0.42, True)])
def test_beside_even_experts_blame_is_what_it_is_without(blame: float, *, is_named: bool) -> None:
    """A quarter of it each is chance."""
    shares = np.full(4, (1 - blame) / 3)
    shares[1] = blame
    signals = slow(1, 0.02, blame=shares, experts=load(1.0, 1.0, 1.0, 1.0))
    assert (STRAGGLER in found(signals)) is is_named


def test_a_load_that_nobody_waits_for_is_no_finding() -> None:
    signals = quiet(2)
    signals = replace(signals, **waiting_for(0, 0.002, signals), experts=load(1.4, 0.6))
    assert UNEVEN not in found(signals)
    assert "but the others wait only 1.96 ms a step for it" in why_not(signals, UNEVEN)


def test_a_load_that_comes_and_goes_names_nobody() -> None:
    experts = load(1.2, 0.8)
    tokens = experts.tokens.copy()
    tokens[0, : BATCHES // 2], tokens[1, : BATCHES // 2] = TOKENS, TOKENS
    tokens[0, BATCHES // 2 :] = 1.4 * TOKENS
    signals = quiet(2)
    signals = replace(
        signals, **waiting_for(0, 0.008, signals), experts=replace(experts, tokens=tokens)
    )
    assert UNEVEN not in found(signals)
    assert "not steadily" in why_not(signals, UNEVEN)


def test_a_small_gain_is_no_finding() -> None:
    signals = replace(quiet(2), step_seconds=1.0)
    signals = replace(signals, **waiting_for(0, 0.008, signals), experts=load(1.4, 0.6))
    assert UNEVEN not in found(signals)


def abstentions(signals: Signals) -> list[str]:
    """Why no straggler is named; two rules look for one."""
    return [item.reason for item in diagnose(signals).abstentions if item.kind is STRAGGLER]


def on_device(experts: ExpertLoad) -> Signals:
    """Phases hold the waits for other ranks, so that these are not known."""
    ranks = len(experts.tokens)
    return replace(quiet(ranks), wait=None, blame=None, transfer=None, experts=experts)


def test_on_devices_the_load_tells_and_with_less_confidence() -> None:
    finding = found(on_device(load(1.4, 0.6)))[UNEVEN]
    assert (finding.rank, finding.confidence) == (0, Confidence.MEDIUM)
    assert finding.cost_seconds == pytest.approx(0.4 * TOKENS * EACH, rel=0.03)
    assert "a token takes" in finding.evidence[1]


def test_on_devices_a_slow_one_is_told_by_what_a_token_takes() -> None:
    signals = on_device(load(1.0, 1.0, 1.0, 1.0, slower=1.2, slow_row=2))
    (finding,) = (found(signals)[kind] for kind in found(signals))
    assert (finding.kind, finding.rank) == (STRAGGLER, 2)
    assert finding.cost_seconds == pytest.approx(0.2 * TOKENS * EACH, rel=0.05)
    assert finding.confidence is Confidence.MEDIUM
    assert "rank 2's experts take 21 % longer for a token" in finding.summary


@pytest.mark.parametrize(("slower", "is_named"), [(1.05, False), (1.2, True)])
def test_a_token_that_takes_a_little_longer_is_no_slow_device(
    slower: float, *, is_named: bool
) -> None:
    """Of experts that take 60 ms of the step: 5 % are 3 ms, enough to be told."""
    experts = load(1.0, 1.0, slower=slower, slow_row=0)
    signals = on_device(replace(experts, seconds=3 * experts.seconds))
    assert (STRAGGLER in found(signals)) is is_named


@pytest.mark.parametrize(("first", "is_named"), [(0.3, False), (0.8, True)])
def test_a_device_that_is_slow_for_a_part_of_the_run_is_not_named(
    first: float, *, is_named: bool
) -> None:
    """In the first quarter a token takes ``first`` of the 30 % longer that it takes later."""
    experts = load(1.0, 1.0)
    seconds = experts.seconds.copy()
    seconds[1] += 0.3 * TOKENS * EACH * np.where(np.arange(BATCHES) < BATCHES // 4, first, 1.0)
    signals = on_device(replace(experts, seconds=seconds))
    assert (STRAGGLER in found(signals)) is is_named


@pytest.mark.parametrize(("waited", "is_named"), [(0.0008, False), (0.004, True)])
def test_slow_experts_are_named_where_the_others_wait_for_them(
    waited: float, *, is_named: bool
) -> None:
    """A token takes 20 % longer, 4 ms a step; the other compute of the ranks is alike."""
    signals = quiet(2)
    experts = load(1.0, 1.0, slower=1.2, slow_row=0)
    signals = replace(signals, **waiting_for(0, waited, signals), experts=experts)
    assert (STRAGGLER in found(signals)) is is_named


def test_waits_without_blame_are_no_waits_for_a_rank() -> None:
    signals = replace(quiet(2), blame=None, experts=load(1.4, 0.6))
    assert found(signals)[UNEVEN].confidence is Confidence.MEDIUM


def test_three_samples_are_enough() -> None:
    experts = load(1.0, 1.0, slower=2.0, slow_row=0)
    tokens, seconds = experts.tokens[:, :3], experts.seconds[:, :3]
    signals = on_device(replace(experts, tokens=tokens, seconds=seconds))
    assert found(signals)[STRAGGLER].rank == 0


def test_on_devices_both() -> None:
    signals = on_device(load(1.45, 0.85, 0.85, 0.85, slower=1.2, slow_row=0))
    assert {kind: one.rank for kind, one in found(signals).items()} == {STRAGGLER: 0, UNEVEN: 0}


@pytest.mark.parametrize(("share", "is_named"), [(0.9, True), (0.89, False)])
def test_a_rank_with_nine_tenths_of_the_others_tokens_has_no_few(
    share: float, *, is_named: bool
) -> None:
    signals = on_device(load(1.0, 1.0, 1.0, share, slower=1.3, slow_row=3))
    assert (STRAGGLER in found(signals)) is is_named


def test_a_rank_with_few_tokens_is_not_called_slow_for_what_each_takes() -> None:
    signals = on_device(load(1.2, 1.2, 1.2, 0.4, slower=1.3, slow_row=3))
    assert STRAGGLER not in found(signals)
    assert any("fewer tokens than the others'" in reason for reason in abstentions(signals))


def test_too_few_samples_abstain() -> None:
    experts = load(1.0, 1.0, slower=2.0, slow_row=0)
    short = replace(experts, tokens=experts.tokens[:, :2], seconds=experts.seconds[:, :2])
    signals = on_device(experts)
    reasons = abstentions(replace(signals, experts=short))
    assert any(reason.startswith("too few samples") for reason in reasons)
    few = replace(quiet(2), steps=5, experts=load(1.4, 0.6))
    assert "fewer than 20 steps" in why_not(few, UNEVEN)


def test_without_spread_experts_no_rule_about_them_says_anything() -> None:
    assert UNEVEN not in found(quiet(2))
    assert all(item != UNEVEN for item in found(replace(quiet(2), experts=None)))


def test_exposed_communication_names_the_tokens_that_are_sent() -> None:
    signals = quiet(2)
    sent = replace(signals, transfer=np.full(BATCHES, 0.02), experts=load(1.0, 1.0))
    finding = found(replace(sent, bucket_bytes=None))[FindingKind.EXPOSED_COMMUNICATION]
    assert "sending tokens to experts and synchronizing gradients takes 20.0 ms" in finding.summary
    assert "fewer devices" in finding.advice


def test_what_a_token_takes_is_that_of_the_rank_where_it_takes_least() -> None:
    tokens = np.array([[100.0, 300.0], [50.0, 50.0], [0.0, 0.0]])
    seconds = np.array([[0.1, 0.3], [0.1, 0.1], [0.0, 0.0]])
    assert seconds_per_token(tokens, seconds) == pytest.approx(0.001)
    assert beyond_even_share(tokens, seconds)[0] == pytest.approx([0.05, 0.183333], rel=1e-3)
    assert beyond_even_share(tokens, seconds).sum(axis=0) == pytest.approx([0, 0], abs=1e-12)
    assert seconds_per_token(np.zeros((2, 3)), np.zeros((2, 3))) == 0
    single = np.array([[1.0], [0.0]])
    assert seconds_per_token(single, 0.5 * single) == 0.5
    assert STEP == 0.1


def exact_load(tokens: NDArray[np.float64]) -> Signals:
    """Experts on two ranks that take a second for a token, of which 2048 are sent in a step; the
    first rank gets these. The other one waits 192 s for it."""
    counts = np.stack([tokens, 2048 - tokens])
    uneven = np.array([float((tokens - 1024).mean()), 0.0])
    hottest = ((HotExpert(0, 3, 1.5), HotExpert(0, 1, 1.49)), ())
    signals = quiet(2, step_seconds=5000.0, experts=ExpertLoad(counts, counts, uneven, hottest))
    wait = np.array([[0.0], [192.0]]) * np.ones((1, BATCHES))
    return replace(signals, wait=wait, blame=np.array([1.0, 0.0]))


def by_quarter(first: float) -> NDArray[np.float64]:
    return np.repeat([first, 1472.0, 1472.0, 1472.0], BATCHES // 4)


@pytest.mark.parametrize(("first", "is_named"), [(1216.0, True), (1215.0, False)])
def test_experts_get_more_tokens_in_every_quarter_by_half_of_the_mean(
    first: float, *, is_named: bool
) -> None:
    """192 of 384 tokens beyond an even share of 1024."""
    signals = exact_load(by_quarter(first))
    assert (UNEVEN in found(signals)) is is_named
    if not is_named:
        assert why_not(signals, UNEVEN) == (
            "rank 0's experts get more tokens than the others', but not steadily: 19 %, 44 %, "
            "44 %, 44 % more from quarter to quarter"
        )


@pytest.mark.parametrize(("tokens", "is_named"), [(384.0, True), (385.0, False)])
def test_the_others_wait_for_half_of_what_an_even_split_gains(
    tokens: float, *, is_named: bool
) -> None:
    signals = exact_load(np.full(BATCHES, 1024.0 + tokens))
    finding = found(signals).get(UNEVEN)
    assert (finding is not None) is is_named
    if finding is not None:
        assert finding.cost_seconds == 192.0
        assert finding.cost_percent == pytest.approx(3.84)


@pytest.mark.parametrize(("step_seconds", "is_named"), [(9600.0, True), (9601.0, False)])
def test_an_even_split_of_tokens_gains_a_fiftieth_of_the_step_or_nothing(
    step_seconds: float, *, is_named: bool
) -> None:
    signals = replace(exact_load(np.full(BATCHES, 1280.0)), step_seconds=step_seconds)
    assert (UNEVEN in found(signals)) is is_named


@pytest.mark.parametrize(("share", "is_named"), [(1.1, True), (1.09, False)])
def test_experts_with_a_tenth_more_than_an_even_share_are_uneven(
    share: float, *, is_named: bool
) -> None:
    signals = replace(on_device(load(share, 2 - share)), step_seconds=0.05)
    assert (UNEVEN in found(signals)) is is_named


def test_an_expert_with_one_and_a_half_of_its_share_is_hot() -> None:
    finding = found(exact_load(np.full(BATCHES, 1280.0)))[UNEVEN]
    assert finding.evidence == (
        "tokens at experts per step: 1,280 on rank 0, 1,024 on average",
        "a token takes 1.00 s at its experts, 1.00 s at the others'",
    )
    assert "(expert 3 of expert layer 0 1.5 × its share)" in finding.summary
    assert "hot experts: 3 of layer 0 (1.5 ×): move them" in finding.advice


def slow_each(seconds: float | NDArray[np.float64], **changes: Any) -> Signals:
    """Experts of four ranks that get a token a step each, which takes 100 s, on rank 1
    ``seconds``."""
    tokens = np.ones((4, BATCHES))
    each = np.full((4, BATCHES), 100.0)
    each[1] = seconds
    signals = on_device(ExpertLoad(tokens, each, np.zeros(4), ((),) * 4))
    return replace(signals, **{"step_seconds": 120.0, **changes})


@pytest.mark.parametrize(("seconds", "is_named"), [(110.0, True), (109.9, False)])
def test_a_token_takes_a_tenth_longer_at_slow_experts(seconds: float, *, is_named: bool) -> None:
    assert (STRAGGLER in found(slow_each(seconds))) is is_named


@pytest.mark.parametrize(("first", "is_named"), [(112.0, True), (111.9, False)])
def test_experts_are_slow_in_every_quarter_by_half_of_the_mean(
    first: float, *, is_named: bool
) -> None:
    seconds = np.repeat([first, 128.0, 128.0, 128.0], BATCHES // 4)
    assert (STRAGGLER in found(slow_each(seconds))) is is_named


@pytest.mark.parametrize(("step_seconds", "is_named"), [(500.0, True), (501.0, False)])
def test_slow_experts_cost_a_fiftieth_of_the_step_or_are_none(
    step_seconds: float, *, is_named: bool
) -> None:
    assert (STRAGGLER in found(slow_each(110.0, step_seconds=step_seconds))) is is_named


@pytest.mark.parametrize(("waited", "is_named"), [(5.0, True), (4.9, False)])
def test_half_of_what_slow_experts_cost_is_waited_for(waited: float, *, is_named: bool) -> None:
    signals = slow_each(110.0)
    waits = waiting_for(1, waited, signals)
    waits["blame"] = np.array([0.0, 1.0, 0.0, 0.0])
    finding = found(replace(signals, **waits)).get(STRAGGLER)
    assert (finding is not None) is is_named
    if finding is not None:
        assert finding.cost_seconds == 10.0
        assert finding.cost_percent == pytest.approx(10 / 1.2)
