"""A copy of a run folder at an address: complete, in order, and only of what has changed."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest

from tests.fake_launches import Recorder
from tests.object_stores import Files, use
from torchscale.errors import FileSystemError, StoreError, UsageError
from torchscale.store.storage import copy, transfers
from torchscale.store.storage.copy import Copied, copy_folder
from torchscale.util.addresses import Address

PLACE = Address("s3://bucket/runs", "s3")
CELL = "cells/resnet18-b8-n1"


def experiment(created_at: str = "2026-01-01T00:00:00+00:00") -> str:
    return json.dumps({"created_at": created_at, "environment": {"hostname": "n1"}})


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run folder with one launch."""
    folder = tmp_path / "demo"
    content = {
        "experiment.json": experiment(),
        "summary.csv": "a,b",
        ".lock": "",
        ".summary.csv.ab.tmp": "half",
        "quarantine/old/record.json": "{}",
        f"{CELL}/cell.json": "{}",
        f"{CELL}/launch-0/record.json": "{}",
        f"{CELL}/launch-0/rank-0.json": "rank",
        f"{CELL}/launch-0/torchrun.log": "",
    }
    for name, text in content.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch) -> Files:
    files = Files({})
    use(monkeypatch, files)
    return files


def copied(run: Path) -> Copied | None:
    return copy_folder(run, PLACE, Recorder())


def keys(files: Files) -> set[str]:
    return {key.removeprefix("bucket/runs/demo/") for key in files.content}


def test_all_that_counts_is_copied_and_nothing_else(run: Path, there: Files) -> None:
    assert copied(run) == Copied("s3://bucket/runs/demo", 6, 89)
    assert keys(there) == {
        *("experiment.json", "summary.csv", f"{CELL}/cell.json"),
        *(f"{CELL}/launch-0/{name}" for name in ("record.json", "rank-0.json", "torchrun.log")),
    }
    assert there.content[f"bucket/runs/demo/{CELL}/launch-0/rank-0.json"] == b"rank"


def test_a_record_comes_after_what_it_tells_of(run: Path, there: Files) -> None:
    copied(run)
    order = [key.removeprefix("bucket/runs/demo/") for key in there.order]
    assert set(order[:2]) == {f"{CELL}/launch-0/rank-0.json", f"{CELL}/launch-0/torchrun.log"}
    assert order[2:4] == [f"{CELL}/cell.json", f"{CELL}/launch-0/record.json"]
    assert set(order[4:]) == {"experiment.json", "summary.csv"}


def test_only_what_changed_is_copied_again(run: Path, there: Files) -> None:
    copied(run)
    assert copied(run) == Copied("s3://bucket/runs/demo", 0, 0)
    there.order.clear()
    (run / "summary.csv").write_text("c,d")
    os.utime(run / "summary.csv", ns=(1, 1))  # of the same size
    del there.content[f"bucket/runs/demo/{CELL}/cell.json"]  # somebody removed it there
    copied(run)
    assert set(there.order) == {
        f"bucket/runs/demo/{CELL}/cell.json",
        "bucket/runs/demo/summary.csv",
    }
    assert there.content["bucket/runs/demo/summary.csv"] == b"c,d"


def test_another_address_is_another_copy(run: Path, there: Files) -> None:
    copied(run)
    other = copy_folder(run, Address("s3://bucket/other", "s3"), Recorder())
    assert other is not None
    assert other.files == 6


@pytest.mark.parametrize("state", ["", "[]", "{}", '{"s3://bucket/runs/demo": 3}', "{"])
def test_a_lost_or_damaged_state_costs_one_copy_and_no_more(
    run: Path, there: Files, state: str
) -> None:
    copied(run)
    (run / ".copied.json").write_text(state)
    assert copied(run) == Copied("s3://bucket/runs/demo", 6, 89)
    assert copied(run) == Copied("s3://bucket/runs/demo", 0, 0)


def test_a_copy_that_failed_goes_on_where_it_was(run: Path, there: Files) -> None:
    def fail(key: str) -> None:
        if key.endswith("record.json"):
            raise OSError(5, "the network is gone")

    there.on["write"] = fail
    with pytest.raises(FileSystemError, match="the network is gone"):
        copied(run)
    assert f"{CELL}/launch-0/record.json" not in keys(there), "half an object is none"
    assert "experiment.json" not in keys(there)
    there.on.clear()
    again = copied(run)
    assert again is not None
    assert again.files == 3
    assert len(keys(there)) == 6


def test_a_launch_that_was_measured_again_leaves_nothing_of_the_earlier(
    run: Path, there: Files
) -> None:
    (run / CELL / "launch-0/error.json").write_text("{}")
    (run / CELL / "launch-1").mkdir()
    (run / CELL / "launch-1/record.json").write_text("{}")
    copied(run)
    (run / CELL / "launch-0/error.json").unlink()
    (run / CELL / "launch-0/record.json").write_text('{"ok": 1}')
    (run / CELL / "launch-1/record.json").unlink()
    (run / CELL / "launch-1").rmdir()
    there.order.clear()
    copied(run)
    launch = f"bucket/runs/demo/{CELL}/launch-0"
    assert there.order[:2] == [f"rm {launch}/record.json", f"rm {launch}/error.json"]
    assert there.content[f"{launch}/record.json"] == b'{"ok": 1}'
    assert f"{CELL}/launch-0/error.json" not in keys(there)
    assert f"{CELL}/launch-1/record.json" in keys(there), "a launch that is gone here stays there"


@pytest.mark.parametrize("theirs", [experiment("2025-01-01T00:00:00+00:00"), "damaged", "[]"])
def test_another_run_of_the_same_name_is_not_written_over(
    run: Path, there: Files, theirs: str
) -> None:
    there.content["bucket/runs/demo/experiment.json"] = theirs.encode()
    with pytest.raises(StoreError, match="s3://bucket/runs/demo holds another run") as caught:
        copied(run)
    assert "torchscale export --to storage" in str(caught.value.hint)
    assert keys(there) == {"experiment.json"}


def test_the_same_run_may_be_copied_from_elsewhere(run: Path, there: Files) -> None:
    copied(run)
    (run / ".copied.json").unlink()
    assert copied(run) is not None


def test_no_link_is_followed(run: Path, there: Files, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (run / "link").symlink_to(tmp_path / "secret")
    (run / "folder").symlink_to(tmp_path, target_is_directory=True)
    copied(run)
    assert len(keys(there)) == 6


def test_a_cancelled_copy_is_none(run: Path, there: Files) -> None:
    assert copy_folder(run, PLACE, Recorder(), lambda: True) is None
    assert copied(run) is not None
    assert len(keys(there)) == 6


def test_a_copy_that_stands_still_is_given_up(
    run: Path, there: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copy, "_PART_SECONDS", 0.05)
    monkeypatch.setattr(transfers, "_LOOK_SECONDS", 0.01)
    monkeypatch.setattr(transfers, "_LEAVE_SECONDS", 0.01)
    silence = threading.Event()
    there.on["write"] = lambda key: silence.wait()
    try:
        with pytest.raises(FileSystemError, match=r"no answer within 0\.05 s"):
            copied(run)
    finally:
        silence.set()


def test_a_bucket_that_is_not_there_is_named(run: Path, there: Files) -> None:
    def fail(key: str) -> None:
        raise FileNotFoundError("The specified bucket does not exist")

    there.on["find"] = there.on["open"] = fail
    with pytest.raises(UsageError, match="there is no bucket s3://bucket"):
        copied(run)
