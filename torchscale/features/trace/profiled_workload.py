"""The workload that is profiled: the only one of a plan, or what a run folder measured."""

from __future__ import annotations

from pathlib import Path

from torchscale.config.dump import changed_content
from torchscale.config.yaml_reader import Data
from torchscale.errors import MachineError, UsageError
from torchscale.observer import Observer
from torchscale.plan.expand import Plan
from torchscale.schema.cells.training import TrainingCell
from torchscale.store.run_folder import RunFolder


def measured_config(directory: Path) -> dict[str, Data] | None:
    """The config keys of what a run folder measured; ``None`` where ``directory`` is no run folder
    or measured no training.

    Raises:
        StoreError: its ``experiment.json`` cannot be read.
    """
    if not (directory / "experiment.json").is_file():
        return None
    config = RunFolder.open(directory).experiment.config
    if "training" not in config.measure:
        return None
    content = changed_content(config)
    content["measure"] = ["training"]
    return content


def one_workload(plan: Plan, observer: Observer | None) -> TrainingCell:
    """The plan's largest count of its one workload; of the first one where an observer is to be
    told which.

    Raises:
        UsageError: it holds several workloads, and there is no observer.
        MachineError: this machine cannot run it.
    """
    if not plan.training:
        skipped = [entry for entry in plan.cells if entry.skip_reason is not None]
        reason = ""
        if skipped:
            reason = f"this machine cannot run {skipped[0].cell.id}: {skipped[0].skip_reason}"
        raise MachineError(
            reason or "the config trains nothing", hint="profile a config that measures training"
        )
    scripts = [cell for cell in plan.training if cell.script is not None]
    if scripts:
        raise UsageError(
            f"{scripts[0].model} is a script of your own: its cell is not recorded",
            hint=f"record the program itself: torchscale profile -- torchrun … {scripts[0].model}",
        )
    workloads = {
        cell.series: cell for cell in sorted(plan.training, key=lambda cell: cell.world_size)
    }
    if len(workloads) > 1 and observer is not None:
        chosen = workloads[plan.training[0].series]
        observer.note(
            f"The first of {len(workloads)} workloads there; choose another with --model, "
            "--batch-size, --precision …"
        )
        return chosen
    if len(workloads) > 1:
        names = ", ".join(cell.id for cell in plan.training[:6])
        raise UsageError(
            f"the config describes several workloads ({names} …)",
            hint="choose one with --model and --batch-size, or profile during a benchmark: "
            "profiling.enabled: true",
        )
    return max(plan.training, key=lambda cell: cell.world_size)
