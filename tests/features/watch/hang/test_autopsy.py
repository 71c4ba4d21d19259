"""Why a job hangs, from its dumps and from its processes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.features.watch.hang.test_flight_recorder import dump, entry
from torchscale.features.watch.hang import autopsy as module
from torchscale.features.watch.hang.autopsy import autopsy_of_dumps, autopsy_of_process
from torchscale.features.watch.hang.dumps import read_directory
from torchscale.features.watch.hang.job import RankEvidence
from torchscale.schema.launch.hang import HangCause


@pytest.fixture
def dumps(tmp_path: Path) -> Path:
    """Rank 1 did not call the fourth all-reduce."""
    for rank, entries in ((0, [entry(3), entry(4, retired=False)]), (1, [entry(3)])):
        (tmp_path / f"rank_{rank}").write_text(json.dumps(dump(*entries)))
    return tmp_path


def test_dumps_name_the_rank_that_did_not_call(dumps: Path) -> None:
    found = autopsy_of_dumps(dumps)
    assert (found.cause, found.ranks) == (HangCause.RANK_MISSING, (1,))


def test_processes_are_judged_like_dumps_with_what_was_noted_of_them(
    dumps: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evidence, _ = read_directory(dumps)

    def inspected(pid: int) -> tuple[list[RankEvidence], tuple[str, ...]]:
        assert pid == 4711
        return evidence, ("py-spy is not installed",)

    monkeypatch.setattr(module, "inspect_job", inspected)
    found = autopsy_of_process(4711)
    assert (found.cause, found.ranks) == (HangCause.RANK_MISSING, (1,))
    assert any("py-spy is not installed" in line for line in found.evidence)


def test_what_two_real_ranks_over_nccl_left_while_they_hung_is_explained() -> None:
    """gloo's recorder was empty there, and NCCL's full."""
    recorded = Path(__file__).parents[3] / "data" / "nccl" / "hang"
    found = autopsy_of_dumps(recorded)
    assert (found.cause, found.ranks) == (HangCause.RANK_MISSING, (1,))
    assert found.collective is not None
    assert (found.collective.operation, found.collective.sequence) == ("all_reduce", 405)
    assert found.evidence[-1].endswith("gloo (none), nccl (25)")
