"""A watched program as cells of an experiment that no sweep starts."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Sequence
from pathlib import Path

from torchscale.config.experiment import Experiment
from torchscale.config.load import load_experiment_from
from torchscale.config.script import MAX_CHARACTERS
from torchscale.config.strategy import OwnStrategy
from torchscale.schema.cells.script import OWN, Script
from torchscale.schema.cells.training import Measurement, TrainingCell
from torchscale.schema.node.environment import Environment
from torchscale.schema.run.experiment_file import ExperimentFile, PlannedCell
from torchscale.util.redaction import redact_arguments, redact_model
from torchscale.util.text import program_name, shown_bytes
from torchscale.version import __version__

_WARMUP_STEPS = 10
"""First steps that no figure counts, as those of the report of a watched job."""


class WatchedProgram:
    """A command line, and the cells that stand for it.

    Attributes:
        command: argv, without secrets.
        name: Of the script, else of the program.
        rule: Which of its steps are measured.
    """

    def __init__(self, command: Sequence[str]) -> None:
        words = [shown_bytes(word) for word in command] or ["program"]
        self.command = redact_arguments(words)
        self.name = program_name(self.command)
        self._experiment = _experiment(self.command, self.name)
        fields = set(Measurement.model_fields) - {"epochs", "warmup_epochs"}
        self.rule = Measurement(**self._experiment.benchmark.model_dump(include=fields))

    def cell(self, world_size: int, rule: Measurement | None = None) -> TrainingCell:
        """The cell of so many ranks; what the program alone knows is left open. ``rule``: by which
        it was ended; ``None`` where it ran to its own end."""
        return TrainingCell(
            model=self.name,
            batch_size=None,
            scaling="weak",
            world_size=world_size,
            device="auto",
            precision=OWN,
            strategy=OwnStrategy(),
            optimizer=OWN,
            learning_rate=None,
            channels_last=False,
            compile=False,
            seed=self._experiment.training.seed,
            cudnn_benchmark=False,
            data_source=OWN,
            num_samples=0,
            measurement=rule or self.rule,
            script=Script(
                form="watched",
                text=_text(self.command),
                steps="all" if rule is None else "auto",
            ),
        )

    def experiment_file(
        self, cells: Sequence[TrainingCell], environment: Environment, created_at: str, threads: int
    ) -> ExperimentFile:
        """``experiment.json`` of these cells, each once.

        Args:
            cells: Of this program.
            environment: The machine.
            created_at: UTC, ISO 8601.
            threads: Of a rank.
        """
        plan = {cell.id: PlannedCell(cell=cell) for cell in cells}
        file = ExperimentFile(
            tool_version=__version__,
            config=self._experiment,
            plan_hash=hashlib.sha256(" ".join(plan).encode()).hexdigest()[:16],
            plan=tuple(plan.values()),
            environment=environment.model_copy(update={"command": self.command}),
            created_at=created_at,
            threads_per_rank=threads,
        )
        return redact_model(file)


def _text(command: Sequence[str]) -> str:
    """The command line, as much of it as a cell holds."""
    words = list(command)
    while len(words) > 1 and len(shlex.join(words)) > MAX_CHARACTERS:
        words = words[: len(words) // 2]
    text = shlex.join(words)
    return text if len(text) <= MAX_CHARACTERS else "program"


def _experiment(command: Sequence[str], name: str) -> Experiment:
    """A config that says what was watched; no sweep starts it."""
    return load_experiment_from(
        {
            "experiment_name": _safe(f"watch {Path(name).stem}"),
            "models": [{"watched": _text(command)}],
            "benchmark": {"warmup_steps": _WARMUP_STEPS, "warmup_seconds": 0.0},
        }
    )


def _safe(name: str) -> str:
    """A name that a directory may have."""
    kept = "".join(letter if letter.isalnum() or letter in "._ -" else "-" for letter in name)
    return kept.replace("..", "-")[:100].strip(". ")
