"""What a rank says of itself."""

from __future__ import annotations

import os
import time
from pathlib import Path

import psutil
import pytest

from torchscale.worker.watch import clock, ends, facts
from torchscale.worker.watch.files import claim


def test_all_ranks_of_an_attempt_have_its_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    monkeypatch.setenv(ends.FIRST_ATTEMPT, "3")

    assert claim(tmp_path, 0, facts.attempt()).name == "0.4"
    assert claim(tmp_path, 7, facts.attempt()).name == "7.4"
    assert claim(tmp_path, 0, facts.attempt()).name == "0.5"


def test_the_start_of_the_process_is_known() -> None:
    assert facts.process_began() == pytest.approx(psutil.Process().create_time(), abs=1.5)


def test_a_process_began_by_the_clock_of_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    began = facts.process_began()
    monkeypatch.setattr(clock, "now", lambda: time.time() + 3_600)
    assert facts.process_began() - began == pytest.approx(3_600, abs=60)


def test_a_process_that_a_rank_starts_belongs_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "8")
    for noted, belongs in (
        ("", False),
        (f"{os.getpid()}:3:8", False),
        ("1:3:8", True),
        ("1:2:8", False),
        ("1:3:1", False),  # it trained alone before it started the ranks
    ):
        monkeypatch.setenv(ends.RANK_VARIABLE, noted)
        assert facts.belongs_to_a_rank() is belongs


@pytest.mark.parametrize("text", ["worker-3", "-1", "1000000000", "3.0", "\u0663", " 3"])
def test_a_rank_that_is_no_number_is_named(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("RANK", text)
    with pytest.raises(ValueError, match=r"^RANK=.*: expected a number from 0 to 9,999,999$"):
        facts.rank()


@pytest.mark.parametrize(
    ("variables", "is_one"),
    [
        ({"RANK": "1", "WORLD_SIZE": "2"}, True),
        ({"RANK": "0", "WORLD_SIZE": "1"}, False),
        ({"WORLD_SIZE": "2"}, False),
        ({"RANK": "1", "WORLD_SIZE": "two"}, False),
        ({"RANK": "1", "WORLD_SIZE": "2", ends.RANK_VARIABLE: "1:1:2"}, False),
    ],
    ids=["one of two", "alone", "no rank", "no number", "started by a rank"],
)
def test_a_launcher_makes_a_process_a_rank(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], *, is_one: bool
) -> None:
    for name in ("RANK", "WORLD_SIZE", ends.RANK_VARIABLE):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert facts.is_launched_as_rank() is is_one
