"""Files that a process saves and loads, as its collector notes them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.worker.forks import Forks
from tests.worker.watch.watched_forks import run_watched
from torchscale.features.watch.job.program_processes import watching_environment
from torchscale.schema.watch.attempt import RankCheckpoints

HEAD = """
import io, os, threading
import torch
import torch.distributed.checkpoint as dcp
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def train(steps):
    for _ in range(steps):
        model(torch.ones(4)).sum().backward()
        optimizer.step()
def state():
    return {"model": model.state_dict()}
"""


def _run(forks: Forks, directory: Path, body: str) -> RankCheckpoints:
    return _noted(run_watched(forks, directory, HEAD + body))


def _noted(folder: Path) -> RankCheckpoints:
    path = folder / "checkpoints.json"
    if not path.exists():
        return RankCheckpoints()
    return RankCheckpoints.model_validate_json(path.read_bytes())


def test_saves_have_their_step_and_the_last_one_of_a_path_stays(
    forks: Forks, tmp_path: Path
) -> None:
    body = """
train(3); torch.save(state(), "last.pt")
train(4); torch.save(state(), "part"); os.replace("part", "best.pt")
train(2); torch.save(state(), "last.pt")
with open("open.pt", "wb") as file: torch.save(state(), file)
buffer = io.BytesIO(); torch.save(state(), buffer)
try: torch.save(state(), "no/such/folder.pt")
except Exception: pass
"""
    saves = _run(forks, tmp_path, body).saves

    known = [(Path(save.path).name, save.steps) for save in saves]
    assert known == [("part", 7), ("last.pt", 9), ("open.pt", 9), ("", 9)]
    best = (tmp_path / "best.pt").stat()
    assert (saves[0].inode, saves[0].modified_ns) == (best.st_ino, best.st_mtime_ns)
    assert saves[-1].size == (tmp_path / "open.pt").stat().st_size


def test_loads_count_before_the_first_step_alone(forks: Forks, tmp_path: Path) -> None:
    body = """
torch.save(state(), "data.pt")
torch.load("data.pt")
with open("data.pt", "rb") as file: torch.load(file)
torch.load(io.BytesIO(open("data.pt", "rb").read()))
open("broken.pt", "wb").write(b"x")
try: torch.load("broken.pt")
except Exception: pass
train(1)
torch.load("data.pt")
"""
    loads = _run(forks, tmp_path, body).loads

    assert [Path(load.path).name for load in loads] == ["data.pt", "data.pt", ""]
    assert loads[2].size == (tmp_path / "data.pt").stat().st_size


def test_distributed_checkpoints_are_one_call_each(forks: Forks, tmp_path: Path) -> None:
    body = """
train(2); dcp.save(state(), checkpoint_id="step-2")
train(3); dcp.save(state(), storage_writer=dcp.FileSystemWriter("step-5"))
"""
    noted = _run(forks, tmp_path, body)

    assert [(Path(save.path).name, save.steps) for save in noted.saves] == [
        ("step-2", 2),
        ("step-5", 5),
    ]
    assert noted.saves[0].inode == (tmp_path / "step-2" / ".metadata").stat().st_ino


def test_a_distributed_checkpoint_is_loaded_by_its_folder(forks: Forks, tmp_path: Path) -> None:
    body = """
dcp.save(state(), checkpoint_id="step")
os.replace("step", "kept")
dcp.load(state(), checkpoint_id="kept")
train(1)
"""
    noted = _run(forks, tmp_path, body)
    (save,), (load,) = noted.saves, noted.loads

    assert (Path(save.path).name, Path(load.path).name) == ("step", "kept")
    assert (save.inode, save.modified_ns) == (load.inode, load.modified_ns)


def test_a_checkpoint_in_the_background_counts_once_it_is_complete(
    forks: Forks, tmp_path: Path
) -> None:
    body = """
import torch.distributed as dist
dist.init_process_group("gloo")
train(2)
future = dcp.async_save(state(), checkpoint_id="step-2")
train(5)
torch.save(state(), "beside.pt")
getattr(future, "upload_completion", future).result()
dist.destroy_process_group()
"""
    saves = {Path(save.path).name: save for save in _run(forks, tmp_path, body).saves}

    assert set(saves) == {"step-2", "beside.pt"}
    assert (saves["step-2"].steps, saves["beside.pt"].steps) == (2, 7)
    assert saves["step-2"].inode == (tmp_path / "step-2" / ".metadata").stat().st_ino


def test_functions_can_be_pickled_as_ever(forks: Forks, tmp_path: Path) -> None:
    body = """
import functools, pickle
import torch.distributed.checkpoint.state_dict_saver as saver
for function in (torch.load, torch.save, dcp.save, dcp.load, dcp.async_save):
    assert pickle.loads(pickle.dumps(functools.partial(function))).func is function
assert saver.save is dcp.save
"""
    _run(forks, tmp_path, body)


@pytest.mark.parametrize("first", ["import torch", "import safetensors.torch"])
def test_safetensors_files_are_seen(tmp_path: Path, first: str) -> None:
    """Whatever is imported first. In a process of its own: the one that forks may have imported
    both."""
    pytest.importorskip("safetensors")
    body = """
from safetensors.torch import load_file, save_file
save_file(model.state_dict(), "model.safetensors")
load_file("model.safetensors")
train(1)
"""
    (tmp_path / "job").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", f"{first}\n{HEAD}{body}"],
        cwd=tmp_path,
        env=watching_environment(tmp_path / "job", os.environ),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    noted = _noted(tmp_path / "job" / "ranks" / "0.0")

    assert [Path(save.path).name for save in noted.saves] == ["model.safetensors"]
    assert [Path(load.path).name for load in noted.loads] == ["model.safetensors"]
    assert noted.saves[0].inode == noted.loads[0].inode


def test_a_save_in_a_thread_is_no_time_of_the_step(forks: Forks, tmp_path: Path) -> None:
    from torchscale.analysis.exchanges.events import MomentKind
    from torchscale.features.watch.job.stream import Names, RankStream

    body = """
train(2)
thread = threading.Thread(target=torch.save, args=(state(), "last.pt"))
thread.start(); thread.join()
"""
    (save,) = _run(forks, tmp_path, body).saves

    assert save.steps == 2
    moments = RankStream(tmp_path / "job" / "ranks" / "0.0", Names()).read().moments
    assert MomentKind.SAVE not in moments.kind


def test_many_loads_keep_the_first_and_the_last(forks: Forks, tmp_path: Path) -> None:
    body = """
for number in range(520):
    torch.save(number, f"{number}.pt"); torch.load(f"{number}.pt")
train(1)
"""
    noted = _run(forks, tmp_path, body)
    names = [Path(load.path).stem for load in noted.loads]

    assert names == [*map(str, range(250)), *map(str, range(270, 520))]
    assert len(noted.saves) == 500


def test_a_module_that_saves_in_ways_of_its_own_is_noted(forks: Forks, tmp_path: Path) -> None:
    (tmp_path / "tensorizer.py").write_text("")

    assert _run(forks, tmp_path, "import tensorizer; train(1)").unseen == ("tensorizer",)


MODULE = """
import sys
from types import ModuleType
def put(name, **content):
    module = ModuleType(name)
    vars(module).update(content)
    sys.modules[name] = module
    for function in content.values():
        function.__module__ = name
    sys.modules["torchscale_collector.imports"].settle()
    return module
"""


@pytest.mark.parametrize("package", ["lightning.fabric", "lightning_fabric"])
def test_lightning_s_file_is_seen_where_torch_saves_into_memory(
    forks: Forks, tmp_path: Path, package: str
) -> None:
    body = f"""
def _atomic_save(checkpoint, filepath):
    memory = io.BytesIO(); torch.save(checkpoint, memory)
    open(filepath, "wb").write(memory.getvalue())
def _load(path_or_url): return torch.load(io.BytesIO(open(path_or_url, "rb").read()))
io_ = put("{package}.utilities.cloud_io", _atomic_save=_atomic_save, _load=_load)
io_._atomic_save(state(), "epoch=0.ckpt")
io_._load("epoch=0.ckpt")
train(1)
"""
    noted = _run(forks, tmp_path, MODULE + body)
    (save,), (load,) = noted.saves, noted.loads

    assert Path(save.path).name == Path(load.path).name == "epoch=0.ckpt"
    assert save.inode == load.inode == (tmp_path / "epoch=0.ckpt").stat().st_ino


def test_megatron_s_checkpoints_are_folders(forks: Forks, tmp_path: Path) -> None:
    """One that is written in the background is complete once its last function was called."""
    body = """
from typing import NamedTuple
class AsyncRequest(NamedTuple):
    finalize_fns: list
def save(state, checkpoint_dir, async_sharded_save=False):
    os.makedirs(checkpoint_dir); torch.save(0, f"{checkpoint_dir}/common.pt")
    finish = open(f"{checkpoint_dir}/.metadata", "w").close
    if not async_sharded_save: return finish()
    return AsyncRequest([finish])
def load_common_state_dict(checkpoint_dir): return torch.load(f"{checkpoint_dir}/common.pt")
def load(state, checkpoint_dir): return load_common_state_dict(checkpoint_dir)
megatron = put(
    "megatron.core.dist_checkpointing.serialization",
    save=save, load=load, load_common_state_dict=load_common_state_dict,
)
megatron.save({}, "iter_0")
megatron.load_common_state_dict("iter_0")
megatron.load({}, checkpoint_dir="iter_0")
train(2); assert megatron.save({}, "iter_2") is None
train(2); begun = megatron.save({}, checkpoint_dir="iter_4", async_sharded_save=True)
train(2); never = megatron.save({}, "iter_6", async_sharded_save=True)
train(2)
for function in begun.finalize_fns: function()
"""
    noted = _run(forks, tmp_path, MODULE + body)

    known = [(Path(save.path).name, save.steps) for save in noted.saves]
    assert known == [("iter_0", 0), ("iter_2", 2), ("iter_4", 4)]
    assert noted.saves[2].inode == (tmp_path / "iter_4" / ".metadata").stat().st_ino
    assert [Path(load.path).name for load in noted.loads] == ["iter_0", "iter_0"]
    assert noted.unseen == ()


def test_checkpoints_of_torch_checkpointing_are_seen(forks: Forks, tmp_path: Path) -> None:
    body = """
from concurrent.futures import Future
class CheckpointManager:
    def save(self, checkpoint_id, checkpoint):
        self.future = Future() if checkpoint else None
        return self.future
    def load(self, checkpoint_id, into=None): return {}
put("torch_checkpointing.checkpoint_manager", CheckpointManager=CheckpointManager)
manager = CheckpointManager()
manager.load("before")
train(1); manager.save("at-once", {})
train(1); manager.save("later", {"model": model}); manager.future.set_result(None)
train(1); manager.save("failed", {"model": model}); manager.future.set_exception(OSError())
train(1); manager.save("never", {"model": model})
"""
    noted = _run(forks, tmp_path, MODULE + body)

    known = [(Path(save.path).name, save.steps) for save in noted.saves]
    assert known == [("at-once", 1), ("later", 2)]
    assert [Path(load.path).name for load in noted.loads] == ["before"]


def test_a_process_that_a_rank_starts_for_itself_is_no_attempt(
    forks: Forks, tmp_path: Path
) -> None:
    body = """
import subprocess, sys
train(1)
code = '''
import torch
optimizer = torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=0.1)
optimizer.step()
'''
subprocess.run([sys.executable, "-c", code], check=True)
"""
    _run(forks, tmp_path, body)

    assert [path.name for path in (tmp_path / "job" / "ranks").iterdir()] == ["0.0"]
