"""Each cause injected once on two real ranks: the shortened form of ``benchmarks/diagnosis.py``."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "diagnosis.py"

pytestmark = [pytest.mark.integration, pytest.mark.quiet, pytest.mark.timeout(900)]


def test_each_cause_is_named_with_its_rank_and_size_and_none_where_there_is_none(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--short", "--json", str(tmp_path / "out.json")],
        capture_output=True,
        text=True,
        timeout=840,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    outcomes = json.loads((tmp_path / "out.json").read_text())
    causes = {"none", "slow_rank", "uneven_batch", "moving", "small_buckets", "slow_loader", "host_work", "pauses"}
    assert {outcome["scenario"]["cause"] for outcome in outcomes} == causes
    judged = [outcome for outcome in outcomes if outcome["scenario"][f"by_{outcome['source']}"]]
    assert len(judged) == 14
    wrong = [outcome for outcome in judged if not outcome["right"]]
    assert wrong == [], done.stdout
    assert not any(outcome["wrong_rank"] for outcome in outcomes), done.stdout
    for outcome in judged:
        if outcome["ratio"] is not None:
            assert outcome["ratio"] == pytest.approx(1.0, abs=0.35), done.stdout
