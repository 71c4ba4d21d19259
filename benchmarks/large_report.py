"""Time and memory of a report of very many cells, and response time of its page.

::

    PYTHONPATH=. python benchmarks/large_report.py                        # 10,000 cells of 8 ranks
    PYTHONPATH=. python benchmarks/large_report.py --cells 400 --keep DIR

The results directory is generated in the form that launches write: records with the digests of
eight ranks. Its figures are not measurements; only the report is measured.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from playwright.sync_api import sync_playwright

from tests.factories import environment, experiment, experiment_file, launch_record, rank_record
from torchscale.analysis.stats.series import digest
from torchscale.catalog.models import MODELS
from torchscale.plan.expand import make_plan
from torchscale.schema.cells.training import TrainingCell
from torchscale.schema.launch.rank import MemoryUse
from torchscale.schema.launch.record import LaunchRecord
from torchscale.schema.launch.signals import SignalDigest
from torchscale.schema.launch.steps import RankSteps, StepDigest
from torchscale.schema.launch.telemetry import GpuUse, Telemetry
from torchscale.schema.node.environment import DeviceInfo
from torchscale.schema.node.machine import Machine

RANKS = 8
BATCHES = 20
STEPS = 200
PROFILE = """
import resource, runpy, sys
results, output = sys.argv[1:]
sys.argv = ["torchscale", "report", "--source", results, "--output", output]
try:
    runpy.run_module("torchscale", run_name="__main__")
finally:
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    print(own, children, file=open(output + ".memory", "w"))
"""
_USE = """async () => {
  const frame = () => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  const time = async (act) => {
    const start = performance.now();
    act();
    await frame();
    return (performance.now() - start) / 1e3;
  };
  const section = document.querySelector("section[aria-labelledby=all-cells]");
  section.querySelector("details").open = true;
  await frame();
  const input = section.querySelector("input[type=search]");
  const filter = await time(() => { input.value = "bert fsdp"; input.dispatchEvent(new Event("input")); });
  const table = section.querySelector("table");
  const sort = await time(() => table.tHead.rows[0].cells[5].querySelector("button").click());
  return { filter, sort };
}"""


def write_results(directory: Path, cells: int) -> int:
    """Write a results directory with this many cells of eight GPUs each; returns its size in
    bytes."""
    per_model = max(1, cells // 40)
    content = {
        "models": [name for name in MODELS if "resnet" in name or "bert" in name or "gpt2" in name][
            :10
        ],
        "batch_sizes": list(range(1, per_model + 1)),
        "gpu_counts": [RANKS],
        "training": {"precision": ["bf16", "fp16"]},
        "parallel": {"strategy": ["ddp", "fsdp"]},
    }
    config = experiment(experiment_name="large", **content)
    place = environment(RANKS)
    plan = make_plan(config, Machine(place, tuple(range(64)))).cells[:cells]
    directory.mkdir(parents=True)
    file = experiment_file(config, plan, environment=place)
    (directory / "experiment.json").write_text(file.model_dump_json())
    total = 0
    for number, entry in enumerate(plan):
        assert isinstance(entry.cell, TrainingCell)
        launch = directory / "cells" / entry.cell.id / "launch-0"
        launch.mkdir(parents=True)
        text = made_up_record(entry.cell, number).model_dump_json(indent=1)
        total += (launch / "record.json").write_text(text)
    return total


def made_up_record(cell: TrainingCell, seed: int) -> LaunchRecord:
    """A launch of 200 steps with every signal, on GPUs that nobody has."""
    count = cell.world_size
    generator = np.random.default_rng(seed)
    mean = generator.uniform(0.02, 0.4)
    seconds = mean * generator.lognormal(0, 0.03, (count, STEPS))
    digests = tuple(steps_digest(seconds[rank]) for rank in range(count))
    batches = seconds.max(axis=0).reshape(BATCHES, -1).sum(axis=1).tolist()
    ranks = tuple(
        rank_record(
            cell,
            rank,
            batches,
            device=DeviceInfo(kind="cuda", index=rank, name="NVIDIA H100", uuid=f"GPU-{rank}"),
            memory=MemoryUse(peak_allocated_bytes=2**34 + rank, peak_reserved_bytes=2**35),
        )
        for rank in range(count)
    )
    series = tuple(
        tuple((seconds[rank].reshape(BATCHES, -1).mean(axis=1) * 0.8).tolist())
        for rank in range(count)
    )
    waits = tuple(tuple(value * 0.1 for value in rank) for rank in series)
    signals = SignalDigest(
        compute=series, data_wait=waits, wait=waits, transfer=waits[0], blame=(1 / count,) * count
    )
    use = {
        "busy": 0.9,
        "power_watts": 600.0,
        "energy_joules": 9000.0,
        "sm_clock_hertz": 1.9e9,
        "throttle_reasons": (),
    }
    telemetry = Telemetry(
        seconds=sum(batches),
        readings=20,
        cpu_busy=0.2,
        memory_used_peak_bytes=2**36,
        gpus=tuple(GpuUse.model_validate({"uuid": f"GPU-{rank}", **use}) for rank in range(count)),
    )
    steps = steps_digest(seconds.max(axis=0))
    return launch_record(
        cell,
        0,
        batches,
        ranks,
        steps=steps,
        rank_steps=RankSteps.of(digests),
        signals=signals,
        telemetry=telemetry,
    )


def steps_digest(seconds: np.typing.NDArray[np.float64]) -> StepDigest:
    """Steps of these seconds, in the phases of a synchronous step."""
    mean = float(seconds.mean())
    return StepDigest(
        seconds=digest(seconds.tolist()),
        mean_data_wait=0.05 * mean,
        mean_forward=0.3 * mean,
        mean_backward=0.4 * mean,
        mean_optimizer=0.1 * mean,
        mean_sync=0.15 * mean,
    )


def open_page(path: Path) -> dict[str, float]:
    """Seconds until the page is loaded with its charts, and for a filter over all cells and a
    sort."""
    with sync_playwright() as player:
        browser = player.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        page = browser.new_page()
        started = time.perf_counter()
        page.goto(path.resolve().as_uri(), wait_until="load")
        opened = time.perf_counter() - started
        found: dict[str, float] = page.evaluate(_USE)
        browser.close()
    return {"open": opened, **found}


def main() -> None:
    """Generate results, write the report, open it; print times and memory."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cells", type=int, default=10_000)
    parser.add_argument(
        "--keep", type=Path, help="write the results to this directory and keep them"
    )
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        results = arguments.keep or Path(scratch) / "large"
        if not results.exists():
            size = write_results(results, arguments.cells)
            print(f"{arguments.cells} cells, {size / 1e6:.0f} MB of records")
        page = Path(scratch) / "report.html"
        started = time.perf_counter()
        subprocess.run(
            [sys.executable, "-c", PROFILE, str(results), str(page)], check=True, timeout=600
        )
        seconds = time.perf_counter() - started
        own, children = (int(count) for count in Path(f"{page}.memory").read_text().split())
        memory = f"{own / 2**20:.2f} GiB, its largest child {children / 2**20:.2f} GiB"
        print(f"report: {seconds:.1f} s, peak {memory}, page {page.stat().st_size / 1e6:.1f} MB")
        for what, took in open_page(page).items():
            print(f"{what}: {took:.2f} s")


if __name__ == "__main__":
    main()
