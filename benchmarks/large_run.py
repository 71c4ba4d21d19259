"""Time and memory of reading, diagnosing and reporting a run over very many ranks.

::

    PYTHONPATH=. python benchmarks/large_run.py                               # 200 cells of 1,024 ranks on 128 hosts
    PYTHONPATH=. python benchmarks/large_run.py --hosts 16 --cells 20 --keep DIR

The results directory is synthetic: records in the form that launches write, whose figures nobody
measured. They are input for timing; only the commands that read them are measured. In every third
cell one host is slow, so that there is something to diagnose.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from large_report import BATCHES, PROFILE, STEPS, steps_digest
from numpy.typing import NDArray

from tests.factories import environment, experiment, experiment_file, launch_record, rank_record
from torchscale.plan.expand import make_plan
from torchscale.schema.cells.training import TrainingCell
from torchscale.schema.launch.nodes import LaunchNode
from torchscale.schema.launch.rank import MemoryUse, RankRecord
from torchscale.schema.launch.record import LaunchRecord, payload
from torchscale.schema.launch.signals import LinkSample, RankSignals, SignalDigest, StepWindows
from torchscale.schema.launch.steps import RankSteps
from torchscale.schema.launch.telemetry import GpuUse, Telemetry
from torchscale.schema.launch.training import TrainingResult
from torchscale.schema.node.environment import DeviceInfo
from torchscale.schema.node.machine import Machine
from torchscale.util.files import atomic_write_model

DEVICES = 8
TEMPLATES = 6
"""Launches with figures of their own, of which all cells are copies: to draw more takes minutes and
changes nothing."""
SLOW_BY = 0.15
WINDOWS = 40
UNSYNCHRONIZED = 12
"""Steps without gradient synchronization, before and after those that are measured."""
FORMATS = ("html", "json", "csv")
LIMIT_SECONDS = 900


def write_results(directory: Path, hosts: int, cells: int) -> int:
    """Write a results directory with this many cells over all devices of all hosts. Returns its
    size in bytes."""
    ranks = hosts * DEVICES
    content = {
        "models": ["resnet18", "resnet50", "bert-base", "gpt2", "tiny-resnet", "tiny-decoder"],
        "batch_sizes": list(range(1, -(-cells // 24) + 1)),
        "gpu_counts": [ranks],
        "training": {"precision": ["bf16", "fp16"]},
        "parallel": {"strategy": ["ddp", "fsdp"]},
        "launch": {"nodes": hosts},
    }
    config = experiment(experiment_name="synthetic-large", **content)
    place = environment(DEVICES, cores=64)
    plan = make_plan(config, Machine(place, tuple(range(64)))).cells[:cells]
    if len(plan) < cells:
        raise SystemExit(f"--cells {cells}: the plan has {len(plan)}")
    directory.mkdir(parents=True)
    (directory / "experiment.json").write_text(
        experiment_file(config, plan, environment=place).model_dump_json()
    )
    templates: list[LaunchRecord] = []
    total = 0
    for number, entry in enumerate(plan):
        assert isinstance(entry.cell, TrainingCell)
        if len(templates) < TEMPLATES:
            templates.append(made_up_launch(entry.cell, hosts, number))
        launch = directory / "cells" / entry.cell.id / "launch-0"
        launch.mkdir(parents=True)
        atomic_write_model(
            launch / "record.json", _of_cell(templates[number % TEMPLATES], entry.cell)
        )
        total += (launch / "record.json").stat().st_size
    return total


def made_up_launch(cell: TrainingCell, hosts: int, seed: int) -> LaunchRecord:
    """A launch of 200 steps with every signal, on GPUs that nobody has; with every third seed, one
    host is slow."""
    count = cell.world_size
    generator = np.random.default_rng(seed)
    mean = generator.uniform(0.02, 0.4)
    own = mean * generator.lognormal(0, 0.01, (count, STEPS))
    if seed % 3 == 0:
        slow = int(generator.integers(hosts)) * DEVICES
        own[slow : slow + DEVICES] *= 1 + SLOW_BY
    group = own.max(axis=0)
    batches = group.reshape(BATCHES, -1).sum(axis=1).tolist()
    ranks = tuple(_rank(cell, rank, batches, own[rank]) for rank in range(count))
    compute = own.reshape(count, BATCHES, -1).mean(axis=2)
    waits = group.reshape(BATCHES, -1).mean(axis=1) - compute
    latest = np.bincount(own.argmax(axis=0), minlength=count) / STEPS
    signals = SignalDigest(
        compute=_in_nanoseconds(compute),
        data_wait=_in_nanoseconds(compute * 0.02),
        wait=_in_nanoseconds(waits),
        transfer=tuple((compute.mean(axis=0) * 0.05).tolist()),
        blame=tuple(latest.tolist()),
        exposed_p50=0.1 * mean,
        exposed_p95=0.12 * mean,
        long_steps=(0,) * count,
        long_step_seconds=0.0,
        long_step_seconds_by_rank=(0.0,) * count,
        windows=_windows(own, group),
    )
    return launch_record(
        cell,
        0,
        batches,
        ranks,
        steps=steps_digest(group),
        rank_steps=RankSteps.of([steps_digest(group)] * count),
        signals=signals,
        telemetry=_telemetry(sum(batches)),
        nodes=tuple(
            LaunchNode(
                node_rank=host,
                hostname=_hostname(host),
                address=f"10.0.{host // 250}.{host % 250 + 1}",
                first_rank=host * DEVICES,
                ranks=DEVICES,
                clock_offset_seconds=None if host == 0 else 1e-4,
            )
            for host in range(hosts)
        ),
    )


def _in_nanoseconds(seconds: NDArray[np.float64]) -> tuple[tuple[float, ...], ...]:
    return tuple(map(tuple, seconds.round(9).tolist()))


def _hostname(host: int) -> str:
    return f"synthetic-{host:03d}"


def _windows(own: NDArray[np.float64], group: NDArray[np.float64]) -> StepWindows:
    """Of five steps each, as launches of 200 steps have them."""
    compute = 1e6 * own.reshape(len(own), WINDOWS, -1).mean(axis=2)
    return StepWindows(
        steps=(STEPS // WINDOWS,) * WINDOWS,
        wall_us=tuple((1e6 * group.reshape(WINDOWS, -1).mean(axis=1)).astype(int).tolist()),
        compute_us=tuple(map(tuple, compute.astype(int).tolist())),
        quiet_us=tuple(map(tuple, (0.4 * compute).astype(int).tolist())),
    )


def _rank(
    cell: TrainingCell, rank: int, batches: list[float], own: NDArray[np.float64]
) -> RankRecord:
    host, device = divmod(rank, DEVICES)
    return rank_record(
        cell,
        rank,
        batches,
        local_rank=device,
        node_rank=host,
        hostname=_hostname(host),
        backend="nccl",
        device=DeviceInfo(
            kind="cuda", index=device, name="NVIDIA H100", uuid=f"GPU-{host}-{device}"
        ),
        memory=MemoryUse(peak_allocated_bytes=2**34 + rank, peak_reserved_bytes=2**35),
        signals=RankSignals(
            unsynchronized_seconds=tuple((0.9 * own[:UNSYNCHRONIZED]).tolist()),
            unsynchronized_wall_seconds=float(own[:UNSYNCHRONIZED].sum()),
            bucket_bytes=(25 * 2**20, 8 * 2**20),
            link=LinkSample(
                payload_bytes=33 * 2**20,
                as_bucketed_seconds=0.001,
                merged_seconds=0.0009,
                repeats=7,
                interface="ib0",
            ),
            collections=2,
            collection_seconds=1e-3,
            longest_collection_seconds=6e-4,
            page_faults=0,
        ),
    )


def _telemetry(seconds: float) -> Telemetry:
    use = {
        "busy": 0.9,
        "power_watts": 600.0,
        "energy_joules": 9000.0,
        "sm_clock_hertz": 1.9e9,
        "throttle_reasons": (),
    }
    return Telemetry(
        seconds=seconds,
        readings=20,
        cpu_busy=0.2,
        memory_used_peak_bytes=2**36,
        gpus=tuple(
            GpuUse.model_validate({"uuid": f"GPU-0-{device}", **use}) for device in range(DEVICES)
        ),
    )


def _of_cell(template: LaunchRecord, cell: TrainingCell) -> LaunchRecord:
    """The same figures as a launch of ``cell``."""
    result = payload(template, TrainingResult)
    ranks = tuple(
        rank.model_copy(update={"samples_per_step": cell.per_device_batch_size})
        for rank in result.ranks
    )
    return template.model_copy(
        update={"cell_id": cell.id, "payload": result.model_copy(update={"ranks": ranks})}
    )


def report(results: Path, output: Path) -> str:
    """Write a report with the real command. Returns its time, memory and size."""
    started = time.perf_counter()
    subprocess.run(
        [sys.executable, "-c", PROFILE, str(results), str(output)],
        check=True,
        timeout=LIMIT_SECONDS,
    )
    seconds = time.perf_counter() - started
    own, children = (int(count) for count in Path(f"{output}.memory").read_text().split())
    memory = f"peak {own / 2**20:.2f} GiB, its largest child {children / 2**20:.2f} GiB"
    return f"{seconds:.1f} s, {memory}, {output.stat().st_size / 1e6:.2f} MB"


def main() -> None:
    """Generate results, write reports of each format; print times, memory and sizes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hosts", type=int, default=128, help="of eight ranks each")
    parser.add_argument("--cells", type=int, default=200)
    parser.add_argument(
        "--keep", type=Path, help="write results and reports to this directory and keep them"
    )
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        directory = arguments.keep or Path(scratch)
        results = directory / "synthetic-large"
        if not results.exists():
            started = time.perf_counter()
            size = write_results(results, arguments.hosts, arguments.cells)
            print(
                f"synthetic input: {arguments.cells} cells of {arguments.hosts * DEVICES:,} ranks "
                f"on {arguments.hosts} hosts, {size / 1e6:.0f} MB, written in "
                f"{time.perf_counter() - started:.0f} s"
            )
        for name in FORMATS:
            print(f"{name}: {report(results, directory / f'report.{name}')}", flush=True)


if __name__ == "__main__":
    main()
