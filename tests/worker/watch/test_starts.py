"""Attempts that no launcher counts are numbered by where their ranks meet."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from torchscale.worker.watch.ends import FIRST_ATTEMPT
from torchscale.worker.watch.starts import FOLDER, number_start


def test_ranks_that_meet_at_one_port_are_of_one_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MASTER_ADDR", "::1")
    monkeypatch.setenv(FIRST_ATTEMPT, "")
    numbers = []
    for port in ("5000", "5000", "5001", "5000", "5002"):
        monkeypatch.setenv("MASTER_PORT", port)
        number_start(tmp_path)
        numbers.append(os.environ[FIRST_ATTEMPT])

    assert numbers == ["0", "0", "1", "0", "2"]


def test_without_a_meeting_place_nothing_is_numbered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MASTER_PORT", raising=False)
    monkeypatch.setenv(FIRST_ATTEMPT, "7")
    number_start(tmp_path)

    assert os.environ[FIRST_ATTEMPT] == "7"
    assert not (tmp_path / FOLDER).exists()
