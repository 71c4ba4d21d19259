"""Communication: when it is called a fault of buckets or of the link, and what it costs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.analysis.diagnosis.test_diagnose import BATCHES, found, quiet, slow
from torchscale.analysis.diagnosis.signals import LinkProbe
from torchscale.schema.profiles.finding import Confidence, FindingKind

EXPOSED = np.full(BATCHES, 0.03)
MERGING_HELPS = LinkProbe(4_000_000, 0.035, 0.007)


@pytest.mark.parametrize(
    ("sizes", "is_named"),
    [
        ((10_000,) * 4, True),
        ((10_000,) * 3, False),
        (((1 << 20) - 1,) * 9, True),
        ((1 << 20,) * 9, False),
        ((10_000, 10_000, 2 << 20, 2 << 20, 2 << 20), False),
    ],
)
def test_buckets_are_small_where_there_are_several_below_the_first_of_ddp(
    sizes: tuple[int, ...], is_named: bool
) -> None:
    """Nobody is told to change the default, or to merge what is hardly split."""
    signals = quiet(transfer=EXPOSED, bucket_bytes=sizes, probe=MERGING_HELPS)
    assert (FindingKind.SMALL_BUCKETS in found(signals)) is is_named


@pytest.mark.parametrize(
    ("seconds", "confidence"),
    [(0.005, None), (0.009, Confidence.MEDIUM), (0.02, Confidence.HIGH)],
)
def test_a_link_far_below_its_rate_is_certain(
    seconds: float, confidence: Confidence | None
) -> None:
    """78.6 MB on the bus: 15.7, 8.7 and 3.9 GB/s of 25. Overheads of protocols explain a half, not
    a sixth."""
    probe = LinkProbe(50 << 20, seconds, seconds)
    finding = found(quiet(transfer=EXPOSED, probe=probe)).get(FindingKind.SLOW_LINK)
    assert (None if finding is None else finding.confidence) is confidence


@pytest.mark.parametrize(
    ("changes", "cost"),
    [
        ({}, 0.0045),
        ({"transfer": np.full(BATCHES, 0.001)}, 0.0),
        ({"transfer": None}, 0.0),
        ({"wait": None, "blame": None}, 0.0045),
    ],
)
def test_an_unsteady_exchange_costs_what_its_mean_exceeds_its_median(
    changes: dict[str, Any], cost: float
) -> None:
    """Never less than nothing, and nothing that was not measured."""
    measured = {
        "exposed_p50": 0.02,
        "exposed_p95": 0.03,
        "transfer": np.full(BATCHES, 0.0245),
        "wait": np.full((4, BATCHES), 0.0015),
    }
    finding = found(quiet(**{**measured, **changes}))[FindingKind.SYNC_VARIANCE]
    assert finding.cost_seconds == pytest.approx(cost)


@pytest.mark.parametrize(
    ("sizes", "offered"), [((25 << 20,), "tune bucket_cap_mb"), (None, "fully_shard")]
)
def test_buckets_are_tuned_only_where_there_are_some(
    sizes: tuple[int, ...] | None, offered: str
) -> None:
    """FSDP and own collectives have no ``bucket_cap_mb``."""
    signals = quiet(transfer=EXPOSED, bucket_bytes=sizes)
    assert offered in found(signals)[FindingKind.EXPOSED_COMMUNICATION].advice


def test_a_slow_rank_explains_nothing_of_the_transfer() -> None:
    findings = found(slow(1, 0.02, transfer=EXPOSED, overlap=0.256))
    assert FindingKind.STRAGGLER in findings
    exposed = findings[FindingKind.EXPOSED_COMMUNICATION]
    assert exposed.cost_seconds == pytest.approx(0.03)
    assert "26 % of communication is hidden under compute" in exposed.evidence


def test_an_exchange_that_is_hidden_in_most_steps_is_not_unsteady() -> None:
    signals = quiet(exposed_p50=0.0, exposed_p95=0.01)
    assert FindingKind.SYNC_VARIANCE not in found(signals)


def test_split_sequences_send_keys_and_values() -> None:
    signals = quiet(transfer=EXPOSED, bucket_bytes=None, split_sequences=True)
    finding = found(signals)[FindingKind.EXPOSED_COMMUNICATION]
    assert "gathering keys and values and synchronizing gradients takes 30.0 ms" in finding.summary
    assert "split sequences over fewer devices" in finding.advice


@pytest.mark.parametrize(("seconds", "is_named"), [(1.0, True), (0.99, False)])
def test_exposed_communication_is_named_from_a_twentieth_of_the_step_on(
    seconds: float, is_named: bool
) -> None:
    """Less remains in every run: the last bucket cannot overlap with anything."""
    signals = quiet(step_seconds=20.0, transfer=np.full(BATCHES, seconds))
    assert (FindingKind.EXPOSED_COMMUNICATION in found(signals)) is is_named


@pytest.mark.parametrize(
    ("p50", "p95", "is_named"),
    [(5.0, 6.1, True), (5.0, 6.0, False), (1.01, 2.0, True), (1.0, 2.0, False)],
)
def test_an_exchange_that_varies_little_or_is_short_is_not_unsteady(
    p50: float, p95: float, is_named: bool
) -> None:
    """A fifth more in one of twenty steps is what quiet links show, and of a twentieth of the step
    nobody would notice it."""
    signals = quiet(step_seconds=20.0, exposed_p50=p50, exposed_p95=p95)
    assert (FindingKind.SYNC_VARIANCE in found(signals)) is is_named


@pytest.mark.parametrize(("seconds", "is_named"), [(1.0, True), (0.99, False)])
def test_communication_of_a_rank_alone_is_named_from_a_twentieth_of_the_step_on(
    seconds: float, is_named: bool
) -> None:
    """Whether it waits or transfers is not known of a rank that is not compared with others."""
    signals = quiet(1, step_seconds=20.0, exposed=np.full(BATCHES, seconds), transfer=None)
    finding = found(signals).get(FindingKind.EXPOSED_COMMUNICATION)
    assert (finding is not None) is is_named
    if finding is not None:
        assert (finding.cost_seconds, finding.cost_percent) == (1.0, 5.0)
        assert finding.confidence is Confidence.LOW
        assert finding.summary == "communication takes 1.00 s a step that no compute hides"


@pytest.mark.parametrize(
    ("overlap", "lines"),
    [(0.25, ["25 % of communication is hidden under compute"]), (None, [])],
)
def test_the_overlap_of_a_rank_alone_is_evidence_where_it_is_known(
    overlap: float | None, lines: list[str]
) -> None:
    signals = quiet(1, exposed=EXPOSED, transfer=None, overlap=overlap)
    evidence = found(signals)[FindingKind.EXPOSED_COMMUNICATION].evidence
    assert evidence == ("waiting for other ranks and transfer cannot be told apart here", *lines)


@pytest.mark.parametrize(
    ("bucketed", "transfer", "step_seconds", "cost"),
    [
        (1.3, 0.25, 12.5, 0.25),
        (1.29, 0.25, 12.5, None),
        (1.5, 0.25, 12.6, None),
        (1.5, 2.0, 25.0, 0.5),
        (1.5, 2.0, 25.1, None),
    ],
)
def test_buckets_are_merged_where_that_is_three_tenths_faster_and_gains_a_fiftieth(
    bucketed: float, transfer: float, step_seconds: float, cost: float | None
) -> None:
    """No more than is exposed in training is gained."""
    signals = quiet(
        step_seconds=step_seconds,
        transfer=np.full(BATCHES, transfer),
        bucket_bytes=(10_000,) * 4,
        probe=LinkProbe(40_000, bucketed, 1.0),
    )
    finding = found(signals).get(FindingKind.SMALL_BUCKETS)
    assert (None if finding is None else finding.cost_seconds) == cost
    if finding is not None:
        assert finding.cost_percent == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("rated", "confidence"),
    [
        (2000.0, None),
        (2001.0, Confidence.MEDIUM),
        (3333.0, Confidence.MEDIUM),
        (3334.0, Confidence.HIGH),
    ],
)
def test_a_link_at_less_than_half_its_rate_is_slow(
    rated: float, confidence: Confidence | None
) -> None:
    """Two ranks send 1000 bytes each way in a second."""
    probe = LinkProbe(1000, 1.0, 1.0)
    signals = quiet(2, transfer=EXPOSED, probe=probe, link_bytes_per_second=rated)
    finding = found(signals).get(FindingKind.SLOW_LINK)
    assert (None if finding is None else finding.confidence) is confidence


@pytest.mark.parametrize(("seconds", "is_named"), [(1.0, True), (0.99, False)])
def test_a_slow_link_is_named_where_a_twentieth_of_the_step_is_exposed(
    seconds: float, is_named: bool
) -> None:
    signals = quiet(
        2,
        step_seconds=20.0,
        transfer=np.full(BATCHES, seconds),
        probe=LinkProbe(1000, 1.0, 1.0),
        link_bytes_per_second=4000.0,
    )
    finding = found(signals).get(FindingKind.SLOW_LINK)
    assert (finding is not None) is is_named
    if finding is not None:
        assert finding.cost_seconds == 0.75
        assert finding.cost_percent == pytest.approx(3.75)
