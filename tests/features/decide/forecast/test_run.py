"""Predictions from runs and tables, as files and in Python."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.analysis.training.test_signals import record
from tests.factories import (
    VERSIONS,
    experiment,
    launch_nodes,
    launch_record,
    machine,
    rank_record,
    run,
    trained,
)
from torchscale.analysis.summary.run import summarize
from torchscale.config.choices import ReportFormat
from torchscale.errors import ExitCode, UsageError
from torchscale.features.decide.forecast.run import (
    PredictOptions,
    exit_code,
    predict_run,
    predict_table,
    render_predictions,
    run_series,
)
from torchscale.features.decide.forecast.series import Latency
from torchscale.plan.expand import make_plan
from torchscale.run_results import load_results
from torchscale.schema.cells.collectives import CollectiveSample, CollectivesRank, CollectivesResult
from torchscale.schema.cells.training import TrainingCell
from torchscale.schema.node.environment import DeviceInfo, RankIdentity
from torchscale.store.run_folder import RunFolder

SECONDS = {1: 1.0, 2: 1.1, 4: 1.15}


def measured(path: Path) -> Path:
    """A run of 1, 2 and 4 ranks, each on a node of its own, of three launches each."""
    planned = run({}, gpu_counts=list(SECONDS))
    folder = RunFolder.create(path, planned.experiment)
    for cell_run in planned.cells:
        cell = cell_run.planned.cell
        assert isinstance(cell, TrainingCell)
        for launch, factor in enumerate((1.0, 1.002, 0.998)):
            batches = [SECONDS[cell.world_size] * factor] * 10
            hosts = [f"node-{rank}" for rank in range(cell.world_size)]
            ranks = [
                rank_record(cell, rank, batches, hostname=host, node_rank=rank)
                for rank, host in enumerate(hosts)
            ]
            nodes = launch_nodes(*hosts) if len(hosts) > 1 else ()
            folder.begin_launch(cell, launch)
            folder.finish_launch(cell, launch_record(cell, launch, batches, ranks, nodes=nodes))
    return path


def test_a_run_is_predicted_from_its_launches_and_nodes(tmp_path: Path) -> None:
    report = predict_run(measured(tmp_path / "run"), PredictOptions((8, 16), price=2.5))
    (outcome,) = report.outcomes
    assert [(point.gpus, point.nodes, len(point.launches)) for point in outcome.series.points] == [
        (1, 1, 3),
        (2, 2, 3),
        (4, 4, 3),
    ]
    assert report.refused is None
    assert exit_code(report) is ExitCode.OK
    at_8, at_16 = report.predictions
    assert at_8.nodes == 8
    rate = outcome.series.points[-1].throughput / 4
    assert 0.9 * 8 * rate < at_8.throughput <= 8 * rate
    assert at_8.step_seconds is not None and 0.11 < at_8.step_seconds < 0.13
    assert at_16.cost_per_million is not None


def all_reduces(rank: int, latency: float, hostname: str) -> CollectivesRank:
    """Over a link of 1 GB/s."""
    shared = {"operation": "all_reduce", "dtype": "fp32", "in_place": True, "wrong_elements": 0}
    timed = {1024 << power: latency + (1024 << power) / 1e9 for power in range(10)}
    samples = tuple(
        CollectiveSample.model_validate(
            shared
            | {
                "payload_bytes": size,
                "elements": size // 4,
                "mean_seconds": seconds,
                "call_seconds": (seconds,),
            }
        )
        for size, seconds in timed.items()
    )
    identity = RankIdentity(
        rank=rank,
        local_rank=rank,
        world_size=2,
        pid=rank,
        hostname=hostname,
        device=DeviceInfo(kind="cpu", index=rank, name="Test Processor"),
        backend="gloo",
        threads=1,
        cpus=(rank,),
        versions=VERSIONS,
    )
    return CollectivesRank(**dict(identity), samples=samples)


def latency_of(latency: float, hosts: Sequence[str] = ("node-1", "node-1")) -> Latency | None:
    """Of two ranks of one node, with gradients of 4 MB in two buckets, and a sweep of collectives
    on ``hosts``."""
    cell, trained_launch = record([0.0, 0.0])
    content: dict[str, Any] = {"gpu_counts": [2], "measure": ["collectives", "training"]}
    result = CollectivesResult(
        ranks=tuple(all_reduces(rank, latency, host) for rank, host in enumerate(hosts))
    )
    launches = {
        entry.cell.id: [
            trained_launch if entry.cell.id == cell.id else launch_record(cell, payload=result)
        ]
        for entry in make_plan(experiment(**content), machine()).cells
    }
    launches = {
        id_: [one.model_copy(update={"cell_id": id_}) for one in several]
        for id_, several in launches.items()
    }
    (series,) = run_series(summarize(run(launches, **content)))
    return series.points[0].latency


def test_measured_collectives_say_how_much_of_gradient_sync_is_latency() -> None:
    """The launch timed 3 ms for its two buckets and for one large all-reduce alike."""
    found = latency_of(1e-3)
    assert found is not None
    assert found.share == pytest.approx(1 / 3, rel=1e-3)
    assert found.of_ring
    small = latency_of(1e-5)
    assert small is not None and small.share < 0.01


def test_collectives_over_other_nodes_say_nothing_of_a_count() -> None:
    found = latency_of(1e-3, ("node-1", "node-2"))
    assert found is not None and found.share == 0


def test_a_run_without_collectives_says_nothing_of_latency(tmp_path: Path) -> None:
    (outcome,) = predict_run(measured(tmp_path / "run"), PredictOptions((8,))).outcomes
    assert all(point.latency is None for point in outcome.series.points)


def test_runs_predict_in_python(tmp_path: Path) -> None:
    runs = load_results(measured(tmp_path / "run"))
    report = runs.predict([8, 1000], cost=2.5)
    assert [one.gpus for one in report.predictions] == [8]
    assert report.refused is not None
    assert "more than 16 times" in report.refused


def test_ranks_of_one_host_are_one_node_unless_gpus_per_node_says_otherwise() -> None:
    first, second, fourth = (
        trained(entry.planned) for entry in run({}, gpu_counts=[1, 2, 4]).cells
    )
    records = {cell.id: [launch_record(cell)] for cell in (first, second, fourth)}
    summary = summarize(run(records, gpu_counts=[1, 2, 4]))
    (series,) = run_series(summary)
    assert [point.nodes for point in series.points] == [1, 1, 1]
    (series,) = run_series(summary, 2)
    assert [point.nodes for point in series.points] == [1, 1, 2]


def test_a_run_without_figures_is_refused_in_one_line(tmp_path: Path) -> None:
    planned = run({}, gpu_counts=[1, 2])
    RunFolder.create(tmp_path / "run", planned.experiment)
    with pytest.raises(UsageError, match="no training cell has figures"):
        predict_run(tmp_path / "run", PredictOptions((8,)))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (PredictOptions(()), "no count of GPUs"),
        (PredictOptions((0,)), "--gpus 0"),
        (PredictOptions((10_000_000,)), "--gpus 10000000"),
        (PredictOptions(tuple(range(1, 200))), "at most 100"),
        (PredictOptions((8,), gpus_per_node=0), "--gpus-per-node 0"),
        (PredictOptions((8,), link="carrier-pigeon"), "unknown link"),
        (PredictOptions((8,), price=-1.0), "--cost -1"),
        (PredictOptions((8,), price=float("nan")), "--cost nan"),
    ],
)
def test_wrong_options_are_one_line(tmp_path: Path, options: PredictOptions, expected: str) -> None:
    with pytest.raises(UsageError) as caught:
        predict_table(tmp_path / "none.csv", options)
    assert expected in caught.value.message


def test_every_format_says_that_it_predicts(tmp_path: Path) -> None:
    table = tmp_path / "points.csv"
    table.write_text("gpus,throughput,launch\n8,1000,0\n8,1010,1\n16,1900,0\n")
    report = predict_table(table, PredictOptions((12, 32, 1000), price=2.0))
    markdown = render_predictions(report, ReportFormat.MARKDOWN).decode()
    assert "Predictions, not measurements" in markdown
    assert "more than 16 times" in markdown
    html = render_predictions(report, ReportFormat.HTML).decode()
    for words in ("predicted, extrapolated", "predicted between measured counts", "measured"):
        assert words in html
    assert b'"refused": "1,000 GPUs' in render_predictions(report, ReportFormat.JSON)
    assert exit_code(report) is ExitCode.UNABLE
