"""Two real ranks against one process that sees all their data: DDP must train the same model."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.factories import cells, cpu_task
from tests.worker.forks import Forks
from torchscale.schema.cells.training import TrainingCell
from torchscale.schema.launch.rank import RankRecord

TRAINED = """
import gc, json, sys
import torch
from torchscale.schema.launch.task import LaunchTask
from torchscale.worker.measure.parameters import compare_parameters
from torchscale.worker.process_group import joined_ranks
from torchscale.worker.trainer import Trainer

arguments = sys.argv[1:]  # the import of a model leaves one name there
task = LaunchTask.model_validate_json(open(arguments[0]).read())
torch.set_num_threads(1)
with joined_ranks(task, __name__) as ranks:
    trainer = Trainer(task.cell, ranks)
    trainer.run_batch(4)
    equal = compare_parameters(trainer.named_parameters, ranks).differing
    broken = None
    if ranks.rank == 0:
        torch.save(trainer.module.state_dict(), arguments[1])
    else:
        with torch.no_grad():
            trainer.module.layer.bias[1] += 1
    broken = compare_parameters(trainer.named_parameters, ranks).differing
    if ranks.rank == 0:
        open(arguments[2], "w").write(json.dumps([equal, broken]))
    ranks.barrier()
    trainer.close()
    del trainer
    gc.collect()  # DDP's reducer must go before its process group
"""

WHOLE_LAUNCH = """
import pathlib, sys
import torch
from torchscale.schema.launch.task import LaunchTask
from torchscale.worker import trainer
from torchscale.worker.rank_files import RankFiles
from torchscale.worker.parallel.interface import Parallel
from torchscale.worker.process_group import joined_ranks
from torchscale.worker.train import Started, train

# Nobody reduces gradients.
trainer.parallelize = lambda workload, cell, ranks: Parallel(workload.module, workload.module)
arguments = sys.argv[1:]  # the import of a model leaves one name there
task = LaunchTask.model_validate_json(open(arguments[0]).read())
torch.set_num_threads(1)
with joined_ranks(task, __name__) as ranks:
    files = RankFiles(pathlib.Path(arguments[1]), ranks.rank)
    files.record(train(task, task.cell, ranks, files, Started(0.0, 0.0)))
"""

SIGNALS = """
import gc, json, sys
import torch
from torchscale.schema.launch.task import LaunchTask
from torchscale.worker.measure.link import measure_link
from torchscale.worker.process_group import joined_ranks
from torchscale.worker.trainer import Trainer

arguments = sys.argv[1:]  # the import of a model leaves one name there
task = LaunchTask.model_validate_json(open(arguments[0]).read())
torch.set_num_threads(1)
with joined_ranks(task, __name__) as ranks:
    trainer = Trainer(task.cell, ranks)
    first = trainer.run_batch(1)
    steps = trainer.run_batch(6).samples
    before = [parameter.detach().clone() for parameter in trainer.module.parameters()]
    window = trainer.run_unsynchronized(4)
    watched = trainer.watch._watched
    names = [name for name, parameter in trainer.module.named_parameters() if parameter is watched[0]]
    link = measure_link(trainer.bucket_bytes, ranks)
    if ranks.rank == 0:
        with open(arguments[1], "w") as file:
            json.dump({
                "syncs": [[s.exposed_sync, s.buffer_sync, s.seconds, s.compute + s.data_wait] for s in steps],
                "first": first.samples[0].exposed_sync,
                "window": list(window.seconds), "wall": window.wall_seconds, "watched": names,
                "buckets": trainer.bucket_bytes, "link": link.model_dump(),
                "steps_after": trainer.run_batch(1).samples[0].step,
            }, file)
    else:
        trainer.run_batch(1)
    ranks.barrier()
    trainer.close()
    del trainer
    gc.collect()
"""

MODEL = """
import torch
from torch import nn

SCALE = 1.0

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(16, 16)
        self.head = nn.Linear(16, 4)
    def forward(self, x, y):
        return SCALE * nn.functional.mse_loss(self.head(torch.tanh(self.layer(x))), y)
    def make_batch(self, batch_size, generator):
        sizes = {"x": 16, "y": 4}
        return {name: torch.randn(batch_size, size, generator=generator) for name, size in sizes.items()}

def build():
    return Net()
"""


DRIVER = """
import json, os, sys
for name, *arguments in json.load(open("scripts.json")):
    sys.argv = [name, *arguments]
    exec(compile(open(name + ".py").read(), name, "exec"), {"__name__": name})
os._exit(0)
"""


@dataclass(frozen=True)
class Ran:
    """Where the scripts left their files, and the cell of each."""

    directory: Path
    cells: dict[str, TrainingCell]


@pytest.fixture(scope="module")
def ran(forks: Forks, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """The three scripts, one after the other on the same two ranks; the one that breaks them comes
    last."""
    directory = tmp_path_factory.mktemp("ranks")
    (directory / "small_net.py").write_text(MODEL)
    (directory / "steep_net.py").write_text(MODEL.replace("SCALE = 1.0", "SCALE = 1000.0"))
    quick = {
        "preset": "quick",
        "warmup_steps": 20,
        "warmup_seconds": 0.01,
        "warmup_max_seconds": 2,
        "measure_steps": 4,
    }
    learning = {"learning_rate": 0.01}
    chosen: dict[str, dict[str, Any]] = {
        "trained": {"models": "small_net:build", "batch_sizes": 8, "training": learning},
        "signals": {"models": "tiny-resnet", "batch_sizes": 2},
        "whole_launch": {
            "models": "steep_net:build",
            "batch_sizes": 8,
            "training": {**learning, "precision": "fp16"},
            "benchmark": quick,
        },
    }
    outputs = {
        "trained": ["weights.pt", "equal.json"],
        "signals": ["signals.json"],
        "whole_launch": ["."],
    }
    scripts = {"trained": TRAINED, "signals": SIGNALS, "whole_launch": WHOLE_LAUNCH}
    wanted = {name: cells(gpu_counts=2, **content)[0] for name, content in chosen.items()}
    for name, cell in wanted.items():
        task = cpu_task(cell)
        (directory / f"{name}.json").write_text(task.model_dump_json())
        (directory / f"{name}.py").write_text(scripts[name])
    arguments = [[name, f"{name}.json", *outputs[name]] for name in wanted]
    (directory / "scripts.json").write_text(json.dumps(arguments))
    (directory / "driver.py").write_text(DRIVER)
    forks.run(directory / "driver.py", ranks=2)
    return Ran(directory, wanted)


def test_two_ranks_train_what_one_process_trains_on_all_their_data(
    ran: Ran, monkeypatch: pytest.MonkeyPatch
) -> None:
    equal, broken = json.loads((ran.directory / "equal.json").read_text())
    assert equal is None
    assert broken == "layer.bias (1 of 4 parameters differ)"

    monkeypatch.syspath_prepend(str(ran.directory))
    import small_net  # type: ignore[import-not-found]

    torch.manual_seed(ran.cells["trained"].seed)
    model = small_net.build()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for step in range(4):
        samples = [
            model.make_batch(1, torch.Generator().manual_seed(step * 16 + number))
            for number in range(16)
        ]
        both = {name: torch.cat([sample[name] for sample in samples]) for name in ("x", "y")}
        model(**both).backward()
        optimizer.step()
        optimizer.zero_grad()
    trained = torch.load(ran.directory / "weights.pt")
    for name, parameter in model.state_dict().items():
        torch.testing.assert_close(trained[name], parameter, rtol=1e-5, atol=1e-6)


def test_a_lost_reduction_is_seen_even_where_fp16_skips_the_first_step(ran: Ran) -> None:
    """A loss this large overflows under the first scale: nothing is updated, and nothing can differ
    yet."""
    records = [
        RankRecord.model_validate_json((ran.directory / f"rank-{rank}.json").read_text())
        for rank in range(2)
    ]
    assert [record.parameters_equal for record in records] == [False, False]
    assert [record.parameters_changed for record in records] == [True, True]
    assert records[0].parameters_differing == records[1].parameters_differing


def test_exchange_is_marked_apart_and_windows_exchange_nothing(ran: Ran) -> None:
    found = json.loads((ran.directory / "signals.json").read_text())
    assert found["first"] >= 0
    for sync, buffers, seconds, rest in found["syncs"]:
        assert sync > 0
        assert buffers > 0  # batch norm's statistics are sent before the forward pass
        assert sync + buffers + rest == pytest.approx(seconds, rel=1e-9)
    assert len(found["watched"]) == 1
    assert found["watched"][0].split(".")[0] not in (
        "classifier",
        "head",
    )  # gradients come from the last layer first
    assert len(found["window"]) == 4
    assert 0 < sum(found["window"]) < found["wall"]
    assert sum(found["buckets"]) == found["link"]["payload_bytes"]
    assert found["link"]["as_bucketed_seconds"] > 0
    assert found["link"]["interface"] == "lo"
    assert found["link"]["rated_bytes_per_second"] is None
    assert found["steps_after"] == 1 + 6 + 1  # passes without exchange are no steps
