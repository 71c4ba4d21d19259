"""A dataset of shards: written once, used again, noticed when damaged or half-written."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.factories import cells
from torchscale.schema.cells.training import TrainingCell
from torchscale.worker.data import shard_layout, shard_writing
from torchscale.worker.data.shard_writing import Prepared
from torchscale.worker.data.shards import ShardSamples
from torchscale.worker.measure.page_cache import drop_from_cache, resident_share
from torchscale.worker.models import build_workload
from torchscale.worker.process_group import Ranks

ALONE = Ranks(rank=0, local_rank=0, world_size=1, device=torch.device("cpu"), backend=None)


def cell(model: object = "tiny-gpt2", **data: object) -> TrainingCell:
    settings = {"source": "shards", "total_mb": 1, "num_shards": 4, "workers": 0, **data}
    return cells(models=model, gpu_counts=1, data=settings)[0]


def opened(directory: Path, one: TrainingCell | None = None, ranks: Ranks = ALONE) -> Prepared:
    """Make the cell's dataset whole; what that took."""
    one = one or cell()
    assert one.loader is not None
    workload = build_workload(one)
    layout = shard_layout.plan_layout(workload, one, one.loader)
    return shard_writing.prepare(
        directory / layout.name,
        layout,
        workload,
        ranks,
        verify=one.loader.verify,
        on_progress=lambda: None,
    )


def files(directory: Path) -> list[Path]:
    return sorted(directory.glob("shards-*/shard-*.bin"))


def test_written_once_and_used_again(tmp_path: Path) -> None:
    assert opened(tmp_path) == Prepared(written=4, repaired=0, reused=0)
    before = {path: path.stat().st_mtime_ns for path in files(tmp_path)}
    assert sum(path.stat().st_size for path in before) == pytest.approx(1e6, rel=0.01)
    assert opened(tmp_path) == Prepared(written=0, repaired=0, reused=4)
    assert {path: path.stat().st_mtime_ns for path in files(tmp_path)} == before


def test_every_machine_of_a_launch_gets_all_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rank 1 of two is the only one of its machine, which has a disk of its own."""
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "1")
    second = replace(ALONE, rank=1, world_size=2)
    assert opened(tmp_path, ranks=second) == Prepared(written=4, repaired=0, reused=0)
    assert len(files(tmp_path)) == 4
    assert list(tmp_path.glob("shards-*/manifest.json"))


@pytest.mark.parametrize("other", [{"total_mb": 2}, {"num_shards": 2}])
def test_other_parameters_are_another_dataset(tmp_path: Path, other: dict[str, object]) -> None:
    opened(tmp_path)
    assert opened(tmp_path, cell(**other)).reused == 0
    assert len(list(tmp_path.glob("shards-*"))) == 2


def test_about_128_mb_a_file_unless_told(tmp_path: Path) -> None:
    one = cell(total_mb=1024, num_shards=None)
    assert one.loader is not None
    layout = shard_layout.plan_layout(build_workload(one), one, one.loader)
    assert layout.shards == 8
    assert layout.shard_bytes(0) == pytest.approx(128e6, rel=0.01)


@pytest.mark.parametrize("model", ["tiny-gpt2", {"name": "tiny-resnet", "image_size": 16}])
def test_samples_come_back_as_the_model_takes_them(tmp_path: Path, model: object) -> None:
    one = cell(model)
    opened(tmp_path, one)
    assert one.loader is not None
    workload = build_workload(one)
    layout = shard_layout.plan_layout(workload, one, one.loader)
    samples = ShardSamples(tmp_path / layout.name, layout)
    last = len(samples) - 1
    batch = shard_layout.restore(samples.__getitems__([0, last, last // 2]), layout)
    like = workload.make_batch(3, torch.Generator())
    assert {name: (tensor.shape, tensor.dtype) for name, tensor in batch.items()} == {
        name: (tensor.shape, tensor.dtype) for name, tensor in like.items()
    }
    assert all(
        tensor[0].numel() == 1 or not torch.equal(tensor[0], tensor[1]) for tensor in batch.values()
    )
    assert torch.isfinite(workload.loss_of(workload.module(**batch), batch))
    if "pixel_values" in batch:
        assert batch["pixel_values"].std() == pytest.approx(1.0, abs=0.1)


def test_each_sample_lies_in_one_file_and_is_found_there(tmp_path: Path) -> None:
    one = cell()
    opened(tmp_path, one)
    assert one.loader is not None
    layout = shard_layout.plan_layout(build_workload(one), one, one.loader)
    ranges = [layout.samples_of(shard) for shard in range(layout.shards)]
    assert [number for numbers in ranges for number in numbers] == list(range(layout.samples))
    samples = ShardSamples(tmp_path / layout.name, layout)
    for numbers, path in zip(ranges, files(tmp_path), strict=True):
        content = path.read_bytes()
        first, last = samples.__getitems__([numbers[0], numbers[-1]])["input_ids"]
        assert content[: first.numel() * 4] == first.numpy().tobytes()
        assert last.numpy().tobytes() in content[-layout.sample_bytes :]


def test_a_generation_that_was_interrupted_is_finished(tmp_path: Path) -> None:
    opened(tmp_path)
    wanted = [path.read_bytes() for path in files(tmp_path)]
    directory = files(tmp_path)[0].parent
    (directory / "manifest.json").unlink()
    files(tmp_path)[2].unlink()
    assert opened(tmp_path) == Prepared(written=1, repaired=0, reused=3)
    assert [path.read_bytes() for path in files(tmp_path)] == wanted
    assert (directory / "manifest.json").exists()


def test_a_generation_that_died_within_a_file_leaves_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def half(*arguments: object) -> object:
        yield b"x" * 100
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(shard_writing, "_chunks", half)
        with pytest.raises(KeyboardInterrupt):
            opened(tmp_path)
    assert not list(tmp_path.glob("shards-*/*"))
    assert opened(tmp_path).written == 4


@pytest.mark.parametrize("damage", ["flipped", "cut", "grown"])
def test_a_damaged_file_is_noticed_and_written_again(tmp_path: Path, damage: str) -> None:
    opened(tmp_path)
    path = files(tmp_path)[1]
    whole = path.read_bytes()
    changed = {
        "flipped": whole[:500] + bytes([whole[500] ^ 1]) + whole[501:],
        "cut": whole[:-1],
        "grown": whole + b"x",
    }
    path.write_bytes(changed[damage])
    assert opened(tmp_path) == Prepared(written=0, repaired=1, reused=3)
    assert path.read_bytes() == whole


def test_without_verify_sizes_are_looked_at_alone(tmp_path: Path) -> None:
    opened(tmp_path)
    path = files(tmp_path)[1]
    whole = path.read_bytes()
    path.write_bytes(b"\0" * len(whole))
    trusting = cell(verify=False)
    assert opened(tmp_path, trusting).reused == 4
    path.write_bytes(whole[:-1])
    assert opened(tmp_path, trusting).repaired == 1


@pytest.mark.parametrize("content", ["", "{", '{"layout": 1}', '{"checksums": []}'])
def test_a_manifest_that_cannot_be_read_is_made_again(tmp_path: Path, content: str) -> None:
    opened(tmp_path)
    manifest = files(tmp_path)[0].parent / "manifest.json"
    whole = manifest.read_text()
    manifest.write_text(content)
    assert opened(tmp_path).reused == 4
    assert manifest.read_text() == whole


def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(
        ValueError, match=r"cannot be written: Not a directory; choose another data.data_dir"
    ):
        opened(blocked)


def test_more_than_what_is_free_is_refused_before_it_is_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"are free; free space or choose another data.data_dir"):
        opened(tmp_path, cell(total_mb=10**9, num_shards=1))
    assert not files(tmp_path)


def test_each_rank_writes_its_part(tmp_path: Path) -> None:
    """Two ranks, of which this is the second: it writes the second and fourth file and no
    manifest."""
    second = replace(ALONE, rank=1, local_rank=1, world_size=2)
    with pytest.raises(KeyError):  # nobody else is there to say what the others wrote
        opened(tmp_path, ranks=second)
    assert [path.name for path in files(tmp_path)] == ["shard-00001.bin", "shard-00003.bin"]
    assert not list(tmp_path.glob("shards-*/manifest.json"))


@pytest.mark.skipif(
    not hasattr(os, "posix_fadvise"), reason="this system cannot be asked to forget pages"
)
def test_what_lies_in_memory_is_counted_and_can_be_dropped(tmp_path: Path) -> None:
    path = tmp_path / "shard-00000.bin"
    path.write_bytes(os.urandom(1 << 20))
    path.read_bytes()
    assert resident_share([path]) == 1.0
    drop_from_cache([path])
    dropped = resident_share([path])
    assert dropped is not None
    mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
    place = str(path.resolve())
    kind = max(
        (mount for mount in mounts if place.startswith(mount[0])), key=lambda mount: len(mount[0])
    )[1]
    assert dropped == 1.0 if kind in ("tmpfs", "ramfs") else dropped < 0.5
