"""Which flags launches have on an idle machine, and beside processes that compute.

::

    PYTHONPATH=. python benchmarks/launch_flags.py --output results/idle              # 60 launches
    PYTHONPATH=. python benchmarks/launch_flags.py --output results/busy --load 1 --repeats 7

Six short cells: two models on one rank and on two, and an MLP of small layers on two ranks, which
does little but communicate, at two batch sizes. A flag on an idle machine tells nothing; a launch
beside a busy process must be ``contended``. Interrupted, the same command goes on where it ended.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import torchscale
from torchscale.config.choices import Metric
from torchscale.features.compare.inputs import load_source
from torchscale.schema.run.metric_key import MetricKey

MODEL = """
import torch

class Layers(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(256, 256) for _ in range(6))

    def make_batch(self, batch_size, generator):
        return {"x": torch.randn(batch_size, 256, generator=generator)}

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x.pow(2).mean()

def build():
    return Layers()
"""
SWEEPS: tuple[dict[str, object], ...] = (
    {"models": ["tiny-resnet", "tiny-gpt2"], "batch_sizes": [8], "gpu_counts": [1, 2]},
    {"models": "flags_model:build", "batch_sizes": [8, 32], "gpu_counts": [2]},
)
"""Both on a core a rank, by the quick preset."""


def measure(output: Path, repeats: int) -> None:
    """Both sweeps; launches that are there are kept."""
    output.mkdir(parents=True, exist_ok=True)
    (output / "flags_model.py").write_text(MODEL)
    os.environ["PYTHONPATH"] = os.pathsep.join([str(output.resolve()), os.environ["PYTHONPATH"]])
    for number, sweep in enumerate(SWEEPS):
        config: dict[str, object] = {
            **sweep,
            "device": "cpu",
            "benchmark": {"preset": "quick", "repeats": repeats},
            "launch": {"threads_per_rank": 1},
        }
        torchscale.benchmark(config, output_dir=output / f"sweep-{number}")


def main() -> int:
    """Measure what is missing, then print a line a cell and the totals."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, required=True, help="directory of the results; kept")
    parser.add_argument("--repeats", type=int, default=10, help="launches of each cell")
    parser.add_argument("--load", type=int, default=0, help="processes that compute beside it")
    arguments = parser.parse_args()
    with contextlib.ExitStack() as stack:
        for _ in range(arguments.load):
            busy = stack.enter_context(subprocess.Popen([sys.executable, "-c", "while True: pass"]))
            stack.callback(busy.kill)
        measure(arguments.output, arguments.repeats)
    print("cell | launches | samples/s | most delay by others | flags")
    totals: Counter[str] = Counter()
    launches = flagged = 0
    for number in range(len(SWEEPS)):
        for cell in load_source(str(arguments.output / f"sweep-{number}")).cells:
            flags = Counter(flag for one in cell.launches for flag in one.flags or ())
            delay = max((one.delay[1] for one in cell.launches if one.delay), default=float("nan"))
            rates = [one.values[MetricKey(metric=Metric.THROUGHPUT)] for one in cell.launches]
            named = ", ".join(f"{count} {flag}" for flag, count in sorted(flags.items()))
            print(
                f"{cell.cell.id} | {len(rates)} | {min(rates):.4g} to {max(rates):.4g} | "
                f"{delay:.1%} | {named or 'none'}"
            )
            totals += flags
            launches += len(rates)
            flagged += sum(bool(one.flags) for one in cell.launches)
    print(f"{flagged} of {launches} launches have a flag: {dict(totals)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
