"""How the script of a cell is started: argv and variables."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from torchscale.catalog.model_facts import OptionValue
from torchscale.config.script import BATCH, PRECISION, SEED, WORLD_SIZE
from torchscale.features.watch.job.program_processes import watching_environment
from torchscale.launch.loopback import LOCAL_RENDEZVOUS
from torchscale.schema.cells.kinds import as_kind
from torchscale.schema.cells.script import Script
from torchscale.schema.cells.training import TrainingCell
from torchscale.schema.launch.task import LaunchTask
from torchscale.util.interpreter import module_command
from torchscale.util.processes.subprocesses import inherited_environment


def script_command(
    task: LaunchTask, directory: Path, hidden: Mapping[str, OptionValue]
) -> list[str]:
    """argv of the launch: torchrun with the script, or the user's own command."""
    cell, script = script_of(task)
    text = str(hidden.get(script.text, script.text))
    values: dict[str, object] = {
        name: hidden.get(str(value), value) for name, value in cell.model_options.items()
    }
    values |= {WORLD_SIZE: cell.world_size, "gpus": cell.world_size, SEED: cell.seed}
    values |= {BATCH: cell.batch_size, PRECISION: cell.precision}
    arguments = script.model_copy(update={"text": text}).arguments(values)
    if script.form == "command":
        return arguments
    return module_command(
        "torch.distributed.run",
        *LOCAL_RENDEZVOUS,
        f"--nproc-per-node={cell.world_size}",
        "--max-restarts=0",
        f"--log-dir={directory / 'logs'}",
        "--redirects=3",
        *(["-m"] if script.form == "module" else []),
        *arguments,
    )


def script_of(task: LaunchTask) -> tuple[TrainingCell, Script]:
    """The cell of a task, and its script."""
    cell = as_kind(task.cell, TrainingCell)
    if cell is None or cell.script is None:
        raise ValueError(f"{task.cell.id} has no script")
    return cell, cell.script


def script_environment(task: LaunchTask, watched: Path, extra: Mapping[str, str]) -> dict[str, str]:
    """Variables of the ranks: this process's, those of every launch, ``extra``, the collector's. What
    a user's script finds is otherwise what it finds without us: no setting of the memory allocator,
    no offline mode of model hubs."""
    threads = str(task.threads_per_rank)
    environment = {
        **inherited_environment(),
        "OMP_NUM_THREADS": threads,
        "MKL_NUM_THREADS": threads,
    }
    if Path("/sys/class/net/lo").exists():
        environment.setdefault("GLOO_SOCKET_IFNAME", "lo")
    if task.device == "cpu":
        environment["CUDA_VISIBLE_DEVICES"] = ""
    elif task.device == "cuda" and task.device_indices:
        environment["CUDA_VISIBLE_DEVICES"] = _visible(
            task.device_indices, environment.get("CUDA_VISIBLE_DEVICES", "")
        )
    if task.cpu_sets is not None:
        environment["TORCHSCALE_WATCH_CPUS"] = ";".join(
            ",".join(map(str, cores)) for cores in task.cpu_sets
        )
    return watching_environment(watched.absolute(), {**environment, **extra})


def _visible(indices: tuple[int, ...], before: str) -> str:
    """``CUDA_VISIBLE_DEVICES`` that leaves these of the devices that were visible before."""
    names = [name.strip() for name in before.split(",") if name.strip()]
    chosen = [names[index] if index < len(names) else str(index) for index in indices]
    return ",".join(chosen)
