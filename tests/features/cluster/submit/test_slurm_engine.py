"""What ``submit`` does around sbatch and squeue: folders, names, states."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.factories import experiment
from torchscale.config.load import load_experiment
from torchscale.features.cluster.submit import slurm_engine as slurm
from torchscale.features.cluster.submit.engine import (
    JobOptions,
    SlurmOptions,
    SubmitOptions,
    SubmittedJob,
    SubmittedState,
)
from torchscale.features.cluster.submit.slurm_engine import SlurmEngine

TWO = SubmitOptions(JobOptions(nodes=2, time="10"))


def test_the_script_carries_the_whole_experiment(tmp_path: Path) -> None:
    wanted = experiment(gpu_counts=[1, 16])
    engine = SlurmEngine(wanted, TWO, tmp_path / "run")
    config = tmp_path / "config.yaml"
    config.write_text(
        engine.render().partition("<<'")[2].partition("\n")[2].partition("\nTORCHSCALE_CONFIG")[0]
    )
    assert load_experiment(config) == wanted
    assert engine.job.state_directory == tmp_path / "run.submit"


def test_options_reach_the_script(tmp_path: Path) -> None:
    options = SubmitOptions(
        JobOptions(nodes=2, gpus_per_node=8, image="image"),
        SlurmOptions("lab", "gpu", "high", ("exclusive",)),
    )
    script = SlurmEngine(experiment(), options, tmp_path / "run").render()
    for text in (
        "account=lab",
        "partition=gpu",
        "qos=high",
        "exclusive",
        "gpus-per-node=8",
        "time=1:00:00",
    ):
        assert f"#SBATCH --{text}\n" in script
    assert "--container-image=image" in script


def test_a_submitted_job_names_its_folder_and_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm, "submit_script", lambda path, env: "77")
    engine = SlurmEngine(experiment(), TWO, tmp_path / "run")
    state = tmp_path / "run.submit"
    assert engine.submit() == SubmittedJob("77", str(tmp_path / "run"), str(state / "slurm-77.out"))
    assert (state / "job.sbatch").read_text() == engine.render()


@pytest.mark.parametrize(
    ("state", "left", "expected"),
    [
        ("PENDING", "0", SubmittedState("PENDING, launches measured: 0")),
        ("RUNNING", None, SubmittedState("RUNNING, launches measured: 0")),
        ("COMPLETED", "3\n", SubmittedState("COMPLETED, launches measured: 0", 3)),
        ("CANCELLED", None, SubmittedState("CANCELLED, launches measured: 0", 1)),
        (None, "0\n", SubmittedState("ended, launches measured: 0", 0)),
        (None, "what", SubmittedState("ended, launches measured: 0", 1)),
    ],
)
def test_states_of_slurm(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    state: str | None,
    left: str | None,
    expected: SubmittedState,
) -> None:
    monkeypatch.setattr(slurm, "job_state", lambda number: state)
    (tmp_path / "run.submit").mkdir()
    if left is not None:
        (tmp_path / "run.submit" / "exit-77").write_text(left)
    engine = SlurmEngine(experiment(), TWO, tmp_path / "run")
    assert engine.state(SubmittedJob("77", "", "")) == expected
