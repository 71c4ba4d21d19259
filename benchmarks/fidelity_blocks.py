"""One rank of ``fidelity.py``: alternate blocks of torchscale's timed batches and of the bare loop,
in ABBA order.

Two blocks of a pair follow each other within seconds, so that a slow minute of the machine affects
both. Both run the same model, optimizer and batches: the memory layout makes one of two equal
models in a process up to 1.5 % faster for its whole life, which is more than the difference
measured here.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import tempfile
import time
from pathlib import Path

import bare_loop
import torch
import torch.distributed as dist

from torchscale.catalog.models import MODELS
from torchscale.config.sections.benchmark import PRESETS
from torchscale.schema.cells.training import Measurement, TrainingCell
from torchscale.schema.launch.rank import HostLoad
from torchscale.schema.launch.task import LaunchTask
from torchscale.worker.measure.host import HostLoadMeter, usable_cpus
from torchscale.worker.memory.heap import keep_freed_memory
from torchscale.worker.models.sequence import next_token_loss
from torchscale.worker.process_group import joined_ranks
from torchscale.worker.rank_files import RankFiles
from torchscale.worker.trainer import Trainer

MAX_STEPS = 40
"""Of a block: the stop rule's choice for a batch of steps of up to 25 ms."""
MIN_STEPS = 4
"""Of a block: between two blocks the first step is slower, since the other loop has used the
caches."""


class Pair:
    """Both loops in one process. With a ``twin``, a bare loop takes the place of torchscale's: two
    equal loops, or one loop compared with itself."""

    def __init__(
        self,
        trainer: Trainer,
        bare: bare_loop.BareLoop,
        files: RankFiles,
        twin: bare_loop.BareLoop | None = None,
    ) -> None:
        self._trainer, self._bare, self._files, self._twin = trainer, bare, files, twin
        self._steps = MIN_STEPS

    def choose_steps(self, block_seconds: float) -> None:
        """Make blocks about as long as this, after a warm-up."""
        self.measure(bare_first=False)
        ours, theirs, _ = self.measure(bare_first=True)
        step_seconds = max(ours, theirs) / self._steps  # equal on all ranks
        self._steps = min(MAX_STEPS, max(MIN_STEPS, round(block_seconds / step_seconds)))

    def torchscale_block(self) -> float:
        """Seconds as torchscale reports them, of one batch of steps; they are written after it."""
        if self._twin is not None:
            return self._twin.run(self._steps)
        self._trainer.clear_marks()  # the bare loop runs the same module, whose hooks mark gradient sync
        timed = self._trainer.run_batch(self._steps)
        self._files.steps(timed.samples)
        return timed.batch.seconds

    def bare_block(self) -> float:
        """Seconds of the same number of bare steps."""
        return self._bare.run(self._steps)

    def measure(self, *, bare_first: bool) -> tuple[float, float, float]:
        """Seconds of torchscale's block and of the bare block, and the share of the cores that
        other processes used."""
        load = HostLoadMeter(usable_cpus(), pinned=True)
        if bare_first:
            theirs, ours = self.bare_block(), self.torchscale_block()
        else:
            ours, theirs = self.torchscale_block(), self.bare_block()
        worst = torch.tensor([ours, theirs, _foreign_share(load.read())], dtype=torch.float64)
        if dist.is_initialized():
            dist.all_reduce(worst, op=dist.ReduceOp.MAX)
        return float(worst[0]), float(worst[1]), float(worst[2])


def main() -> None:
    """Measure pairs until there are enough; rank 0 writes their ratios."""
    arguments = _parse()
    if arguments.malloc == "keep":
        keep_freed_memory()  # as ranks do
    bare_loop.pin(1)
    world_size = int(os.environ["WORLD_SIZE"])
    cell = training_cell(arguments, world_size)
    task = LaunchTask(
        cell=cell,
        launch=0,
        device="cpu",
        threads_per_rank=1,
        started_at=time.time(),
        collective_timeout_seconds=600,
    )
    with joined_ranks(task) as ranks, tempfile.TemporaryDirectory() as directory:
        trainer = Trainer(cell, ranks)
        batches = [trainer.source.next_batch() for _ in range(4)]
        dtype = torch.bfloat16 if arguments.precision == "bf16" else None
        bare = bare_loop.BareLoop(trainer.model, trainer.optimizer, batches, dtype=dtype)
        if arguments.strategy == "pipeline":
            pieces = cell.strategy.pieces(cell.degrees)
            (stage,) = trainer.model.children()
            bare = bare_loop.pipeline(bare, stage, next_token_loss, pieces)
        twin = None
        if arguments.twins:
            other = Trainer(cell, ranks)
            twin = bare_loop.BareLoop(other.model, other.optimizer, batches, dtype=dtype)
        elif arguments.same:
            twin = bare
        pair = Pair(trainer, bare, RankFiles(Path(directory), ranks.rank), twin)
        pair.choose_steps(arguments.block_seconds)
        ratios: list[float] = []
        rejected = 0
        while len(ratios) < arguments.pairs and rejected < 3 * arguments.pairs:
            ours, theirs, foreign = pair.measure(bare_first=(len(ratios) + rejected) % 2 == 1)
            if foreign > arguments.max_foreign:
                rejected += 1
            else:
                ratios.append(theirs / ours)
        if ranks.rank == 0:
            arguments.out.write_text(json.dumps({"ratios": ratios, "rejected": rejected}))
        trainer.close()
        del bare, pair
        gc.collect()
    os._exit(0)


def _foreign_share(load: HostLoad) -> float:
    return (load.busy_seconds - load.process_seconds) / (load.wall_seconds * load.cores)


def training_cell(arguments: argparse.Namespace, world_size: int) -> TrainingCell:
    """The cell of these options: what torchscale runs."""
    options = arguments.options if ":" in arguments.model else dict(MODELS[arguments.model].options)
    if arguments.image_size:
        options["image_size"] = arguments.image_size
    return TrainingCell(
        model=arguments.model,
        model_options=options,
        batch_size=arguments.batch_size,
        scaling="weak",
        world_size=world_size,
        device="cpu",
        precision=arguments.precision,
        strategy={"name": arguments.strategy},
        optimizer=arguments.optimizer,
        learning_rate=1e-4,
        channels_last=False,
        compile=False,
        seed=0,
        cudnn_benchmark=True,
        data_source="synthetic",
        num_samples=50_000,
        measurement=Measurement(preset="quick", **PRESETS["quick"]),
    )


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument(
        "--model", default="tiny-resnet", help="of the catalogue, or module:function"
    )
    parser.add_argument("--options", type=json.loads, default={}, help="of the function, as JSON")
    parser.add_argument("--optimizer", default="adamw", choices=("sgd", "adamw"))
    parser.add_argument("--precision", default="fp32", choices=("fp32", "bf16"))
    parser.add_argument("--strategy", default="ddp")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--image-size", type=int)
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--block-seconds", type=float, default=1.0)
    parser.add_argument("--max-foreign", type=float, default=0.2)
    parser.add_argument(
        "--malloc", default="keep", choices=("keep", "system"), help="setting of glibc's allocator"
    )
    parser.add_argument("--twins", action="store_true", help="two bare loops with a model each")
    parser.add_argument("--same", action="store_true", help="one bare loop, compared with itself")
    return parser.parse_args()


if __name__ == "__main__":
    main()
