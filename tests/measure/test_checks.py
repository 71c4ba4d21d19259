"""What is found before a sweep: models that cannot be built or split, data that is not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.factories import cells, experiment, machine, trained
from torchscale.launch.model_check import check_models
from torchscale.measure.checks import checked, model_problem
from torchscale.observer import SILENT
from torchscale.plan.expand import make_plan
from torchscale.schema.cells.training import model_key
from torchscale.schema.launch.model_check import ModelCheck

NET = """
import os
from torch import nn

class Net(nn.Module):
    def make_batch(self, batch_size, generator):
        return {}
    def forward(self):
        return 0.0

print("a line of the user's own")
os.write(1, b'{"problem": "a line like ours"}\\n')

def build(**options):
    return Net()

def heads():
    return nn.MultiheadAttention(10, 3)

def no_module():
    return 3

def tells_arguments():
    import sys
    raise ValueError(sys.argv)

def needs_ranks():
    import torch.distributed
    torch.distributed.get_rank()
    return Net()
"""


@pytest.mark.parametrize(
    ("strategy", "check", "told"),
    [
        ("ddp", ModelCheck(), None),
        ("ddp", ModelCheck(built=True), None),
        ("pipeline", ModelCheck(), None),
        ("ddp", ModelCheck(problem="ImportError: no"), "net:build: ImportError: no"),
        (
            "pipeline",
            ModelCheck(built=True),
            "net:build cannot be cut into pipeline stages: it has no pipeline_split()",
        ),
        (
            "pipeline",
            ModelCheck(built=True, layers=1),
            "1 layers are too few for 2 pipeline stages",
        ),
        ("pipeline", ModelCheck(built=True, layers=2), None),
        (
            "tensor",
            ModelCheck(built=True),
            "net:build cannot be split by tensor parallelism: it has no tensor_split()",
        ),
        (
            "tensor",
            ModelCheck(built=True, heads=3),
            "3 attention heads do not divide over 2 tensor-parallel devices",
        ),
        ("tensor", ModelCheck(built=True, heads=4), None),
        ("ep", ModelCheck(built=True, heads=4), "has no experts that can be spread over devices"),
        ("ep", ModelCheck(built=True, experts=8), None),
        ("cp", ModelCheck(built=True, heads=4), "it has no context_split()"),
        (
            "cp",
            ModelCheck(built=True, sequence_length=18),
            "sequences of 18 tokens do not divide into 4 chunks",
        ),
        ("cp", ModelCheck(built=True, sequence_length=16), None),
        ("sequence", ModelCheck(built=True, heads=4), "cannot be split along the sequence"),
        ("sequence", ModelCheck(built=True, heads=4, takes_sequence=True), None),
    ],
)
def test_a_model_is_judged_by_what_its_check_found(
    strategy: str, check: ModelCheck, told: str | None
) -> None:
    (cell,) = cells(
        models="net:build", gpu_counts=[2], batch_sizes=[8], parallel={"strategy": strategy}
    )
    problem = model_problem(cell, check)
    assert problem == told if told is None else told in (problem or "")


@pytest.mark.slow
def test_models_are_imported_and_built_before_the_sweep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_net.py").write_text(NET)
    names = [
        f"own_net:{name}"
        for name in ("build", "nothing", "heads", "no_module", "tells_arguments", "needs_ranks")
    ]
    models = cells(models=["nowhere:build", *names], gpu_counts=[1])
    found = check_models(models, timeout_seconds=120, env={})
    checks = {cell.model: found[model_key(cell)] for cell in models}
    assert checks["nowhere:build"].problem == "ModuleNotFoundError: No module named 'nowhere'"
    assert checks["own_net:nothing"].problem == "ImportError: own_net has no 'nothing'"
    assert checks["own_net:build"] == ModelCheck(built=True)
    assert "embed_dim must be divisible by num_heads" in checks["own_net:heads"].problem
    assert "must return a torch.nn.Module, not int" in checks["own_net:no_module"].problem
    assert (
        checks["own_net:tells_arguments"].problem
        == "cannot be built: ValueError: ['torchscale-model']"
    )
    assert checks["own_net:needs_ranks"] == ModelCheck(), "only a launch can tell"


def test_data_that_is_not_there_is_told(tmp_path: Path) -> None:
    data = {"source": "cifar100", "data_dir": str(tmp_path)}
    config = experiment(models="resnet18", gpu_counts=[1], data=data)

    def reason() -> str | None:
        (entry,) = checked(make_plan(config, machine()), config, SILENT).cells
        return entry.skip_reason

    assert reason() == (
        f"no CIFAR-100 in {tmp_path}: add --data.download=true, or unpack cifar-100-binary.tar.gz "
        "there"
    )
    (tmp_path / "train.bin").touch()
    assert reason() is None
    config = experiment(
        models="resnet18", gpu_counts=[1], data={**data, "data_dir": "none", "download": True}
    )
    assert reason() is None


def test_a_file_of_lengths_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    file = tmp_path / "lengths.txt"
    config = experiment(
        models="tiny-decoder", gpu_counts=[1], data={"lengths": {"file": str(file)}}
    )

    def reason() -> str | None:
        (entry,) = checked(make_plan(config, machine()), config, SILENT).cells
        return entry.skip_reason

    assert reason() == f"data.lengths.file: {file}: No such file or directory"
    file.write_text("12\nmany\n")
    assert (reason() or "").startswith(f"data.lengths.file: {file}: line 2: 'many' is not a length")
    file.write_text("12\n40 3\n")
    assert reason() is None


def test_known_models_start_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "torchscale.measure.checks.check_models",
        lambda *_, **__: pytest.fail("no model of the user's"),
    )
    config = experiment(gpu_counts=[1])
    plan = make_plan(config, machine())
    assert checked(plan, config, SILENT) == plan
    assert trained(plan.cells[0]).model == "tiny-resnet"


def test_a_disk_that_cannot_be_measured_costs_no_other_figure(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing")
    config = experiment(measure=["hardware"], gpu_counts=[1], hardware={"disk_path": missing})
    (entry,) = checked(make_plan(config, machine()), config, SILENT).cells
    assert entry.skip_reason == f"hardware.disk_path: {missing}: not a directory"
    config = experiment(measure=["hardware"], gpu_counts=[1], hardware={"disk_path": str(tmp_path)})
    assert checked(make_plan(config, machine()), config, SILENT).to_run
