"""Whether a run folder may be resumed or joined: by the same experiment, on the same machine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from torchscale.config.experiment import Experiment
from torchscale.config.resume_keys import fixed_values
from torchscale.errors import StoreError
from torchscale.schema.run.experiment_file import ExperimentFile


def refuse_other_experiment(path: Path, old: ExperimentFile, new: ExperimentFile) -> None:
    """Refuse to resume the run in ``path`` with another experiment or on another machine.

    Raises:
        StoreError: a key that must stay as it is or the machine differs; the message names what.
    """
    differing = _differences(fixed_values(old.config), fixed_values(new.config))
    differing += _differences(_machine(old), _machine(new))
    if differing:
        raise StoreError(
            f"{path} holds another experiment; it differs in " + "; ".join(differing),
            hint="use another --output-dir or experiment_name, or undo the change; only axes may "
            "grow",
        )


def refuse_other_machine(path: Path, old: ExperimentFile, new: ExperimentFile) -> None:
    """Refuse to add cells to the run in ``path`` on another machine.

    Raises:
        StoreError: the machine differs; the message names in what.
    """
    differing = _differences(_machine(old), _machine(new))
    if differing:
        raise StoreError(
            f"{path} was measured on another machine; it differs in " + "; ".join(differing),
            hint="use another --output-dir",
        )


def with_declared_hardware(config: Experiment, joining: Experiment) -> Experiment:
    """``config`` with the values of ``hardware`` that ``joining`` sets: they change how figures are
    judged, and none of them."""
    declared = {name: getattr(joining.hardware, name) for name in joining.hardware.model_fields_set}
    if not declared:
        return config
    return config.model_copy(update={"hardware": config.hardware.model_copy(update=declared)})


def _machine(file: ExperimentFile) -> dict[str, object]:
    """What of the machine changes figures: devices, thread share, versions."""
    environment = file.environment
    devices = sorted({device.name for device in environment.devices}) or [environment.cpu]
    return {
        "device": ", ".join(devices),
        "threads per rank": file.threads_per_rank,
        "torch": environment.versions.torch,
        "CUDA": environment.versions.cuda,
        "ROCm": environment.versions.rocm,
        "NCCL": environment.versions.nccl,
    }


def _differences(old: Mapping[str, object], new: Mapping[str, object]) -> list[str]:
    return [
        f"{key} ({old.get(key)} there, {new.get(key)} here)"
        for key in new
        if old.get(key) != new.get(key)
    ]
