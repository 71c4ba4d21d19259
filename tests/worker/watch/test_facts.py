"""What a rank says of itself."""

from __future__ import annotations

import os
from pathlib import Path

import psutil
import pytest

from torchscale.worker.watch import facts
from torchscale.worker.watch.files import claim


def test_all_ranks_of_an_attempt_have_its_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    monkeypatch.setenv(facts.FIRST_ATTEMPT, "3")

    assert claim(tmp_path, 0, facts.attempt()).name == "0.4"
    assert claim(tmp_path, 7, facts.attempt()).name == "7.4"
    assert claim(tmp_path, 0, facts.attempt()).name == "0.5"


def test_the_start_of_the_process_is_known() -> None:
    assert facts.process_began() == pytest.approx(psutil.Process().create_time(), abs=1.5)


def test_a_process_that_a_rank_starts_belongs_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "3")
    for noted, belongs in (("", False), (f"{os.getpid()}:3", False), ("1:3", True), ("1:2", False)):
        monkeypatch.setenv(facts.RANK_VARIABLE, noted)
        assert facts.belongs_to_a_rank() is belongs
