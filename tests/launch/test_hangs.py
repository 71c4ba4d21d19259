"""Why a launch hangs: what is offered says so."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from torchscale.door import Slot
from torchscale.launch import hangs
from torchscale.launch.hangs import failure_autopsy, hang_autopsy, inspect_hang
from torchscale.schema.launch.hang import FACTS_FILE, HangCause, RankCondition, RankPosition


def test_ranks_are_examined_by_what_is_offered(tmp_path: Path) -> None:
    inspect_hang(tmp_path, os.getpid(), (0,))
    assert (tmp_path / FACTS_FILE).exists()
    found = hang_autopsy(tmp_path, 1)
    assert found.positions == (RankPosition(rank=0, condition=RankCondition.GONE),)
    assert failure_autopsy(tmp_path, 1) is None


def test_without_an_offer_ranks_are_not_examined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offers: Mapping[str, Mapping[str, str]] = {"hangs": {}}
    monkeypatch.setattr("torchscale.door.OFFERS", offers)
    monkeypatch.setattr(hangs, "_INSPECTORS", Slot("hangs"))
    inspect_hang(tmp_path, os.getpid(), (0,))
    assert not [*tmp_path.iterdir()]
    found = hang_autopsy(tmp_path, 1)
    assert (found.cause, found.summary) == (HangCause.UNKNOWN, "not examined")
    assert failure_autopsy(tmp_path, 1) is None
