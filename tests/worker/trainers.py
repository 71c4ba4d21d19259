"""Trainers on real gloo ranks, several cells one after the other in the same processes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.factories import cells, cpu_task
from tests.worker.forks import Forks
from torchscale.schema.cells.training import TrainingCell

STEPS = 10

_SCRIPT = """
import gc, json, os, sys
import torch
from torchscale.schema.launch.task import LaunchTask
from torchscale.worker.measure.parameters import compare_parameters, fingerprint
from torchscale.worker.process_group import joined_ranks
from torchscale.worker.trainer import Trainer

torch.set_num_threads(1)
found = []
for number, content in enumerate(json.load(open(sys.argv[1]))):
    task = LaunchTask.model_validate(content)
    with joined_ranks(task, f"cell-{number}") as ranks:
        trainer = Trainer(task.cell, ranks)
        before = fingerprint(trainer.named_parameters)
        samples = trainer.run_batch(int(sys.argv[3])).samples
        losses = torch.tensor([sample.loss for sample in samples], dtype=torch.float64)
        window = trainer.run_unsynchronized(1) if ranks.world_size > 1 else None
        comparison = compare_parameters(trainer.named_parameters, ranks)
        mine = {
            "parameters": len(trainer.named_parameters),
            "changed": before != fingerprint(trainer.named_parameters),
            "signals": [name for name, there in {
                "exposed_sync": samples[-1].exposed_sync is not None and samples[-1].blocked is None,
                "waits": samples[-1].blocked is not None,
                "unsynchronized_compute": window is not None,
                "buckets": bool(trainer.bucket_bytes),
                "bubble": samples[-1].bubble is not None,
            }.items() if there],
            "phases": [[s.data_wait + s.compute + (s.sync or 0) + (s.bubble or 0), s.seconds] for s in samples],
            "bubble": [s.bubble for s in samples],
        }
        result = {
            "losses": torch.stack(ranks.gather(losses)).mean(dim=0).tolist(),
            "differing": comparison.differing,
            "compared": comparison.compared,
            "ranks": ranks.gather_objects(mine),
        }
        ranks.barrier()
        trainer.close()
        del trainer
        gc.collect()
    found.append(result)
    if ranks.rank == 0:
        open(sys.argv[2], "w").write(json.dumps(found))
os._exit(0)
"""


def cell(world_size: int, strategy: object = "none", **content: Any) -> TrainingCell:
    """One cell of a small model whose global batch is 8; keys as in a config."""
    training = {"learning_rate": 0.01, "optimizer": "sgd", **content.pop("training", {})}
    settings = {
        "models": {"name": "tiny-decoder", "seq_len": 16},
        "batch_sizes": 8,
        "scaling": "strong",
        "gpu_counts": world_size,
        **content,
    }
    return cells(**settings, training=training, parallel={"strategy": strategy})[0]


def run_trainers(
    forks: Forks, directory: Path, found: Sequence[TrainingCell], steps: int = STEPS
) -> list[dict[str, Any]]:
    """What each cell's trainer gave over its first ``steps`` steps, on as many ranks as the cells
    ask for."""
    (world_size,) = {one.world_size for one in found}
    (directory / "script.py").write_text(_SCRIPT)
    tasks = [cpu_task(one) for one in found]
    (directory / "tasks.json").write_text(
        json.dumps([task.model_dump(mode="json") for task in tasks])
    )
    files = [str(directory / name) for name in ("tasks.json", "found.json")]
    forks.run(directory / "script.py", *files, str(steps), ranks=world_size, tasks=tasks)
    results: list[dict[str, Any]] = json.loads((directory / "found.json").read_text())
    return results
