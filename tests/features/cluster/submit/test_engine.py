"""What every scheduler is told."""

from __future__ import annotations

import pytest

from tests.factories import experiment
from torchscale.errors import UsageError
from torchscale.features.cluster.submit.engine import JobOptions, check_counts, job_name


def test_a_job_is_named_after_its_experiment_unless_it_is_named() -> None:
    assert job_name(experiment(experiment_name="A_b.C"), None) == "torchscale-a-b-c"
    assert len(job_name(experiment(experiment_name="x" * 90), None)) == 40
    assert job_name(experiment(), "mine") == "mine"


@pytest.mark.parametrize(
    "job",
    [
        JobOptions(0),
        JobOptions(1025),
        JobOptions(1, gpus_per_node=0),
        JobOptions(1, cpus_per_task=5000),
    ],
)
def test_counts_out_of_range_are_refused(job: JobOptions) -> None:
    with pytest.raises(UsageError, match="expected 1 to"):
        check_counts(job)
