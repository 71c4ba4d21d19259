"""What ``submit`` does around sbatch and squeue: folders, names, following a job."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.factories import experiment
from torchscale.config.load import load_experiment
from torchscale.errors import MachineError, UsageError
from torchscale.run import submit
from torchscale.run.submit import SlurmOptions, SubmittedJob, check_counts, follow, job_name, slurm_job, slurm_script


@pytest.fixture
def job(tmp_path: Path) -> SubmittedJob:
    state = tmp_path / "run.submit"
    state.mkdir()
    return SubmittedJob("77", tmp_path / "run", state / "job.sbatch", state / "slurm-77.out")


def test_the_script_carries_the_whole_experiment(tmp_path: Path) -> None:
    wanted = experiment(gpu_counts=[1, 16])
    script = slurm_script(wanted, SlurmOptions(nodes=2, time="10"), tmp_path / "run")
    config = tmp_path / "config.yaml"
    config.write_text(script.partition("<<'")[2].partition("\n")[2].partition("\nTORCHSCALE_CONFIG")[0])
    assert load_experiment(config) == wanted
    assert slurm_job(wanted, SlurmOptions(nodes=2, time="10"), tmp_path / "run").state_directory == (
        tmp_path / "run.submit"
    )


def test_a_job_is_named_after_its_experiment_unless_it_is_named() -> None:
    assert job_name(experiment(experiment_name="A_b.C"), None) == "torchscale-a-b-c"
    assert len(job_name(experiment(experiment_name="x" * 90), None)) == 40
    assert job_name(experiment(), "mine") == "mine"


@pytest.mark.parametrize("counts", [(0, None, None), (1025, None, None), (1, 0, None), (1, None, 5000)])
def test_counts_out_of_range_are_refused(counts: tuple[int, int | None, int | None]) -> None:
    with pytest.raises(UsageError, match="expected 1 to"):
        check_counts(*counts)


def test_a_job_is_followed_through_a_requeue_and_a_silent_controller(
    job: SubmittedJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[str | OSError] = ["PENDING", "RUNNING", OSError("silent"), "PENDING", "RUNNING", "COMPLETED"]
    states = iter(answers)

    def job_state(number: str) -> str:
        assert number == "77"
        state = next(states)
        if isinstance(state, OSError):
            raise state
        return state

    monkeypatch.setattr(submit, "job_state", job_state)
    (job.script.parent / "exit-77").write_text("3\n")
    notes: list[str] = []
    assert follow(job, notes.append, poll_seconds=0) == 3
    said = [note.removeprefix("job 77: ").removesuffix(", launches measured: 0") for note in notes]
    assert said == ["PENDING", "RUNNING", "PENDING", "RUNNING", "COMPLETED"]


def test_a_job_that_left_no_exit_code_has_failed(job: SubmittedJob, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submit, "job_state", lambda number: None)
    assert follow(job, lambda note: None) == 1


def test_a_controller_that_stays_silent_ends_the_waiting(job: SubmittedJob, monkeypatch: pytest.MonkeyPatch) -> None:
    def job_state(number: str) -> str:
        raise OSError("Unable to contact")

    monkeypatch.setattr(submit, "job_state", job_state)
    monkeypatch.setattr(submit, "_PATIENCE_SECONDS", -1.0)
    with pytest.raises(MachineError, match="squeue does not answer: Unable to contact"):
        follow(job, lambda note: None, poll_seconds=0)
