"""Launches that do more work than others, told apart by the real program."""

from __future__ import annotations

import json

import pytest

from tests.integration.conftest import Program

pytestmark = [pytest.mark.integration, pytest.mark.quiet]

EXTRA_PRODUCTS = 3000
"""A step then takes some ten times as long: far beyond what launches differ by."""


def test_more_work_in_each_step_is_worse_and_its_cause_is_named(program: Program) -> None:
    launch = {"threads_per_rank": 1}
    config = program.config(models="slowed:build", gpu_counts=[1], launch=launch)
    # The second side is measured in two turns: launches that are added to others count like those
    # of one turn.
    for side, extra, repeats in (
        ("before", 0, 3),
        ("after", EXTRA_PRODUCTS, 1),
        ("after", EXTRA_PRODUCTS, 3),
    ):
        options = (f"--benchmark.repeats={repeats}", f"--launch.env.EXTRA_PRODUCTS={extra}")
        done = program.run("benchmark", config, *options, "--output-dir", f"results/{side}")
        assert done.returncode == 0, done.stderr
    # Other processes on the machine do not hide a difference of this size.
    compare = ("compare", "--accept", "flags")
    done = program.here(
        *compare, "results/before", "results/after", "--format", "json", "--output", "-"
    )
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)
    assert [one["what"] for one in found["differences"]] == ["config launch.env.EXTRA_PRODUCTS"]
    (pair,) = found["pairs"]
    (cell,) = pair["cells"]
    assert pair["regressions"] == [cell["cell_id"]]
    assert pair["overall_regressions"] == ["throughput"]
    throughput = next(change for change in cell["changes"] if change["metric"] == "throughput")
    assert throughput["launches"] == [3, 3]
    assert throughput["interval"][1] < 0.5
    again = program.here(*compare, "results/after", "results/before")
    assert again.returncode == 0, again.stderr
    assert "better" in again.stdout
