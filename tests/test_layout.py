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
    # Steps of one computation, tested where it is whole: on worked inputs whose result is known by
    # hand.
    "analysis/diagnosis/rules_device.py": "analysis/diagnosis/test_diagnose.py",
    "analysis/diagnosis/rules_pauses.py": "analysis/diagnosis/test_diagnose.py",
    "analysis/diagnosis/rules_ranks.py": "analysis/diagnosis/test_diagnose.py",
    "analysis/diagnosis/step_windows.py": "analysis/diagnosis/test_rules_spells.py",
    "analysis/health/gpu.py": "analysis/health/test_node.py",
    "analysis/health/host.py": "analysis/health/test_node.py",
    "analysis/health/interconnect.py": "analysis/health/test_node.py",
    "analysis/health/software.py": "analysis/health/test_node.py",
    "analysis/health/system.py": "analysis/health/test_node.py",
    "forecast/units.py": "forecast/test_rates.py",
    "hang/absence.py": "hang/test_explain.py",
    "hang/plain_pickle.py": "hang/test_flight_recorder.py",
    "hang/verdict.py": "hang/test_explain.py",
    "hang/without_recorder.py": "hang/test_explain.py",
    "analysis/job/signals.py": "analysis/job/test_verdict.py",
    "launch/environment.py": "launch/test_torchrun.py",
    "launch/agents/forker.py": "launch/agents/test_elastic.py",
    "worker/checkpoint/measure.py": "worker/checkpoint/test_checkpoint.py",
    "worker/checkpoint/place.py": "worker/checkpoint/test_checkpoint.py",
    "worker/checkpoint/state.py": "worker/checkpoint/test_checkpoint.py",
    "report/sections/checkpoints.py": "report/test_machine.py",
    "report/text/checkpoint.py": "report/test_machine.py",
    "worker/watch/dump.py": "worker/test_hang.py",
    "analysis/kinds/training.py": "analysis/summary/test_run.py",
    "analysis/machine/link_verdict.py": "analysis/machine/test_collectives.py",
    "analysis/trace/pairing.py": "analysis/trace/test_analyze.py",
    "analysis/trace/pairing_keys.py": "analysis/trace/test_analyze.py",
    "analysis/trace/replay/device.py": "analysis/trace/replay/test_what_if.py",
    "analysis/trace/replay/replay.py": "analysis/trace/replay/test_what_if.py",
    "analysis/trace/replay/ties.py": "analysis/trace/replay/test_what_if.py",
    "analysis/trace/signals.py": "analysis/trace/test_analyze.py",
    "analysis/trace/summary.py": "analysis/trace/test_analyze.py",
    "analysis/trace/windows.py": "analysis/trace/test_analyze.py",
    "analysis/training/flags.py": "analysis/summary/test_run.py",
    "analysis/training/cell_diagnosis.py": "analysis/summary/test_run.py",
    "analysis/training/summary.py": "analysis/summary/test_run.py",
    "config/experiment.py": "config/test_load.py",
    "config/hidden.py": "measure/test_cell_exports.py",
    "config/messages.py": "config/test_load.py",
    "config/overrides.py": "config/test_values.py",
    "config/yaml_reader.py": "config/test_load.py",
    "traces/columns.py": "traces/test_soundness.py",
    "traces/kineto/collectives.py": "traces/test_kineto.py",
    "traces/kineto/events.py": "traces/test_kineto.py",
    "traces/kineto/categories.py": "traces/kineto/test_reader.py",
    "traces/kineto/kept.py": "traces/test_kineto.py",
    "traces/kineto/launched.py": "traces/kineto/test_reader.py",
    "traces/kineto/rank_columns.py": "traces/kineto/test_reader.py",
    "traces/kineto/processes.py": "traces/kineto/test_reader.py",
    "traces/kineto/stream.py": "traces/test_kineto.py",
    "traces/nsys/communicators.py": "traces/nsys/test_nccl.py",
    "traces/nsys/database.py": "traces/nsys/test_reader.py",
    "traces/nsys/columns.py": "traces/nsys/test_reader.py",
    "traces/nsys/launches.py": "traces/nsys/test_reader.py",
    "traces/nsys/nvtx.py": "traces/nsys/test_nccl.py",
    "traces/files.py": "traces/test_kineto.py",
    "traces/recordings.py": "traces/test_kineto.py",
    # Parts of the report, tested on the document that they are parts of.
    "report/formats/chart_plotly.py": "report/test_build.py",
    "report/formats/chart_svg.py": "report/test_build.py",
    "report/formats/html.py": "report/test_build.py",
    "report/sections/environment.py": "report/test_build.py",
    "report/sections/first_screen/failures.py": "report/sections/first_screen/test_causes.py",
    "report/sections/scaling.py": "report/formats/test_markdown.py",
    "report/text/machine.py": "report/test_machine.py",
    "report/text/profile.py": "report/sections/profile/test_section.py",
    "report/formats/comparison_export.py": "report/formats/test_exports.py",
    "report/formats/export.py": "report/test_build.py",
    "report/formats/machine_export.py": "report/formats/test_exports.py",
    "report/formats/report_export.py": "report/formats/test_exports.py",
    "report/sections/charts.py": "report/test_build.py",
    "report/sections/collectives.py": "report/test_machine.py",
    "report/sections/comparison/cells.py": "report/sections/comparison/test_document.py",
    "report/sections/comparison/overview.py": "report/sections/comparison/test_document.py",
    "report/sections/comparison/overall.py": "report/sections/comparison/test_document.py",
    "report/sections/compute.py": "report/test_machine.py",
    "report/sections/cost.py": "report/test_sections.py",
    "report/sections/frontier.py": "report/test_sections.py",
    "report/sections/over_time.py": "report/test_sections.py",
    "report/sections/resources.py": "report/test_machine.py",
    "report/sections/first_screen/verdict.py": "report/test_build.py",
    "history/export.py": "history/test_page.py",
    "history/tables.py": "history/test_page.py",
    "report/terminal/comparison.py": "report/sections/comparison/test_document.py",
    "report/terminal/why.py": "report/sections/comparison/test_why.py",
    "report/terminal/machine.py": "report/test_machine.py",
    "report/terminal/profile.py": "integration/test_diagnosis.py",
    "report/text/comparison.py": "report/sections/comparison/test_document.py",
    "report/text/comparison_verdict.py": "report/sections/comparison/test_document.py",
    # Commands and what they call, tested through the command line.
    "cli/benchmark.py": "cli/test_options.py",
    "cli/init.py": "cli/test_commands.py",
    "cli/measure/collectives.py": "cli/test_options.py",
    "cli/measure/memory.py": "cli/test_options.py",
    "cli/profile/analyze.py": "cli/test_options.py",
    "cli/profile/record.py": "cli/test_options.py",
    "cli/profile/strip.py": "cli/test_options.py",
    "cli/report.py": "cli/test_commands.py",
    "plan/kinds/training.py": "plan/test_expand.py",
    "results/comparison_inputs.py": "cli/test_compare.py",
    "read/catalog.py": "cli/test_commands.py",
    "read/report.py": "cli/test_commands.py",
    "measure/init.py": "cli/test_commands.py",
    "measure/max_batch.py": "integration/test_ceilings.py",
    "measure/profile.py": "integration/test_diagnosis.py",
    "tune/launcher.py": "tune/test_run.py",
    "tune/outcome.py": "tune/test_run.py",
    "bisect/tables.py": "bisect/test_verdict.py",
    # What only real processes show, tested by launching them.
    "launch/burn_in.py": "integration/test_burn_in.py",
    "launch/kinds/training.py": "launch/test_collect.py",
    "nodes/differences.py": "nodes/test_fleet.py",
    "nodes/follower.py": "nodes/test_leader.py",
    "nodes/launch.py": "integration/test_nodes.py",
    "nodes/leader_network.py": "nodes/test_leader.py",
    "nodes/roster.py": "nodes/test_leader.py",
    "nodes/participation.py": "integration/test_nodes.py",
    "launch/recording/user_program.py": "launch/recording/test_own_program.py",
    "launch/recording/profile.py": "launch/recording/test_nsys.py",
    "launch/sampler.py": "launch/test_telemetry.py",
    "launch/judge.py": "launch/test_collect.py",
    "worker/parallel/pipeline.py": "worker/parallel/test_correctness.py",
    "measure/validation/fleet_steps.py": "measure/validation/test_fleet.py",
    "measure/nodes.py": "integration/test_nodes.py",
    "worker/__main__.py": "launch/test_group.py",
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
