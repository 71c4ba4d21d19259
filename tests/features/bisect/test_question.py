"""What lies between two sides of a bisection."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.features.bisect.wheels import write_wheel
from torchscale.errors import UsageError
from torchscale.features.bisect.hypotheses import AnswerKind
from torchscale.features.bisect.question import Question, ask, ask_versions


def labels(question: Question) -> list[str]:
    return [candidate.label for candidate in question.candidates]


def of(good: str, bad: str, *wheels: Path) -> Question:
    return ask(good, bad, wheels=wheels, directory=Path())


def test_one_package_between_two_versions_of_a_directory_of_wheels(tmp_path: Path) -> None:
    for version in ("1.0", "1.1", "1.2", "1.3"):
        write_wheel(tmp_path, "demo", version, "")
    question = of("demo==1.0,numpy==2.1", "demo==1.2,numpy==2.1", tmp_path)
    assert labels(question) == ["demo 1.0", "demo 1.1", "demo 1.2"]
    assert question.candidates[1].environment.requirements == ("demo==1.1", "numpy==2.1")
    assert [one.members for one in question.hypotheses] == [(1,), (2,)]
    assert [factor.change for factor in question.factors] == ["demo 1.0 → 1.2"]


def test_two_packages_that_changed_together_are_combined() -> None:
    question = of("a==1,b==1,same==3", "a==2,b==2,same==3")
    assert labels(question) == ["a 1, b 1", "a 1, b 2", "a 2, b 1", "a 2, b 2"]
    assert question.candidates[2].environment.requirements == ("a==2", "b==1", "same==3")
    assert {one.kind for one in question.hypotheses} == set(AnswerKind) - {AnswerKind.STEP}


def test_a_package_that_only_one_side_has() -> None:
    question = of("a==1", "a==1,b==2")
    assert labels(question) == ["no b", "b 2"]
    assert [one.environment.requirements for one in question.candidates] == [
        ("a==1",),
        ("a==1", "b==2"),
    ]
    assert question.factors[0].change == "no b → 2"


def test_many_packages_are_changed_one_after_the_other() -> None:
    names = "abcdef"
    old, new = (",".join(f"{name}=={side}" for name in names) for side in (1, 2))
    question = of(old, new)
    assert labels(question)[0] == "all old"
    assert labels(question)[2] == "2 of 6 new, to b 2"
    assert question.candidates[2].environment.requirements == (
        "a==2", "b==2", "c==1", "d==1", "e==1", "f==1",
    )  # fmt: skip
    assert len(question.candidates) == 7
    assert {one.kind for one in question.hypotheses} == {AnswerKind.STEP}


def test_variables_with_commas_in_their_values() -> None:
    question = of("env:NCCL_ALGO=Ring,Tree,NCCL_PROTO=Simple", "env:NCCL_ALGO=Ring,Tree")
    assert labels(question) == ["NCCL_PROTO=Simple", "no NCCL_PROTO"]
    assert question.candidates[0].environment.variables == (
        ("NCCL_ALGO", "Ring,Tree"),
        ("NCCL_PROTO", "Simple"),
    )
    assert question.factors[0].change == "NCCL_PROTO=Simple → none"


def test_no_variables_against_one() -> None:
    assert labels(of("env:", "env:OMP_NUM_THREADS=1")) == [
        "no OMP_NUM_THREADS",
        "OMP_NUM_THREADS=1",
    ]


def test_versions_in_an_order_of_the_users_own() -> None:
    question = ask_versions("torch=2.8,2.10,2.9")
    assert labels(question) == ["torch 2.8", "torch 2.10", "torch 2.9"]


@pytest.mark.parametrize(
    ("good", "bad", "named"),
    [
        ("a==1", "a==1", "both sides have the same packages"),
        ("env:A=1", "env:A=1", "both sides have the same variables"),
        ("a==1", "env:A=1", "one is requirements, the other variables"),
        ("env:A=1", "env:2=1", "'2=1' is no variable"),
        ("env:A=1", "env:B", "'B' is no variable"),
    ],
)
def test_sides_that_make_no_question(good: str, bad: str, named: str) -> None:
    with pytest.raises(UsageError, match=named):
        of(good, bad)


@pytest.mark.parametrize("text", ["torch", "torch=2.9", "torch=2.9,2.9", "=1,2"])
def test_lists_of_versions_that_are_none(text: str) -> None:
    with pytest.raises(UsageError):
        ask_versions(text)


def test_equal_environments_have_equal_digests_and_others_have_not() -> None:
    first, second = (of("a==1,b==1", "b==2,a==2") for _ in range(2))
    digests = [one.environment.digest for one in first.candidates]
    assert digests == [one.environment.digest for one in second.candidates]
    assert len(set(digests)) == 4
