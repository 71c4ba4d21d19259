"""What a round of ``validate --acceptance`` measures on the machine at hand."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from torchscale.config.experiment import Experiment
from torchscale.errors import UsageError
from torchscale.measure.context import PlannedRun
from torchscale.plan.expand import make_plan
from torchscale.plan.kinds import plan_kind
from torchscale.schema.cells.collectives import CollectivesCell
from torchscale.schema.cells.hardware import HardwareCell
from torchscale.schema.cells.kinds import AnyCell, as_kind
from torchscale.schema.ident import content_hash
from torchscale.schema.node.acceptance import Baseline
from torchscale.schema.node.machine import Machine
from torchscale.util.units import format_coarse_seconds

_MAX_CPU_RANKS = 8
"""As in a burn-in: cores are no devices that are returned, and eight groups of them show a slow
socket."""

_ROUND: Mapping[str, object] = MappingProxyType(
    {
        "experiment_name": "acceptance",
        "measure": ["hardware", "collectives", "training"],
        "batch_sizes": [8],
        "hardware.seconds": 0.3,
        "benchmark.preset": "quick",
        "benchmark.measure_seconds": 5.0,
        "benchmark.log_step_times": False,
        "collectives.seconds": 0,  # rounds make the same calls, whatever else takes time
    }
)
"""A round is short, since rounds repeat it: what a longer one would gain in precision, more rounds
gain too, and their differences tell the noise."""
_ON_GPUS: Mapping[str, object] = MappingProxyType(
    {
        "device": "cuda",
        "models": ["decoder-small"],
        "training.precision": "bf16",
        "hardware.matmul_sizes": [4096, 8192],
        "hardware.copy_bytes": "1GiB",
        "hardware.disk_bytes": "256MiB",
        "collectives.operations": ["all_reduce", "pairs"],
        "collectives.min_bytes": "256MiB",
        "collectives.max_bytes": "256MiB",
        # other processes on a GPU are looked for while each rank uses its own GPU alone
        "telemetry.enabled": True,
    }
)
"""Sizes at which rates and not latencies are measured, far beyond all caches."""
_ON_CPUS: Mapping[str, object] = MappingProxyType(
    {
        "device": "cpu",
        "models": ["tiny-decoder"],
        "training.precision": "fp32",
        "hardware.matmul_sizes": [1024],
        "hardware.copy_bytes": "256MiB",
        "hardware.disk_bytes": "64MiB",
        "collectives.operations": ["all_reduce"],
        "collectives.min_bytes": "16MiB",
        "collectives.max_bytes": "16MiB",
        "telemetry.enabled": False,
    }
)


def plan_rounds(machine: Machine, output_dir: Path, sizes: Mapping[str, object]) -> PlannedRun:
    """The cells of a round, without those in which NCCL only logs what it chooses.

    Args:
        machine: Where it is measured.
        output_dir: Where results go; its disk is measured.
        sizes: Overrides by key of the config.
    """
    experiment = _experiment(machine, output_dir, sizes)
    plan = make_plan(experiment, machine)
    return PlannedRun(
        experiment,
        machine,
        replace(plan, cells=tuple(each for each in plan.cells if not _only_logs(each.cell))),
    )


def _only_logs(cell: AnyCell) -> bool:
    collectives = as_kind(cell, CollectivesCell)
    return collectives is not None and collectives.logs_choices


def _experiment(machine: Machine, output_dir: Path, sizes: Mapping[str, object]) -> Experiment:
    """On all GPUs, or on the cores in up to eight groups."""
    of_device, count = _ON_GPUS, len(machine.environment.devices)
    if not machine.environment.cuda_available:
        of_device, count = _ON_CPUS, min(_MAX_CPU_RANKS, len(machine.cores))
    output_dir.mkdir(parents=True, exist_ok=True)
    settings: dict[str, object] = {
        **_ROUND,
        **of_device,
        "gpu_counts": [max(1, count)],
        "hardware.disk_path": str(output_dir),
        **sizes,
    }
    return Experiment.model_validate(_nested(settings))


def _nested(settings: Mapping[str, object]) -> dict[str, object]:
    """``{"a.b": 1}`` as ``{"a": {"b": 1}}``."""
    found: dict[str, dict[str, object]] = {}
    plain: dict[str, object] = {}
    for key, value in settings.items():
        section, dot, name = key.partition(".")
        if dot:
            found.setdefault(section, {})[name] = value
        else:
            plain[section] = value
    return {**plain, **found}


def what_is_asked(cells: Iterable[AnyCell]) -> dict[str, str]:
    """Kind of cell → hash of what is measured, whatever the number of devices and the place of the
    disk."""
    found: dict[str, str] = {}
    for cell in cells:
        left_out = {"world_size", "device"}
        if as_kind(cell, HardwareCell) is not None:
            left_out.add("disk_path")
        found[cell.kind] = content_hash(cell.model_dump(mode="json", exclude=left_out))
    return found


def refuse_other(baseline: Baseline | None, planned: PlannedRun) -> None:
    """Refuse a baseline that has nothing to compare with.

    Raises:
        UsageError: the baseline has nothing that this machine's figures compare with.
    """
    if baseline is None:
        return
    asked, earlier = what_is_asked(planned.plan.to_run), baseline.run.asked
    differing = any(asked[kind] != earlier[kind] for kind in asked.keys() & earlier.keys())
    if baseline.run.device != planned.plan.device or differing:
        raise UsageError(
            f"--baseline {baseline.source}: it was measured on {baseline.run.device} in other "
            f"sizes than this machine would be ({planned.plan.device})",
            hint="measure a baseline with this version on a node of the same kind",
        )


def check_budget(
    planned: PlannedRun, budget_seconds: float, rounds: int, baseline: Baseline | None
) -> None:
    """Refuse a budget that has no room for a round, before anything is measured.

    Args:
        planned: A round.
        budget_seconds: Time for all of them.
        rounds: How many *keep* asks for.
        baseline: An earlier acceptance, whose rounds took as long.

    Raises:
        UsageError: it has none.
    """
    seconds, source = expected_seconds(planned, baseline)
    if budget_seconds >= seconds:
        return
    raise UsageError(
        f"--budget {format_coarse_seconds(budget_seconds)}: a round takes about "
        f"{format_coarse_seconds(seconds)} ({source}), and keep asks for {rounds} of them",
        hint=f"give it at least {format_coarse_seconds(rounds * seconds)}: "
        f"--budget {math.ceil(rounds * seconds)}s",
    )


def expected_seconds(planned: PlannedRun, baseline: Baseline | None) -> tuple[float, str]:
    """About what a round takes before one was measured, and the source: the baseline's rounds, else
    the shortest time that is expected of each launch, as rounds are short."""
    if baseline is not None and baseline.run.rounds:
        seconds = [each.seconds for each in baseline.run.rounds]
        return statistics.fmean(seconds), "as in the baseline"
    cells = planned.plan.to_run
    seconds = [plan_kind(cell.kind).expected_seconds(cell)[0] for cell in cells]
    return math.fsum(seconds), "estimated: the first round will tell"
