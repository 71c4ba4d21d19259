"""What a round of ``validate --acceptance`` measures on the machine at hand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from torchscale.config.experiment import Experiment
from torchscale.errors import UsageError
from torchscale.measure.context import PlannedRun
from torchscale.plan.expand import make_plan
from torchscale.schema.cells.collectives import CollectivesCell
from torchscale.schema.cells.hardware import HardwareCell
from torchscale.schema.cells.kinds import AnyCell, as_kind
from torchscale.schema.ident import content_hash
from torchscale.schema.node.acceptance import Baseline
from torchscale.schema.node.machine import Machine

_MAX_CPU_RANKS = 8
"""As in a burn-in: cores are no devices that are returned, and eight groups of them show a slow
socket."""


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
    """What a round measures: short, since rounds repeat it, and large enough that rates and not
    latencies are measured."""
    on_gpus = machine.environment.cuda_available
    count = len(machine.environment.devices)
    if not on_gpus:
        count = min(_MAX_CPU_RANKS, len(machine.cores))
    output_dir.mkdir(parents=True, exist_ok=True)
    settings: dict[str, object] = {
        "experiment_name": "acceptance",
        "measure": ["hardware", "collectives", "training"],
        "device": "cuda" if on_gpus else "cpu",
        "gpu_counts": [max(1, count)],
        "models": ["decoder-small" if on_gpus else "tiny-decoder"],
        "batch_sizes": [8],
        "training.precision": "bf16" if on_gpus else "fp32",
        "hardware.matmul_sizes": [4096, 8192] if on_gpus else [1024],
        "hardware.seconds": 0.3,
        "hardware.copy_bytes": "1GiB" if on_gpus else "256MiB",
        "hardware.disk_path": str(output_dir),
        "hardware.disk_bytes": "256MiB" if on_gpus else "64MiB",
        "collectives.operations": ["all_reduce", "pairs"] if on_gpus else ["all_reduce"],
        "collectives.min_bytes": "256MiB" if on_gpus else "16MiB",
        "collectives.max_bytes": "256MiB" if on_gpus else "16MiB",
        "benchmark.preset": "quick",
        "benchmark.measure_seconds": 5.0,
        "benchmark.log_step_times": False,
        # other processes on a GPU are looked for while each rank uses its own GPU alone
        "telemetry.enabled": on_gpus,
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
