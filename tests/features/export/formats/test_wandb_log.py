"""Files of runs of W&B's, whole and cut."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from torchscale.features.export.formats.wandb_log import has_ended, read_records

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

_BLOCK = 32_768
_HEADER = b":W&B" + bytes(3)


def log(records: list[bytes]) -> bytes:
    """The records as W&B writes them, cut into parts where blocks end."""
    data = _HEADER
    for record in records:
        rest, is_first = record, True
        while is_first or rest:
            left = _BLOCK - len(data) % _BLOCK
            if left < 7:
                data += bytes(left)
                left = _BLOCK
            part, rest = rest[: left - 7], rest[left - 7 :]
            kind = {(True, True): 1, (True, False): 2, (False, False): 3, (False, True): 4}
            data += struct.pack("<IHB", 0, len(part), kind[is_first, not rest]) + part
            is_first = False
    return data


def ended() -> list[bytes]:
    """Records of a run, the last of which ends it; one is larger than two blocks."""
    from wandb.proto.wandb_internal_pb2 import Record

    run, config, end = Record(), Record(), Record()
    run.run.display_name = "a run"
    config.config.update.add(key="long", value_json='"' + "x" * 70_000 + '"')
    end.exit.exit_code = 0
    return [record.SerializeToString() for record in (run, config, end)]


def test_records_are_read_whole_over_blocks(tmp_path: Path) -> None:
    for size in (0, 1, _BLOCK - 15, _BLOCK - 14, _BLOCK - 13, _BLOCK, 3 * _BLOCK):
        records = [b"a" * size, b"b", b"c" * size]
        (tmp_path / "log").write_bytes(log(records))
        assert read_records(tmp_path / "log") == records, size


def test_a_run_that_is_cut_anywhere_has_not_ended(tmp_path: Path) -> None:
    path, whole = tmp_path / "log", log(ended())
    path.write_bytes(whole)
    assert has_ended(path)
    for size in [
        *range(0, 200),
        *range(200, len(whole) - 200, 997),
        *range(len(whole) - 200, len(whole)),
    ]:
        path.write_bytes(whole[:size])
        assert not has_ended(path), size


def test_a_file_that_is_not_there_yet_has_not_ended(tmp_path: Path) -> None:
    assert not has_ended(tmp_path / "log")


@pytest.mark.parametrize("tail", [bytes(4096), b"\xff" * 4096])
def test_what_is_no_record_ends_the_reading(tmp_path: Path, tail: bytes) -> None:
    (tmp_path / "log").write_bytes(log([b"a"]) + tail)
    assert read_records(tmp_path / "log") == [b"a"]
