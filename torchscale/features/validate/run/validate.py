"""Check whether this node is fit: probe it, run a collective, judge the facts."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from torchscale.config.choices import Requirement
from torchscale.errors import ExitCode, TorchscaleError
from torchscale.features.validate.health.answer import exit_code
from torchscale.features.validate.health.node import validate_facts
from torchscale.features.validate.health.required import Requirements, lacks_required_device
from torchscale.features.validate.health.rule import gpus_of
from torchscale.features.validate.names import VALIDATION
from torchscale.features.validate.run.probe import check_collective, probe_node
from torchscale.observer import SILENT, Observer
from torchscale.schema.node.validation import Validation
from torchscale.store.locations import RESULTS
from torchscale.util.files import atomic_write_model
from torchscale.util.units import format_seconds

if TYPE_CHECKING:
    from torchscale.features.validate.run.acceptance import AcceptanceOptions
    from torchscale.measure.context import PlannedRun
    from torchscale.schema.node.acceptance import Baseline
    from torchscale.schema.node.probe import NodeFacts

TIMEOUT_SECONDS = 120.0
"""Bound on the collective: starting a rank per GPU takes tens of seconds on a sound node, and
minutes on none."""


@dataclass(frozen=True)
class ValidationOutcome:
    """The validation, and whether the machine lacks what was required."""

    validation: Validation
    lacks_required: bool

    @property
    def exit_code(self) -> ExitCode:
        """130 if the user ended the burn-in or the rounds, 3 without what was required, else that of
        the verdict."""
        if was_interrupted(self.validation):
            return ExitCode.INTERRUPTED
        if self.lacks_required:
            return ExitCode.UNABLE
        return exit_code(self.validation)


def was_interrupted(validation: Validation) -> bool:
    """Whether the user ended the burn-in or the rounds before their time."""
    burn_in, acceptance = validation.burn_in, validation.acceptance
    if burn_in is not None and burn_in.interrupted:
        return True
    return acceptance is not None and acceptance.run.ended == "interrupted"


def validate(
    *,
    require: Collection[Requirement] = (),
    min_gpus: int = 0,
    output_dir: Path = RESULTS,
    timeout_seconds: float = TIMEOUT_SECONDS,
    burn_in_seconds: float | None = None,
    acceptance: AcceptanceOptions | None = None,
    observer: Observer = SILENT,
) -> ValidationOutcome:
    """Check this node.

    Args:
        require: What the node must have.
        min_gpus: The fewest usable GPUs; above 0 it implies CUDA.
        output_dir: Where results would go: its disk is checked.
        timeout_seconds: Bound on the collective.
        burn_in_seconds: How long all devices work with known results; ``None`` for no burn-in.
        acceptance: What to measure the node's speeds with; ``None`` not to.
        observer: Shows what takes time.

    Raises:
        MachineError: the probe gave no facts at all.
        UsageError: the budget is below a round, or the baseline is of another kind of device.
    """
    planned = None
    if acceptance is not None:
        with observer.status("Planning the rounds"):
            planned = _planned(acceptance, output_dir)
    with observer.status("Examining this node, with a collective: a few seconds"):
        facts = probe_node(output_dir, collective_seconds=timeout_seconds)
    if acceptance is not None and planned is not None:
        planned = _comparable(planned, acceptance.baseline, facts)
    with observer.status("Running a collective"):
        collective = check_collective(facts, timeout_seconds=timeout_seconds)
    burn_in = None
    if burn_in_seconds is not None and collective.error is None:
        from torchscale.features.validate.run.burn_in import run_burn_in  # noqa: PLC0415 - few ask for it
        from torchscale.measure.context import stop_on_signals  # noqa: PLC0415

        with (
            stop_on_signals() as stop,
            observer.status(f"Burn-in for {format_seconds(burn_in_seconds)}"),
        ):
            burn_in = run_burn_in(
                facts,
                burn_in_seconds,
                timeout_seconds=timeout_seconds,
                stop=stop,
                report=observer.note,
            )
    speeds = None
    if acceptance is not None and planned is not None and collective.error is None:
        from torchscale.features.validate.run.acceptance import measure_acceptance  # noqa: PLC0415 - few ask for it

        speeds = measure_acceptance(facts, acceptance, output_dir=output_dir, observer=observer)
    validation = validate_facts(
        facts.model_copy(update={"collective": collective}),
        requirements_of(require, min_gpus),
        burn_in,
        speeds,
        policy=None if acceptance is None else acceptance.policy,
    )
    if speeds is not None:
        atomic_write_model(output_dir / speeds.folder / VALIDATION, validation)
    return ValidationOutcome(validation, lacks_required_device(validation))


def _planned(acceptance: AcceptanceOptions, output_dir: Path) -> PlannedRun | None:
    """A round on this machine; ``None`` where none can be planned: the checks say why.

    Raises:
        UsageError: the budget is below a round.
    """
    from torchscale.features.validate.run.acceptance_plan import check_budget, plan_rounds  # noqa: PLC0415 - few ask for it
    from torchscale.launch.machine import detect_machine  # noqa: PLC0415

    try:
        planned = plan_rounds(detect_machine(), output_dir, acceptance.sizes)
    except (TorchscaleError, OSError):
        return None
    rounds = acceptance.policy.rounds
    check_budget(planned, acceptance.budget_seconds, rounds, acceptance.baseline)
    return planned


def _comparable(
    planned: PlannedRun, baseline: Baseline | None, facts: NodeFacts
) -> PlannedRun | None:
    """The rounds, if the baseline is of their kind; ``None`` where the GPUs that it measured are
    there and torch cannot use them: the checks say why.

    Raises:
        UsageError: the baseline is of another kind of device.
    """
    from torchscale.features.validate.run.acceptance_plan import refuse_other  # noqa: PLC0415 - few ask for it

    has_lost_gpus = planned.plan.device == "cpu" and gpus_of(facts)
    if has_lost_gpus and baseline is not None and baseline.run.device == "cuda":
        return None
    refuse_other(baseline, planned)
    return planned


def requirements_of(require: Collection[Requirement], min_gpus: int) -> Requirements:
    """What is checked of ``require`` and ``min_gpus``; see :func:`validate`."""
    return Requirements(
        cuda=Requirement.CUDA in require,
        gpus=min_gpus,
        nccl=Requirement.NCCL in require,
        nsys=Requirement.NSYS in require,
    )
