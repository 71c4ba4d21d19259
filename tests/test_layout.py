"""The test of a file is found by the file's name: ``torchscale/a/b.py`` is tested by
``tests/a/test_b.py``."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
PACKAGE = TESTS.parent / "torchscale"
LINES = 80
LINES_IN_FUNCTIONS = 60
"""Declarations (models, enums, tables) have no behaviour of their own; what uses them tests
them."""

TESTED_BY: dict[str, str] = {
    "cli/shared_options.py": "cli/test_addresses.py",
    "store/storage/transfers.py": "store/storage/test_fetch.py",
    "features/validate/cli/output.py": "features/validate/cli/test_validate.py",
    # Steps of one computation, tested where it is whole: on worked inputs whose result is known by
    # hand.
    "analysis/diagnosis/rules_device.py": "analysis/diagnosis/test_diagnose.py",
    "analysis/diagnosis/spells.py": "analysis/diagnosis/test_rules_spells.py",
    "analysis/diagnosis/step_windows.py": "analysis/diagnosis/test_rules_spells.py",
    "features/compare/analysis/differences.py": "features/compare/analysis/test_matching.py",
    "features/compare/analysis/judge.py": "features/compare/analysis/test_compare.py",
    "features/compare/sections/calibration.py": "features/compare/cli/compare/test_keep.py",
    "features/compare/sections/peers.py": "features/compare/cli/compare/test_keep.py",
    "features/compare/text/calibration.py": "features/compare/cli/compare/test_keep.py",
    "features/compare/text/gate.py": "features/compare/cli/compare/test_keep.py",
    "features/validate/health/gpu.py": "features/validate/health/test_node.py",
    "features/validate/health/gpu_reasons.py": "features/validate/health/test_disposition.py",
    "features/validate/health/burn_in_checks.py": "features/validate/health/test_burn_in.py",
    "features/validate/acceptance/checks.py": "features/validate/acceptance/test_verdict.py",
    "features/validate/first_screen.py": "features/validate/test_document.py",
    "features/validate/rounds_section.py": "features/validate/test_document.py",
    "features/validate/fleet/pair_regression.py": "features/validate/fleet/test_pairwise.py",
    "features/validate/health/host.py": "features/validate/health/test_node.py",
    "features/validate/health/interconnect.py": "features/validate/health/test_node.py",
    "features/validate/health/software.py": "features/validate/health/test_node.py",
    "features/validate/health/system.py": "features/validate/health/test_node.py",
    "features/decide/forecast/units.py": "features/decide/forecast/test_rates.py",
    "features/decide/forecast/measured_series.py": "features/decide/forecast/test_measured_table.py",
    "features/watch/hang/absence.py": "features/watch/hang/test_explain.py",
    "features/watch/hang/verdict.py": "features/watch/hang/test_explain.py",
    "features/watch/hang/without_recorder.py": "features/watch/hang/test_explain.py",
    "analysis/diagnosis/step_signals.py": "features/watch/analysis/test_verdict.py",
    "analysis/diagnosis/rules_periods.py": "analysis/diagnosis/test_periods.py",
    "analysis/training/digest.py": "analysis/training/test_signals.py",
    "analysis/training/exchange_waits.py": "analysis/training/test_signals.py",
    "features/watch/job/memory_limits.py": "features/watch/job/test_job.py",
    "features/watch/analysis/signals.py": "features/watch/analysis/test_verdict.py",
    "features/watch/blocks.py": "features/watch/test_document.py",
    "features/watch/ends/failed_attempt.py": "features/watch/ends/test_failure.py",
    "features/watch/ends/others.py": "features/watch/ends/test_failure.py",
    "features/watch/ends/record.py": "features/watch/job/test_watched_run.py",
    "features/watch/ends/attempt.py": "integration/test_watch_failures.py",
    "features/watch/job/rank_rows.py": "features/watch/job/test_job.py",
    "features/watch/job/settled.py": "features/watch/job/test_job.py",
    "features/watch/job/notes.py": "features/watch/job/test_attempts.py",
    "features/watch/job/segments.py": "features/watch/job/test_stream.py",
    "launch/environment.py": "launch/test_torchrun.py",
    "worker/process_group.py": "launch/test_torchrun.py",
    "features/compare/gate.py": "features/compare/test_compare.py",
    "launch/agents/forker.py": "launch/agents/test_elastic.py",
    "worker/checkpoint/measure.py": "worker/checkpoint/test_checkpoint.py",
    "worker/checkpoint/place.py": "worker/checkpoint/test_checkpoint.py",
    "worker/checkpoint/state.py": "worker/checkpoint/test_checkpoint.py",
    "features/machine/checkpoint/section.py": "report/test_machine.py",
    "features/machine/checkpoint/text.py": "report/test_machine.py",
    "worker/watch/dump.py": "worker/test_hang.py",
    "worker/watch/rank_folder.py": "worker/watch/test_collector.py",
    "analysis/kinds/training.py": "analysis/summary/test_run.py",
    "analysis/machine/link_verdict.py": "analysis/machine/test_collectives.py",
    "features/trace/analysis/pairing.py": "features/trace/analysis/test_analyze.py",
    "features/trace/analysis/pairing_keys.py": "features/trace/analysis/test_analyze.py",
    "features/trace/replay/device.py": "features/trace/replay/test_what_if.py",
    "features/trace/replay/device_work.py": "features/trace/replay/test_what_if.py",
    "features/trace/replay/edits.py": "features/trace/replay/test_what_if.py",
    "features/trace/replay/replay.py": "features/trace/replay/test_what_if.py",
    "features/trace/replay/ties.py": "features/trace/replay/test_what_if.py",
    "features/trace/analysis/signals.py": "features/trace/analysis/test_analyze.py",
    "features/trace/analysis/collective_groups.py": "features/trace/analysis/test_stages.py",
    "features/trace/analysis/pipeline_chunks.py": "features/trace/analysis/test_micro_batches.py",
    "features/trace/analysis/summary.py": "features/trace/analysis/test_analyze.py",
    "features/trace/analysis/windows.py": "features/trace/analysis/test_analyze.py",
    "analysis/training/flags.py": "analysis/summary/test_run.py",
    "analysis/training/cell_diagnosis.py": "analysis/summary/test_run.py",
    "analysis/training/figures.py": "analysis/summary/test_run.py",
    "analysis/training/summary.py": "analysis/summary/test_run.py",
    "config/experiment.py": "config/test_load.py",
    "config/messages.py": "config/test_load.py",
    "config/overrides.py": "config/test_values.py",
    "config/yaml_reader.py": "config/test_load.py",
    "features/trace/readers/columns.py": "features/trace/readers/test_soundness.py",
    "features/trace/readers/kineto/collectives.py": "features/trace/readers/test_kineto.py",
    "features/trace/readers/kineto/events.py": "features/trace/readers/test_kineto.py",
    "features/trace/readers/kineto/event_classes.py": "features/trace/readers/test_kineto.py",
    "features/trace/readers/kineto/categories.py": "features/trace/readers/kineto/test_reader.py",
    "features/trace/readers/kineto/kept.py": "features/trace/readers/test_kineto.py",
    "features/trace/readers/kineto/launched.py": "features/trace/readers/kineto/test_reader.py",
    "features/trace/readers/kineto/rank_columns.py": "features/trace/readers/kineto/test_reader.py",
    "features/trace/readers/kineto/processes.py": "features/trace/readers/kineto/test_reader.py",
    "features/trace/readers/kineto/stream.py": "features/trace/readers/test_kineto.py",
    "features/trace/readers/nsys/communicators.py": "features/trace/readers/nsys/test_nccl.py",
    "features/trace/readers/nsys/database.py": "features/trace/readers/nsys/test_reader.py",
    "features/trace/readers/nsys/columns.py": "features/trace/readers/nsys/test_reader.py",
    "features/trace/readers/nsys/cuda_tables.py": "features/trace/readers/nsys/test_reader.py",
    "features/trace/readers/nsys/launches.py": "features/trace/readers/nsys/test_reader.py",
    "features/trace/readers/nsys/processes.py": "features/trace/readers/nsys/test_reader.py",
    "features/trace/readers/nsys/nvtx.py": "features/trace/readers/nsys/test_nccl.py",
    "features/trace/readers/files.py": "features/trace/readers/test_kineto.py",
    "features/trace/recorded_steps.py": "features/compare/test_recordings.py",
    "features/trace/readers/recordings.py": "features/trace/readers/test_kineto.py",
    # Parts of the report, tested on the document that they are parts of.
    "report/formats/charts/chart_plotly.py": "report/test_build.py",
    "report/formats/console_table.py": "report/formats/test_console.py",
    "report/formats/console_text.py": "report/formats/test_console.py",
    "report/formats/charts/chart_svg.py": "report/test_build.py",
    "report/formats/charts/matplotlib_axes.py": "report/formats/charts/test_axes.py",
    "report/formats/charts/plotly_layout.py": "report/formats/charts/test_axes.py",
    "report/formats/html.py": "report/test_build.py",
    "report/sections/environment.py": "report/test_build.py",
    "report/sections/first_screen/failures.py": "report/sections/first_screen/test_causes.py",
    "report/profile_blocks.py": "features/trace/test_document.py",
    "report/sections/scaling.py": "report/formats/test_markdown.py",
    "features/machine/text.py": "report/test_machine.py",
    "report/text/profile.py": "features/trace/test_document.py",
    "features/compare/export.py": "report/formats/test_exports.py",
    "report/formats/export.py": "report/test_build.py",
    "report/formats/frames.py": "test_run_results.py",
    "report/formats/machine_export.py": "report/formats/test_exports.py",
    "report/formats/report_export.py": "report/formats/test_exports.py",
    "report/sections/charts.py": "report/test_build.py",
    "features/machine/collectives/section.py": "report/test_machine.py",
    "features/machine/hardware/section.py": "report/test_machine.py",
    "features/machine/memory/section.py": "report/test_machine.py",
    "features/compare/sections/cells.py": "features/compare/sections/test_document.py",
    "features/compare/sections/overview.py": "features/compare/sections/test_document.py",
    "features/compare/sections/overall.py": "features/compare/sections/test_document.py",
    "report/sections/compute.py": "report/test_machine.py",
    "report/sections/cost.py": "report/test_sections.py",
    "report/sections/batch_sizes.py": "report/test_sections.py",
    "report/sections/over_time.py": "report/test_sections.py",
    "report/sections/telemetry.py": "report/test_machine.py",
    "report/sections/first_screen/verdict.py": "report/test_build.py",
    "features/compare/history/export.py": "features/compare/history/test_page.py",
    "features/compare/history/trend_charts.py": "features/compare/history/test_page.py",
    "features/compare/history/tables.py": "features/compare/history/test_page.py",
    "features/compare/sections/result_set.py": "features/compare/cli/test_compare.py",
    "features/compare/terminal/comparison.py": "features/compare/sections/test_document.py",
    "features/machine/collectives/terminal.py": "report/test_machine.py",
    "features/trace/terminal.py": "integration/test_diagnosis.py",
    "features/compare/text/comparison.py": "features/compare/sections/test_document.py",
    "features/compare/text/why_rows.py": "features/compare/text/test_why.py",
    "features/validate/fleet/rankings.py": "features/validate/fleet/test_tables.py",
    # Commands and what they call, tested through the command line.
    "cli/benchmark.py": "cli/test_options.py",
    "cli/init.py": "cli/test_commands.py",
    "features/machine/cli/measure/collectives.py": "cli/test_options.py",
    "features/machine/cli/measure/memory.py": "cli/test_options.py",
    "features/trace/cli/profile/analyze.py": "cli/test_options.py",
    "features/trace/cli/profile/record.py": "cli/test_options.py",
    "features/trace/cli/profile/strip.py": "cli/test_options.py",
    "cli/report.py": "cli/test_commands.py",
    "plan/kinds/training.py": "plan/test_expand.py",
    "plan/devices.py": "plan/test_expand.py",
    "plan/device_obstacles.py": "plan/test_obstacles.py",
    "features/compare/inputs.py": "features/compare/cli/test_compare.py",
    "features/compare/history/database.py": "features/compare/history/test_file.py",
    "read/catalog.py": "cli/test_commands.py",
    "read/folders.py": "read/test_runs.py",
    "read/report.py": "cli/test_commands.py",
    "read/without_cells.py": "features/trace/test_report.py",
    "measure/init.py": "cli/test_commands.py",
    "features/machine/max_batch.py": "integration/test_ceilings.py",
    "features/trace/profile.py": "integration/test_diagnosis.py",
    "features/decide/tune/launcher.py": "features/decide/tune/test_run.py",
    "features/decide/tune/outcome.py": "features/decide/tune/test_run.py",
    "features/decide/tune/question.py": "features/decide/tune/test_run.py",
    "features/cluster/submit/pod_parts.py": "features/cluster/submit/test_manifests.py",
    "features/bisect/cli/options.py": "features/bisect/cli/test_bisect.py",
    "features/bisect/outcome.py": "features/bisect/test_run.py",
    "features/bisect/tables.py": "features/bisect/test_verdict.py",
    "features/bisect/change_export.py": "features/bisect/test_change_verdict.py",
    # What only real processes show, tested by launching them.
    "pytest_plugin/measure.py": "test_pytest_plugin.py",
    "pytest_plugin/session.py": "test_pytest_plugin.py",
    "features/validate/run/burn_in.py": "integration/test_burn_in.py",
    "launch/kinds/training.py": "launch/test_collect.py",
    "analysis/training/result.py": "launch/test_collect.py",
    "features/validate/fleet/differences.py": "features/validate/fleet/test_fleet.py",
    "features/cluster/nodes/follower.py": "features/cluster/nodes/test_leader.py",
    "features/cluster/nodes/fleet.py": "features/cluster/nodes/test_leader.py",
    "features/cluster/nodes/joining_follower.py": "features/cluster/nodes/test_leader.py",
    "features/cluster/nodes/launch.py": "integration/test_nodes.py",
    "features/cluster/nodes/leader_network.py": "features/cluster/nodes/test_leader.py",
    "features/cluster/nodes/membership.py": "features/cluster/nodes/test_leader.py",
    "features/cluster/nodes/part.py": "integration/test_nodes.py",
    "features/cluster/nodes/remote_launch.py": "features/cluster/nodes/test_leader.py",
    "features/cluster/nodes/roles.py": "integration/test_nodes.py",
    "features/trace/recording/user_program.py": "features/trace/recording/test_own_program.py",
    "features/trace/recording/profile.py": "features/trace/recording/test_nsys.py",
    "features/trace/recording/nsys_reports.py": "features/trace/recording/test_nsys.py",
    "launch/sampler.py": "launch/test_telemetry.py",
    "launch/judge.py": "launch/test_collect.py",
    "worker/parallel/pipeline.py": "worker/parallel/test_correctness.py",
    "features/validate/fleet/steps.py": "features/validate/fleet/test_run.py",
    "features/validate/fleet/pairwise_steps.py": "features/validate/fleet/test_run.py",
    "worker/__main__.py": "launch/test_group.py",
    "worker/data/shard_writing.py": "worker/data/test_shards.py",
    "worker/machine/collective_sweep.py": "worker/machine/test_collectives.py",
    "worker/measured_loops.py": "launch/test_torchrun.py",
    "worker/measure/phases.py": "worker/test_measure.py",
    "worker/measure/host.py": "worker/test_measure.py",
    "worker/models/decoder.py": "worker/models/test_models.py",
    "worker/parallel/expert.py": "worker/parallel/test_correctness.py",
    "worker/parallel/mesh.py": "worker/parallel/test_correctness.py",
    "worker/memory/predicted_memory.py": "worker/memory/test_model_memory.py",
    "worker/train.py": "launch/test_torchrun.py",
}
"""Modules without a test file of their name, and the file that tests each."""


def lines_in_functions(source: str) -> int:
    """Lines of function bodies, docstrings left out."""
    count = 0
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef):
            body = node.body[1:] if ast.get_docstring(node) is not None else node.body
            if body:
                count += (node.end_lineno or 0) - body[0].lineno + 1
    return count


def own_test_file(module: Path) -> Path | None:
    """The test file that is named after a module, if there is one; a package's is beside or inside
    its directory."""
    relative = module.relative_to(PACKAGE)
    name, directories = f"test_{module.stem}.py", [relative.parent]
    if module.name == "__init__.py":
        name, directories = (
            f"test_{relative.parent.name}.py",
            [relative.parent, relative.parent.parent],
        )
    return next(
        (path for directory in directories if (path := TESTS / directory / name).is_file()), None
    )


def modules_with_behaviour() -> list[Path]:
    """Modules that are long enough to need a test file."""
    chosen = []
    for module in sorted(PACKAGE.rglob("*.py")):
        source = module.read_text()
        if len(source.splitlines()) > LINES and lines_in_functions(source) > LINES_IN_FUNCTIONS:
            chosen.append(module)
    return chosen


def test_every_module_with_behaviour_has_a_test_file_of_its_name() -> None:
    missing = {
        str(module.relative_to(PACKAGE))
        for module in modules_with_behaviour()
        if own_test_file(module) is None
    }
    untested = sorted(missing - set(TESTED_BY))
    assert untested == [], (
        "add tests/<same path>/test_<module>.py, or say in TESTED_BY which file tests it"
    )


@pytest.mark.parametrize("module", TESTED_BY)
def test_an_exception_is_one_and_leads_to_a_test_file(module: str) -> None:
    assert (PACKAGE / module).is_file(), "gone: drop it from TESTED_BY"
    assert own_test_file(PACKAGE / module) is None, (
        "has a test file of its name: drop it from TESTED_BY"
    )
    assert (TESTS / TESTED_BY[module]).is_file()
