from __future__ import annotations

from typing import Any

import pytest

from tests.explanations import explained, measured
from torchscale.features.compare.analysis.differences import SideDifference
from torchscale.features.compare.analysis.likely_cause import (
    ADVICE,
    CauseBasis,
    LikelyCause,
    candidates_for,
)
from torchscale.schema.node.environment import Versions
from torchscale.schema.run.step_parts import StepPart

VERSIONS = {"torchscale": "0.1.0", "python": "3.11.7", "torch": "2.13.0"}


def only_cause(*sides: Any, **changes: Any) -> LikelyCause:
    cell = explained(*sides, **changes)
    (cause,) = cell.causes
    return cause


def test_the_only_change_that_can_be_behind_a_part_is_named() -> None:
    newer = Versions.model_validate({**VERSIONS, "nccl": "2.28.3"})
    cause = only_cause(measured(), measured({StepPart.COMMUNICATION: 0.01}), versions=newer)
    assert cause.basis is CauseBasis.ONLY_CHANGE
    assert cause.candidates == ("NCCL",)
    assert "NCCL (none → 2.28.3)" in cause.text


def test_a_change_that_cannot_be_behind_a_part_is_no_candidate() -> None:
    newer = Versions.model_validate({**VERSIONS, "nccl": "2.28.3"})
    cause = only_cause(measured(), measured({StepPart.FORWARD: 0.02}), versions=newer)
    assert cause.basis is CauseBasis.NONE
    assert cause.candidates == ()
    assert "torchscale profile" in cause.advice


def test_changes_that_came_together_are_listed_and_none_is_named() -> None:
    newer = Versions.model_validate({**VERSIONS, "cuda": "13.0", "driver": "580.1"})
    cause = only_cause(measured(), measured({StepPart.FORWARD: 0.02}), versions=newer)
    assert cause.basis is CauseBasis.SEVERAL
    assert cause.candidates == ("CUDA", "driver")


def test_nothing_is_named_for_parts_that_are_not_clear() -> None:
    newer = Versions.model_validate({**VERSIONS, "nccl": "2.28.3"})
    assert explained(measured(), measured(), versions=newer).causes == ()


def test_more_buckets_explain_longer_communication_and_not_shorter() -> None:
    few: dict[str, Any] = {"gradient_bytes": 100, "buckets": 1}
    many: dict[str, Any] = {"gradient_bytes": 100, "buckets": 40}
    longer = only_cause(measured(**few), measured({StepPart.COMMUNICATION: 0.01}, **many))
    assert longer.basis is CauseBasis.MEASURED
    assert "40 buckets instead of 1" in longer.text
    shorter = only_cause(measured({StepPart.COMMUNICATION: 0.01}, **few), measured(**many))
    assert shorter.basis is CauseBasis.NONE
    same = only_cause(measured(**few), measured({StepPart.COMMUNICATION: 0.01}, **few))
    assert same.basis is CauseBasis.NONE
    two: dict[str, Any] = {"gradient_bytes": 100, "buckets": 2}
    three: dict[str, Any] = {"gradient_bytes": 100, "buckets": 3}
    half_as_many_more = only_cause(
        measured(**two), measured({StepPart.COMMUNICATION: 0.01}, **three)
    )
    assert half_as_many_more.basis is CauseBasis.MEASURED
    unknown = only_cause(measured(), measured({StepPart.COMMUNICATION: 0.01}, **many))
    assert unknown.basis is CauseBasis.NONE, "how many there were before is not known"
    forward = only_cause(measured(**few), measured({StepPart.FORWARD: 0.02}, **many))
    assert forward.basis is CauseBasis.NONE, "buckets do not make the forward pass longer"


def test_a_link_that_is_slower_by_itself_is_named_if_the_gradients_are_the_same() -> None:
    before = measured(gradient_bytes=100, link_seconds=0.002)
    slower = measured({StepPart.COMMUNICATION: 0.01}, gradient_bytes=100, link_seconds=0.006)
    cause = only_cause(before, slower)
    assert cause.basis is CauseBasis.MEASURED
    assert "6 ms instead of 2 ms" in cause.text
    half_again = measured({StepPart.COMMUNICATION: 0.01}, gradient_bytes=100, link_seconds=0.003)
    assert only_cause(before, half_again).basis is CauseBasis.MEASURED
    larger = measured({StepPart.COMMUNICATION: 0.01}, gradient_bytes=300, link_seconds=0.006)
    assert only_cause(before, larger).basis is CauseBasis.NONE
    alike = measured({StepPart.COMMUNICATION: 0.01}, gradient_bytes=100, link_seconds=0.0021)
    assert only_cause(before, alike).basis is CauseBasis.NONE


def test_two_measured_causes_are_two_candidates() -> None:
    before = measured(gradient_bytes=100, buckets=1, link_seconds=0.002)
    after = measured(
        {StepPart.COMMUNICATION: 0.01}, gradient_bytes=100, buckets=9, link_seconds=0.006
    )
    cause = only_cause(before, after)
    assert cause.basis is CauseBasis.SEVERAL
    assert "two candidates" in cause.text


def test_one_rank_that_became_slower_is_named_with_its_phase() -> None:
    after = measured(
        ranks=(0.0005, 0.0055), later_in={StepPart.FORWARD: 0.0025, StepPart.BACKWARD: 0.0001}
    )
    cause = only_cause(measured(later_in={StepPart.FORWARD: 0.0}), after)
    assert cause.basis is CauseBasis.MEASURED
    assert "rank 1 is slower" in cause.text
    assert "in its forward pass" in cause.text
    spread = measured(
        ranks=(0.0005, 0.0055), later_in={StepPart.FORWARD: 0.002, StepPart.BACKWARD: 0.002}
    )
    assert "in its" not in only_cause(measured(), spread).text
    without_phases = only_cause(
        measured(later_in={}), measured(ranks=(0.0005, 0.0055), later_in={})
    )
    assert "rank 1 is slower" in without_phases.text
    assert "in its" not in without_phases.text
    faster = only_cause(after, measured())
    assert "rank 1 is faster" in faster.text


def test_of_several_slower_ranks_none_is_named() -> None:
    cause = only_cause(measured(), measured(ranks=(0.006, 0.006)))
    assert cause.basis is CauseBasis.NONE


@pytest.mark.parametrize(
    ("part", "name", "can"),
    [
        (StepPart.COMMUNICATION, "NCCL", True),
        (StepPart.COMMUNICATION, "variable NCCL_ALGO", True),
        (StepPart.FORWARD, "variable NCCL_ALGO", False),
        (StepPart.FORWARD, "variable OMP_NUM_THREADS", True),
        (StepPart.FORWARD, "cuDNN", True),
        (StepPart.DATA_WAIT, "config data.workers", True),
        (StepPart.FORWARD, "config data.workers", False),
        (StepPart.OPTIMIZER, "optimizer of cells", True),
        (StepPart.FORWARD, "config benchmark.repeats", False),
        (StepPart.FORWARD, "git commit", True),
        (StepPart.FORWARD, "git branch", False),
        (StepPart.REST, "git commit", False),
    ],
)
def test_which_changes_can_be_behind_which_parts(part: StepPart, name: str, *, can: bool) -> None:
    found = candidates_for(part, [SideDifference(name, ("a", "b"))])
    assert found == ((name,) if can else ())


def test_two_names_of_one_change_are_one_candidate() -> None:
    both = [
        SideDifference("strategy of cells", ("ddp", "fsdp")),
        SideDifference("config parallel.strategy", ("ddp", "fsdp")),
    ]
    assert candidates_for(StepPart.COMMUNICATION, both) == ("strategy of cells",)
    assert candidates_for(StepPart.COMMUNICATION, both[1:]) == ("config parallel.strategy",)


def test_there_is_advice_for_every_part() -> None:
    assert set(ADVICE) == set(StepPart)


def test_a_commit_is_named_by_its_first_digits() -> None:
    commit = "0123456789abcdef0123456789abcdef01234567"
    cause = only_cause(measured(), measured({StepPart.FORWARD: 0.02}), git_commit=f"{commit}-dirty")
    assert "git commit (none → 0123456789ab-dirty)" in cause.text


def test_fewer_buckets_explain_shorter_communication() -> None:
    few: dict[str, Any] = {"gradient_bytes": 100, "buckets": 1}
    many: dict[str, Any] = {"gradient_bytes": 100, "buckets": 40}
    slow = {StepPart.COMMUNICATION: 0.01}
    shorter = only_cause(measured(slow, **many), measured(**few))
    assert shorter.basis is CauseBasis.MEASURED
    assert "1 buckets instead of 40" in shorter.text
    longer = only_cause(measured(**many), measured(slow, **few))
    assert longer.basis is CauseBasis.NONE
    a_third_more = only_cause(
        measured(**few | {"buckets": 3}), measured(slow, **few | {"buckets": 4})
    )
    assert a_third_more.basis is CauseBasis.NONE


@pytest.mark.parametrize(("before", "after"), [(0, 4), (4, 0)])
def test_a_side_without_buckets_tells_nothing(before: int, after: int) -> None:
    cause = only_cause(
        measured(buckets=before), measured({StepPart.COMMUNICATION: 0.01}, buckets=after)
    )
    assert cause.basis is CauseBasis.NONE


@pytest.mark.parametrize(
    ("before", "after", "is_named"),
    [
        (0.5, 0.6, True),
        (0.5, 0.59, False),
        (0.6, 0.5, False),
        (0.0, 0.6, False),
        (0.5, 0.0, False),
        (0.5, -0.6, False),
    ],
)
def test_a_link_explains_longer_communication_from_a_fifth_on(
    before: float, after: float, *, is_named: bool
) -> None:
    """A time that is not above zero is none."""
    link: dict[str, Any] = {"gradient_bytes": 100}
    cause = only_cause(
        measured(link_seconds=before, **link),
        measured({StepPart.COMMUNICATION: 0.01}, link_seconds=after, **link),
    )
    assert (cause.basis is CauseBasis.MEASURED) is is_named


def test_a_link_that_is_faster_by_itself_explains_shorter_communication() -> None:
    cause = only_cause(
        measured({StepPart.COMMUNICATION: 0.01}, gradient_bytes=100, link_seconds=0.006),
        measured(gradient_bytes=100, link_seconds=0.002),
    )
    assert cause.basis is CauseBasis.MEASURED
    assert "2 ms instead of 6 ms" in cause.text


def test_a_link_within_its_noise_explains_nothing() -> None:
    """One of four launches measured a slow link."""
    before = measured(gradient_bytes=100, link_seconds=0.002)
    after = measured({StepPart.COMMUNICATION: 0.01}, gradient_bytes=100, link_seconds=0.002)
    first, *others = after.launches
    assert first.parts is not None
    slow = first.parts.model_copy(update={"link_seconds": 0.02})
    noisy = after.model_copy(
        update={"launches": (first.model_copy(update={"parts": slow}), *others)}
    )
    assert only_cause(before, noisy).basis is CauseBasis.NONE
    unknown = measured({StepPart.COMMUNICATION: 0.01}, link_seconds=0.02)
    assert only_cause(before, unknown).basis is CauseBasis.NONE, "of how much is not known"


def test_a_phase_is_named_from_three_fifths_of_what_ranks_take_longer() -> None:
    def cause(forward: float, backward: float) -> LikelyCause:
        later = {StepPart.FORWARD: forward, StepPart.BACKWARD: backward}
        return only_cause(measured(later_in={}), measured(ranks=(0.0005, 0.0055), later_in=later))

    assert "in its forward pass" in cause(3.0, 2.0).text
    assert "in its" not in cause(2.9, 2.1).text
    assert "in its forward pass" in cause(-3.0, 1.0).text


def test_a_cause_says_how_many_candidates_there_are_and_what_to_do() -> None:
    newer = Versions.model_validate({**VERSIONS, "cuda": "13.0", "driver": "580.1"})
    cause = only_cause(measured(), measured({StepPart.FORWARD: 0.02}), versions=newer)
    assert cause.text == "2 candidates that changed together"
    assert "one of them at a time" in cause.advice


def test_an_argument_of_a_script_can_be_behind_every_part() -> None:
    changed = [SideDifference("argument --bucket", ("25", "4"))]
    for part in (StepPart.FORWARD, StepPart.COMMUNICATION, StepPart.DATA_WAIT):
        assert candidates_for(part, changed) == ("argument --bucket",)
