"""Sequences split over ranks: what a rank takes of a batch, and the gradients of one step against
those of one process."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.factories import cpu_task
from tests.worker.forks import Forks
from tests.worker.trainers import cell
from torchscale.schema.cells.training import TrainingCell
from torchscale.worker.models.interface import ContextSplit
from torchscale.worker.models.sequence import NO_TARGET
from torchscale.worker.parallel.context import KeyExchange, sequence_part, take

SCRIPT = """
import gc, json, os, sys
import torch
from torchscale.schema.launch.task import LaunchTask
from torchscale.worker.process_group import joined_ranks
from torchscale.worker.trainer import Trainer

def whole(tensor):
    full = getattr(tensor, "full_tensor", None)
    return tensor.clone() if full is None else full().clone()

torch.set_num_threads(1)
_, tasks, target = sys.argv  # the import of a model leaves one name there
found = []
for number, content in enumerate(json.load(open(tasks))):
    task = LaunchTask.model_validate(content)
    with joined_ranks(task, f"gradients-{number}") as ranks:
        trainer = Trainer(task.cell, ranks)
        loss = trainer._forward_backward()
        gradients = {name: whole(one.grad) for name, one in trainer.module.named_parameters()}
        losses = torch.stack(ranks.gather(loss.double()))
        found.append((losses.tolist(), gradients))
        ranks.barrier()
        trainer.close()
        del trainer
        gc.collect()
torch.save(found, f"{target}-{ranks.rank}")
os._exit(0)
"""

GPT2 = """
from torch import nn
from torchscale.worker.models import published

def build():
    made = published.build("tiny-gpt2", {"sequence_length": 16})
    for part in made.module.modules():
        if isinstance(part, nn.Dropout):
            part.p = 0.0  # several ranks would draw other numbers than one
    made.module.make_batch = made.make_batch
    made.module.context_split = lambda: made.context
    return made.module
"""
DECODER = {"models": {"name": "tiny-decoder", "num_layers": 2, "seq_len": 16}}
EXPERTS = {"models": {"name": "tiny-moe", "seq_len": 16, "skew": 2}}
LLAMA = {"models": {"name": "tiny-llama", "sequence_length": 16}}
LATENT = {
    "models": {
        "name": "tiny-moe",
        "seq_len": 16,
        "kv_rank": 24,
        "query_rank": 40,
        "rope_size": 16,
    }
}
ON_TWO: list[tuple[Any, dict[str, Any]]] = [
    ("cp", DECODER),
    ({"name": "cp", "parameters": "fsdp"}, DECODER),
    ("cp", EXPERTS),
    ("cp", LATENT),
    ("cp", LLAMA),
    ("cp", {"models": {"name": "own_small:build", "length": 16}}),
    ("cp", {"models": "own_gpt2:build"}),
]
ON_FOUR: list[tuple[Any, dict[str, Any]]] = [
    ("cp", DECODER),
    ({"name": "cp", "degree": 2}, DECODER),
    ({"name": "cp", "degree": 2, "parameters": "fsdp"}, DECODER),
    ({"name": "hybrid", "cp": 2, "shard": 2}, DECODER),
    ({"name": "hybrid", "cp": 2, "ep": 2}, EXPERTS),
]


def own_model() -> str:
    """The example of a user's own model whose sequences can be split."""
    page = (Path(__file__).parents[3] / "docs" / "models.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (found,) = [block for block in blocks if "context_split" in block]
    return str(found)


def gradients(
    forks: Forks, directory: Path, cells: list[TrainingCell]
) -> list[list[tuple[list[float], dict[str, Tensor]]]]:
    """Losses of all ranks and gradients of one step: of each rank, each cell."""
    directory.mkdir()
    tasks = [cpu_task(one) for one in cells]
    (directory / "script.py").write_text(SCRIPT)
    (directory / "own_small.py").write_text(own_model())
    (directory / "own_gpt2.py").write_text(GPT2)
    (directory / "tasks.json").write_text(json.dumps([t.model_dump(mode="json") for t in tasks]))
    (ranks,) = {one.world_size for one in cells}
    files = [str(directory / "tasks.json"), str(directory / "found")]
    forks.run(directory / "script.py", *files, ranks=ranks, tasks=tasks)
    return [torch.load(directory / f"found-{rank}") for rank in range(ranks)]


@pytest.mark.parametrize(("world_size", "settings"), [(2, ON_TWO), (4, ON_FOUR)])
def test_gradients_are_those_of_one_process(
    forks: Forks, tmp_path: Path, world_size: int, settings: list[tuple[Any, dict[str, Any]]]
) -> None:
    alone = [cell(1, "none", **content) for _, content in settings]
    (expected,) = gradients(forks, tmp_path / "one", alone)
    several = [cell(world_size, strategy, **content) for strategy, content in settings]
    for found in gradients(forks, tmp_path / "several", several):
        for setting, (losses, mine), (loss, whole) in zip(settings, found, expected, strict=True):
            assert sum(losses) / world_size == pytest.approx(loss[0], abs=5e-6), setting
            assert len(set(losses)) > 1
            names = {name.removeprefix("module."): one for name, one in mine.items()}
            assert set(names) == set(whole), (setting, sorted(set(names) ^ set(whole)))
            for name, gradient in whole.items():
                scale = float(gradient.abs().max())
                assert scale > 0
                torch.testing.assert_close(
                    names[name], gradient, rtol=0, atol=2e-5 * scale, msg=f"{setting} {name}"
                )


def test_a_rank_takes_its_tokens_and_those_that_follow() -> None:
    whole = torch.arange(8).repeat(2, 1)
    batch = {"input_ids": whole, "labels": 10 + whole, "weights": torch.ones(2)}
    part = sequence_part(0, 2, 8, None)
    taken = take(batch, ContextSplit(8), part)
    assert taken["input_ids"].tolist() == [[0, 1, 6, 7]] * 2
    assert taken["labels"].tolist() == [[11, 12, 17, NO_TARGET]] * 2
    assert taken["weights"] is batch["weights"]
    assert set(taken) == set(batch)
    other = take(batch, ContextSplit(8, positions="position_ids"), sequence_part(1, 2, 8, None))
    assert other["position_ids"].tolist() == [[2, 3, 4, 5]] * 2
    assert take({}, ContextSplit(8, positions="position_ids"), part) == {}


def test_a_length_that_does_not_divide_is_told() -> None:
    with pytest.raises(
        ValueError, match="18 tokens do not divide into 4 chunks, two for each of 2"
    ):
        sequence_part(0, 2, 18, None)


def test_without_other_ranks_an_exchange_has_its_shapes_alone() -> None:
    x = torch.randn(2, 3, 4, 5, requires_grad=True)
    whole = KeyExchange(3, None).gather(x)
    assert whole.shape == (2, 3, 12, 5)
    whole.sum().backward()  # type: ignore[no-untyped-call]
    assert x.grad is not None
    assert x.grad.shape == x.shape


class Alike(KeyExchange):
    """Of ranks that all hold the same."""

    def gathered(self, x: Tensor) -> Tensor:
        return torch.stack([x * (rank + 1) for rank in range(self.parts)])

    def returned(self, x: Tensor) -> Tensor:
        return x[0]


def test_what_is_gathered_lies_in_the_order_of_the_sequence() -> None:
    """Rank r has chunks r and, from the end, r; its gradient is that of these two."""
    x = torch.tensor([1.0, 2.0]).view(1, 1, 2, 1).requires_grad_()
    whole = Alike(3, None).gather(x)
    assert whole.flatten().tolist() == [1, 2, 3, 6, 4, 2]
    (whole.flatten() * torch.arange(6.0)).sum().backward()  # type: ignore[no-untyped-call]
    assert x.grad is not None
    assert x.grad.flatten().tolist() == [0, 5]
