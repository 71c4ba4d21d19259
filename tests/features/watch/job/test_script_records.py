"""What the ranks of a script would have written of themselves."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests import factories
from tests.features.watch.analysis.jobs import START_NS, job
from tests.features.watch.job.folders import USE, write_job
from torchscale.analysis.exchanges.steps import JobSteps, WaitsBy
from torchscale.features.watch.analysis.script_measurement import ScriptMeasurement
from torchscale.features.watch.analysis.step_log import joined, part_of
from torchscale.features.watch.job.host_load import HostLoadSamples
from torchscale.features.watch.job.job import WatchedJob
from torchscale.features.watch.job.script_records import MeasuredProgram
from torchscale.launch.kinds.training import collect_payload
from torchscale.schema.cells.training import TrainingCell
from torchscale.schema.launch.rank import RankRecord
from torchscale.schema.launch.task import LaunchTask
from torchscale.schema.launch.training import TrainingResult


def _cell(text: str = "train.py {batch_size}", world_size: int = 2) -> TrainingCell:
    (cell,) = factories.cells(models=[{"script": text}], batch_sizes=[8], gpu_counts=[world_size])
    return cell


def _written(
    directory: Path,
    cell: TrainingCell,
    passes: float = 1.0,
    *,
    waits_by: WaitsBy = WaitsBy.CALLS,
    early: float = 0.0,
    **facts: object,
) -> TrainingResult:
    """The payload of a script of 200 steps, each of so many backward passes; the last rank's first
    measured step began so many seconds ``early``."""
    write_job(directory, job(cell.world_size, 200), 0, **facts)
    steps: list[JobSteps] = []
    watched = WatchedJob(
        directory, ("train.py",), START_NS * 1e-9, on_steps=lambda _, new: steps.append(new)
    )
    watched.advance()
    rule = cell.measurement.model_copy(update={"warmup_seconds": 0.0})
    whole = joined(steps)
    whole = replace(whole, passes=np.full_like(whole.passes, passes), waits_by=waits_by)
    first = ScriptMeasurement(rule, 100)
    first.add(whole.wall)
    assert first.first is not None
    whole.wall[-1, first.first - whole.first] += early
    measurement = ScriptMeasurement(rule, 100)
    measurement.add(whole.wall)
    assert cell.script is not None
    task = LaunchTask(
        cell=cell,
        launch=0,
        device="cpu",
        cpu_sets=tuple((rank,) for rank in range(cell.world_size)),
        threads_per_rank=1,
        started_at=START_NS * 1e-9,
        collective_timeout_seconds=1.0,
    )
    streams = tuple(watched.streams.values())
    for stream in streams:
        stream.read_use()
    begin = (measurement.first or 0) - whole.first
    assert measurement.ended_by is not None
    MeasuredProgram(
        part_of(whole, begin, begin + measurement.measured),
        measurement.batches_of(len(streams)),
        measurement.warmup_of(len(streams)),
        measurement.ended_by,
        streams,
        HostLoadSamples(),
        task,
    ).write(directory)
    ranks = [
        RankRecord.model_validate_json((directory / f"rank-{rank}.json").read_text())
        for rank in range(cell.world_size)
    ]
    return collect_payload(directory, ranks)


def test_phases_add_up_to_the_step_on_every_rank(tmp_path: Path) -> None:
    result = _written(tmp_path, _cell())

    steps = result.rank_steps
    assert steps.count == (100, 100)
    assert steps.mean_forward == (None, None)
    for rank in range(2):
        compute, sync = steps.mean_compute[rank], steps.mean_sync[rank]
        assert compute is not None and sync is not None
        assert steps.mean_data_wait[rank] + compute + sync == pytest.approx(
            steps.mean[rank], rel=0.02
        )


def test_a_single_rank_waits_for_nobody(tmp_path: Path) -> None:
    result = _written(tmp_path, _cell(world_size=1))

    assert result.rank_steps.mean_sync == (None,)
    assert result.rank_steps.mean_compute[0] == pytest.approx(result.rank_steps.mean[0], rel=0.02)


def test_on_a_device_nobody_knows_who_waits(tmp_path: Path) -> None:
    result = _written(tmp_path, _cell(), device="cuda")

    assert result.rank_steps.mean_sync == (None, None)
    assert result.signals is not None
    assert result.signals.wait is None


@pytest.mark.parametrize(
    ("text", "passes", "samples", "why"),
    [
        ("train.py {batch_size}", 1.0, 8, ""),
        ("train.py {batch_size}", 0.0, 8, ""),
        ("train.py {batch_size}", 4.0, None, "4 backward passes in each optimizer step"),
        ("train.py", 1.0, None, "is not told its batch size"),
    ],
)
def test_samples_are_known_where_a_step_is_one_batch(
    tmp_path: Path, text: str, passes: float, samples: int | None, why: str
) -> None:
    first = _written(tmp_path, _cell(text), passes).ranks[0]

    assert first.samples_per_step == samples
    assert why in first.samples_unknown


def test_a_rank_says_where_it_ran_and_not_what_nobody_saw(tmp_path: Path) -> None:
    first, second = _written(tmp_path, _cell(), cpus=[0], threads=1).ranks

    assert (first.hostname, first.backend, first.threads, first.cpus) == ("here", "gloo", 1, (0,))
    assert (first.pid, second.pid) == (1, 2)
    assert (first.node_rank, second.local_rank) == (0, 1)
    assert first.memory.resident_peak_bytes == USE["peak_memory_bytes"]
    assert first.memory.peak_bytes is None
    assert first.parameters is None
    assert first.setup is None
    assert first.losses_finite is None
    assert first.measured_from is not None and first.measured_until is not None
    assert first.measured_until - first.measured_from == pytest.approx(
        first.batches.total_seconds, rel=0.01
    )


def test_by_lengths_what_was_waited_is_part_of_a_ranks_own_time_already(tmp_path: Path) -> None:
    by_calls = _written(tmp_path / "calls", _cell(), device="cuda")
    by_lengths = _written(tmp_path / "lengths", _cell(), waits_by=WaitsBy.LENGTHS, device="cuda")
    for calls, lengths, mean in zip(
        by_calls.rank_steps.mean_compute,
        by_lengths.rank_steps.mean_compute,
        by_lengths.rank_steps.mean,
        strict=True,
    ):
        assert calls is not None and lengths is not None
        assert lengths < calls <= mean * 1.02


def test_each_ranks_measurement_begins_with_its_own_first_step(tmp_path: Path) -> None:
    ranks = _written(tmp_path, _cell(), early=0.4).ranks
    for rank in ranks:
        assert rank.measured_from is not None and rank.measured_until is not None
        wall = rank.measured_until - rank.measured_from
        assert wall == pytest.approx(rank.batches.total_seconds, rel=0.01)
    assert ranks[0].measured_from - ranks[1].measured_from == pytest.approx(0.4, abs=0.01)  # type: ignore[operator]
