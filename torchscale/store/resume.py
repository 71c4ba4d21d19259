"""Whether a run folder may be resumed or joined: by the same experiment, on the same machine; and
whether it may still be written."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from torchscale.config.experiment import Experiment
from torchscale.config.resume_keys import fixed_values
from torchscale.errors import OutputError, StoreError
from torchscale.schema.run.experiment_file import ExperimentFile
from torchscale.util.files import leads_out


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
    return config.model_copy(update={"hardware": config.hardware.model_copy(update=declared)})


def refuse_gone(path: Path) -> None:
    """Refuse to measure into a folder without its ``experiment.json``: no report would find the
    result.

    Raises:
        OutputError: the folder was moved or removed by somebody.
    """
    if not os.path.lexists(path / "experiment.json"):
        raise OutputError(
            f"{path} was moved or removed while it was measured",
            hint="what is complete is where it is now; continue there with --output-dir",
        )


def refuse_link(path: Path, directory: Path) -> None:
    """Nothing is read, and so nothing may be written, where a link leads out of the folder:
    others could have put it there, and what is measured into it would be missing from every
    report.

    Raises:
        StoreError: a link on the way to ``directory`` leads out.
    """
    try:
        leads = leads_out(path, directory)
    except OSError:
        leads = True
    if leads:
        raise StoreError(
            f"{directory} is reached by a link that leads out of {path}",
            hint="move the whole results directory instead, and name its new place with "
            "--output-dir; the results directory itself may be a link",
        )


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
