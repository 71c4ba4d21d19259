"""The summary of a run, or the checks of a node, as what exporters take."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping

from torchscale.analysis.kinds import AnySummary
from torchscale.analysis.summary.conditions import session_numbers
from torchscale.analysis.summary.run import RunSummary
from torchscale.config.resume_keys import fixed_values
from torchscale.door import Slot
from torchscale.report.figures.figure import ExportedCell, ExportedRun, Figure
from torchscale.report.kinds import report_kind
from torchscale.schema.node.validation import Validation
from torchscale.schema.run.experiment_file import ExperimentFile, Session
from torchscale.schema.watch.report import WatchReport
from torchscale.util.redaction import redact
from torchscale.util.text import strip_control

_LABELS = {"model": "model", "gpu_count": "gpus"}
"""Columns of ``summary.csv`` that people select by → their names there."""
_PROPERTIES = (
    *(
        "batch_size",
        "precision",
        "strategy",
        "scaling",
        "optimizer",
        "compile",
        "gradient_accumulation",
    ),
    *("activation_checkpointing", "data_source"),
)
"""Columns that say what was measured."""
_OF_A_CELL = frozenset(("id", "kind"))
"""Keys of a cell that its parameters need not repeat."""


_OF_JOBS: Slot[Callable[[WatchReport], tuple[Figure, ...]]] = Slot("figures of jobs")
"""What the feature that watched a job has of it: its findings, and where its wall time went."""


def exported_run(summary: RunSummary, *, parameters: bool = False) -> ExportedRun:
    """Every cell of a run, those without figures too; with ``parameters``, which take longer, where
    asked for."""
    file, cells = summary.experiment, summary.in_plan_order
    if parameters:
        fixed = _texts("config", fixed_values(file.config))
        exported = tuple(_cell(cell, _parameters(file, cell, fixed)) for cell in cells)
    else:
        exported = tuple(_cell(cell, {}) for cell in cells)
    of_job = () if summary.job is None else _OF_JOBS["watch"](summary.job)
    return ExportedRun(summary.name, exported, id=_run_id(file), figures=of_job)


def exported_checks(validation: Validation, name: str) -> ExportedRun:
    """The checks of a node."""
    return ExportedRun(name, checks=validation.checks)


def _cell(summary: AnySummary, parameters: Mapping[str, str]) -> ExportedCell:
    kind = report_kind(summary.cell.kind)
    row = {
        name: str(value) for name, value in kind.csv_row(summary).items() if value not in (None, "")
    }
    return ExportedCell(
        id=summary.cell.id,
        kind=summary.cell.kind,
        labels={label: row[name] for name, label in _LABELS.items() if name in row},
        properties={name: row[name] for name in _PROPERTIES if name in row},
        state=summary.state,
        reason=strip_control(summary.reason),
        flags=tuple(
            sorted({*row.get("flags", "").split(), *row.get("efficiency_flags", "").split()})
        ),
        figures=kind.figures(summary),
        parameters=parameters,
    )


def _run_id(file: ExperimentFile) -> str:
    """Id of a run: a hash of what began the folder and never changes in it (when, where, the
    command and the name of the experiment)."""
    first = [
        file.created_at,
        file.environment.hostname,
        file.environment.command,
        file.config.experiment_name,
    ]
    return hashlib.sha256(json.dumps(first).encode()).hexdigest()[:16]


def _parameters(
    file: ExperimentFile, summary: AnySummary, fixed: Mapping[str, str]
) -> dict[str, str]:
    """What was asked (``cell.``, ``config.``: only keys that are the same for every session), and
    where it was measured (``environment.``, of the session of the cell's first launch;
    ``environment.sessions``: how many it has)."""
    sessions = file.sessions
    numbers = sorted(set(session_numbers(sessions, summary.facts.launches)))
    session = sessions[min(numbers, default=0)]
    asked = {
        name: value
        for name, value in summary.cell.model_dump(mode="json").items()
        if name not in _OF_A_CELL
    }
    environment = _environment(session)
    if len(numbers) > 1:
        environment["sessions"] = len(numbers)
    return {**_texts("cell", asked), **fixed, **_texts("environment", environment)}


def _environment(session: Session) -> dict[str, object]:
    """The machine and its software; variables only where they were recorded, which leaves secrets
    out."""
    environment = session.environment
    content = environment.model_dump(
        mode="json", exclude={"devices", "env", "command", "cuda_available"}
    )
    names = [device.name for device in environment.devices]
    return {
        **content,
        "devices": ", ".join(f"{names.count(name)} × {name}" for name in dict.fromkeys(names)),
        "env": {name: redact(name, value) for name, value in environment.env.items()},
        "command": " ".join(environment.command),
        "tool_version": session.tool_version,
    }


def _texts(prefix: str, value: object) -> dict[str, str]:
    """Dotted name → text of every leaf that has a value; a list is one leaf."""
    return dict(_leaves(prefix, value))


def _leaves(name: str, value: object) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(f"{name}.{key}", item)
    elif value not in (None, "", [], ()):
        text = value
        if not isinstance(text, str):
            text = json.dumps(text, ensure_ascii=False)
        yield name, redact(name, strip_control(text))
