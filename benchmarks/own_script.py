"""Figures of an own script against those of the same model as a built-in cell.

::

    python benchmarks/own_script.py --launches 8

The script trains the model that the built-in cell trains (DDP, AdamW, random samples on the device)
in a loop of its own. Both are cells of one benchmark whose launches take turns, so that a host
whose clock wanders disturbs both alike. Prints the ratio of their throughputs with its 95 %
interval, from launch to launch, and that of the steps that nothing disturbed (their 2nd
percentile), which a busy host changes less.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

import numpy as np

from torchscale.analysis.stats.ratios import log_ratio
from torchscale.analysis.summary.run import RunSummary
from torchscale.analysis.training.summary import Figures
from torchscale.config.load import load_experiment_from
from torchscale.measure.benchmark import benchmark
from torchscale.util.units import format_rate

_MODEL = """
import torch
from torch import nn


class Network(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        layers = [layer for _ in range(depth) for layer in (nn.Linear(width, width), nn.ReLU())]
        self.layers = nn.Sequential(*layers, nn.Linear(width, 10))
        self.width = width

    def forward(self, samples, targets):
        return nn.functional.cross_entropy(self.layers(samples), targets)

    def make_batch(self, batch_size, generator):
        samples = torch.randn(batch_size, self.width, generator=generator)
        return {"samples": samples, "targets": torch.randint(10, (batch_size,), generator=generator)}


def build(width=512, depth=6):
    return Network(width, depth)
"""
_SCRIPT = """
import argparse, itertools, os
import torch
import torch.distributed as dist
from own_model import build

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int)
options = parser.parse_args()
on_cuda = torch.cuda.is_available()
device = torch.device("cpu")
if on_cuda:
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
torch.manual_seed(42)
model = build().to(device)
batches = [
    {name: value.to(device) for name, value in model.make_batch(options.batch_size, None).items()}
    for _ in range(4)
]
if int(os.environ["WORLD_SIZE"]) > 1:
    dist.init_process_group("nccl" if on_cuda else "gloo")
    model = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for batch in itertools.cycle(batches):
    model(**batch).backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
"""


def main() -> None:
    """Measure both in turn and print the ratios."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--launches", type=int, default=8, help="of each cell")
    parser.add_argument("--counts", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=6.0, help="measured in each launch")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        (directory / "own_model.py").write_text(_MODEL)
        script = directory / "own_script.py"
        script.write_text(_SCRIPT)
        os.environ["PYTHONPATH"] = os.pathsep.join(
            filter(None, [name, os.environ.get("PYTHONPATH", "")])
        )
        experiment = load_experiment_from(
            {
                "experiment_name": "own_script",
                "models": [
                    "own_model:build",
                    {"script": f"{script} --batch-size {{batch_size}}"},
                ],
                "batch_sizes": [arguments.batch_size],
                "gpu_counts": arguments.counts,
                "benchmark": {
                    "repeats": arguments.launches,
                    "warmup_seconds": 2.0,
                    "measure_seconds": arguments.seconds,
                },
                # The script runs with the allocator's own settings.
                "launch": {"malloc": "system"},
            }
        )
        outcome = benchmark(experiment, output_dir=directory / "results")
        _print(outcome.summary, arguments.counts)


def _print(summary: RunSummary, counts: list[int]) -> None:
    for count in counts:
        built_in, own = (
            next(
                cell
                for cell in summary.cells
                if cell.cell.world_size == count and (cell.cell.script is not None) is is_own
            )
            for is_own in (False, True)
        )
        if built_in.figures is None or own.figures is None:
            print(f"{count} ranks: {built_in.reason or own.reason}")
            continue
        rates = own.figures.launch_samples_per_second
        theirs = built_in.figures.launch_samples_per_second
        ratio = log_ratio(rates, theirs)
        low, high = ratio.interval or (float("nan"), float("nan"))
        fast, theirs_fast = _fast_steps(own.figures), _fast_steps(built_in.figures)
        print(
            f"{count} ranks: undisturbed step {fast * 1e3:.3f} ms, built-in "
            f"{theirs_fast * 1e3:.3f} ms; own ÷ built-in {fast / theirs_fast:.4f}"
        )
        print(
            f"{count} ranks: own script {format_rate(sum(rates) / len(rates))}, built-in "
            f"{format_rate(sum(theirs) / len(theirs))} samples/s; own ÷ built-in {ratio.value:.4f} "
            f"({low:.4f} to {high:.4f}), {len(rates)} launches each"
        )


def _fast_steps(figures: Figures) -> float:
    """The 2nd percentile of the group's steps of all launches, in seconds."""
    return float(np.quantile(figures.steps.values, 0.02))


if __name__ == "__main__":
    main()
