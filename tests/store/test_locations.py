"""Where run folders go."""

from __future__ import annotations

from pathlib import Path

from torchscale.store.locations import default_directory


def test_a_run_goes_below_results_under_its_name() -> None:
    assert default_directory("ddp-sweep") == Path("results/ddp-sweep")
