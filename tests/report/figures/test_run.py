"""What exporters get of a run: its identity, and its parameters without secrets."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests import factories
from tests.report.test_machine import machine_summary
from torchscale.analysis.summary.run import summarize
from torchscale.features.export.formats.store import (
    RunToStore,
    cells_to_store,
    content_digest,
    measured_values,
    outcome_tags,
)
from torchscale.report.figures.run import exported_run
from torchscale.schema.node.environment import DeviceInfo
from torchscale.schema.state import State
from torchscale.util.secret_names import REDACTED


def test_the_id_is_of_what_began_the_run() -> None:
    summary = summarize(factories.run())
    same = replace(
        summary,
        name="renamed",
        experiment=summary.experiment.model_copy(update={"plan_hash": "1" * 16}),
    )
    assert exported_run(same).id == exported_run(summary).id
    later = replace(
        summary,
        experiment=summary.experiment.model_copy(
            update={"created_at": "2026-01-02T03:04:06+00:00"}
        ),
    )
    assert exported_run(later).id != exported_run(summary).id


def test_parameters_are_what_was_asked_and_where() -> None:
    device = DeviceInfo(kind="cuda", index=0, name="NVIDIA H100")
    file = factories.run().experiment
    environment = factories.environment(
        devices=(device, device.model_copy(update={"index": 1})),
        env={"NCCL_DEBUG": "WARN", "HF_TOKEN": "hf_0123456789abcdefghij"},
    )
    summary = replace(
        summarize(factories.run()), experiment=file.model_copy(update={"environment": environment})
    )
    (parameters, _) = [cell.parameters for cell in exported_run(summary, parameters=True).cells]
    assert parameters["cell.batch_size"] == "8"
    assert parameters["config.training.seed"] == "0"
    assert parameters["environment.devices"] == "2 × NVIDIA H100"
    assert parameters["environment.env.NCCL_DEBUG"] == "WARN"
    assert parameters["environment.env.HF_TOKEN"] == REDACTED
    assert "environment.sessions" not in parameters
    assert not any(
        name.startswith(("config.batch_sizes", "config.export", "cell.id")) for name in parameters
    )
    assert "hf_0123" not in str(parameters)
    assert exported_run(summary).cells[0].parameters == {}


def test_the_machine_is_that_of_the_cells_own_session() -> None:
    content = factories.run()
    first = content.experiment.sessions[0]
    changed = first.environment.model_copy(update={"hostname": "other"})
    began = content.cells[0].launches[0].started_at
    later = first.model_copy(update={"environment": changed, "started_at": began})
    earlier = content.experiment.model_copy(
        update={"created_at": "2000-01-01T00:00:00+00:00", "later": (later,)}
    )
    summary = replace(summarize(content), experiment=earlier)
    hosts = {
        cell.parameters["environment.hostname"]
        for cell in exported_run(summary, parameters=True).cells
    }
    assert hosts == {"other"}


def test_figures_of_one_name_are_told_apart_and_have_their_bounds() -> None:
    run = exported_run(machine_summary())
    values = [measured_values(cell) for cell in run.cells]
    assert sum(len(each) for each in values) == sum(
        1 + 2 * (figure.bounds is not None) for cell in run.cells for figure in cell.figures
    )
    assert any(
        name.startswith("bus_bandwidth_bytes_per_second/all_reduce")
        for each in values
        for name in each
    )


def test_cells_that_wait_are_not_stored_and_unfinished_ones_only_at_the_end() -> None:
    first = factories.cells()[0]
    summary = summarize(
        factories.run({first.id: [factories.launch_record(first)]}, benchmark={"repeats": 2})
    )
    run = exported_run(summary)
    assert [cell.state for cell in run.cells] == [State.PARTIAL, State.WAITING]
    assert cells_to_store(RunToStore(Path(), summary, run, lambda: b"")) == run.cells[:1]
    assert cells_to_store(RunToStore(Path(), summary, run, None)) == ()


def test_outcomes_are_tags() -> None:
    run = exported_run(summarize(factories.run({})))
    tags = outcome_tags(run, run.cells[0])
    assert (tags["run"], tags["cell"], tags["state"]) == (run.id, run.cells[0].id, "waiting")
    assert "flags" not in tags
    assert (
        content_digest({"a": 1, "b": 2})
        == content_digest({"b": 2, "a": 1})
        != content_digest({"a": 1}, {"b": 2})
    )
