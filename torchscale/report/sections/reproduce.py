"""The commands and the config that produced a run."""

from __future__ import annotations

import shlex

import yaml

from torchscale.analysis.summary.run import RunSummary
from torchscale.config.dump import changed_content
from torchscale.config.experiment import Experiment
from torchscale.config.sections.benchmark import PRESETS
from torchscale.report.document import MAX_BLOCK, Paragraph, ReportPart, Section
from torchscale.report.values import shortened


def reproduce_section(summary: RunSummary) -> Section:
    """The commands, the config without defaults, the plan's hash and the version."""
    experiment = summary.experiment
    commands = dict.fromkeys(
        shlex.join(entry.session.environment.command) for entry in summary.sessions
    )
    command = shortened("\n".join(commands), MAX_BLOCK) or "torchscale benchmark"
    config = shortened(_config_yaml(experiment.config), MAX_BLOCK)
    return Section(
        "How to reproduce",
        "reproduce",
        (
            Paragraph(command, code=True),
            Paragraph("with this config (all other keys have their defaults):"),
            Paragraph(config, code=True),
            Paragraph(f"Plan {experiment.plan_hash}; torchscale {experiment.tool_version}."),
        ),
        ReportPart.METHOD,
        "commands and config",
    )


def _config_yaml(config: Experiment) -> str:
    """The keys that are not at their defaults, nor at their preset's."""
    content = changed_content(config)
    preset = PRESETS[config.benchmark.preset]
    benchmark = content.get("benchmark")
    if isinstance(benchmark, dict):
        content["benchmark"] = {
            key: value for key, value in benchmark.items() if preset.get(key) != value
        }
    kept = {key: value for key, value in content.items() if value != {}}
    return yaml.safe_dump(
        kept, sort_keys=False, default_flow_style=None, allow_unicode=True, width=100
    )
