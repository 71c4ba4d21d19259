"""Engines: which takes which options, and how a job is followed to its end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

import pytest

from tests.factories import experiment
from torchscale.config.choices import SubmitEngine
from torchscale.errors import MachineError, UsageError
from torchscale.features.cluster.submit import run as submit
from torchscale.features.cluster.submit.engine import (
    IndexedJobOptions,
    JobOptions,
    KubernetesOptions,
    SlurmOptions,
    SubmitOptions,
    SubmittedJob,
    SubmittedState,
    TrainJobOptions,
)
from torchscale.features.cluster.submit.run import follow, prepare

JOB = SubmittedJob("77", "run", "slurm-77.out")
KUBERNETES = SubmitOptions(
    JobOptions(image="image"), kubernetes=KubernetesOptions(results_claim="results")
)


@dataclass
class Answers:
    """An engine whose scheduler answers so."""

    answers: list[SubmittedState | OSError]
    scheduler: str = "squeue"
    by_hand: Sequence[str] = ()
    asked: list[SubmittedJob] = field(default_factory=list)

    def render(self) -> str:
        return ""

    def submit(self) -> SubmittedJob:
        return JOB

    def state(self, job: SubmittedJob) -> SubmittedState:
        self.asked.append(job)
        answer = self.answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return answer


def test_every_engine_renders_the_same_experiment_its_way(tmp_path: Path) -> None:
    wanted = experiment(experiment_name="demo")
    assert (
        prepare(SubmitEngine.SLURM, wanted, SubmitOptions(), tmp_path / "run")
        .render()
        .startswith("#!/bin/bash\n")
    )
    assert "\nkind: TrainJob\n" in prepare(SubmitEngine.KUBERNETES, wanted, KUBERNETES).render()
    assert "\nkind: Job\n" in prepare(SubmitEngine.KUBERNETES_JOB, wanted, KUBERNETES).render()


@pytest.mark.parametrize(
    ("engine", "changes", "expected"),
    [
        (
            "kubernetes",
            {"slurm": SlurmOptions(partition="gpu")},
            "--partition gpu: not an option of --engine kubernetes",
        ),
        (
            "kubernetes-job",
            {"slurm": SlurmOptions(sbatch_option=("x=1",))},
            "--sbatch-option x=1: not an option",
        ),
        (
            "kubernetes",
            {"indexed_job": IndexedJobOptions(0)},
            "--restarts 0: not an option of --engine kubernetes",
        ),
        (
            "kubernetes-job",
            {"train_job": TrainJobOptions("r")},
            "--runtime r: not an option of --engine kubernetes-job",
        ),
        ("slurm", {}, "--results-claim results: not an option of --engine slurm"),
    ],
)
def test_an_option_of_another_engine_is_refused(
    engine: str, changes: dict[str, object], expected: str
) -> None:
    with pytest.raises(UsageError) as caught:
        prepare(SubmitEngine(engine), experiment(), replace(KUBERNETES, **changes))  # type: ignore[arg-type]
    assert expected in caught.value.message
    assert "it is for --engine" in str(caught.value.hint)


def test_every_group_of_options_belongs_to_an_engine() -> None:
    known = {group for kind in submit._ENGINES.values() for group in kind.groups}
    assert known == {each.name for each in fields(SubmitOptions)} - {"job"}
    assert set(submit._ENGINES) == set(SubmitEngine)


def test_a_job_is_followed_through_a_requeue_and_a_silent_scheduler() -> None:
    pending, running = SubmittedState("PENDING"), SubmittedState("RUNNING")
    engine = Answers(
        [
            pending,
            pending,
            running,
            OSError("silent"),
            pending,
            running,
            SubmittedState("COMPLETED", 3),
        ]
    )
    notes: list[str] = []
    assert follow(engine, JOB, notes.append, poll_seconds=0) == 3
    states = [note.removeprefix("job 77: ") for note in notes]
    assert states == ["PENDING", "RUNNING", "PENDING", "RUNNING", "COMPLETED"]
    assert set(engine.asked) == {JOB}


def test_a_scheduler_that_stays_silent_ends_the_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submit, "_PATIENCE_SECONDS", -1.0)
    with pytest.raises(MachineError, match="job 77: squeue does not answer: Unable to contact"):
        follow(Answers([OSError("Unable to contact")]), JOB, lambda note: None, poll_seconds=0)
