"""The form of a dump: what is unknown, and how much one may hold."""

from __future__ import annotations

import gc
from collections import Counter
from typing import Any

import msgspec
import pytest

from torchscale.errors import TraceError
from torchscale.features.watch.hang.recorder_dump.form import (
    RecorderDump,
    check_size,
    decode_dump,
)

SHAPE = [1] * 999_999


def decode(unread: Counter[str] | None = None, **fields: Any) -> RecorderDump:
    counts: Counter[str] = Counter() if unread is None else unread
    return decode_dump({"version": "2.10", **fields}, counts)


def test_what_a_dump_leaves_out_is_unknown() -> None:
    found = decode(entries=[{"frames": [{}]}], pg_config={"0": {}})
    assert msgspec.to_builtins(found) == {
        "version": "2.10",
        "entries": [
            {
                "record_id": 0,
                "process_group": ("", ""),
                "pg_id": 0,
                "collective_seq_id": 0,
                "p2p_seq_id": 0,
                "profiling_name": "",
                "time_created_ns": 0,
                "input_sizes": [],
                "input_dtypes": [],
                "output_sizes": [],
                "output_dtypes": [],
                "state": None,
                "retired": False,
                "is_p2p": False,
                "frames": [{"name": "", "filename": "", "line": 0}],
            }
        ],
        "pg_config": {"0": {"name": "", "desc": "", "ranks": ""}},
    }


def test_the_garbage_collector_does_not_look_at_what_large_dumps_hold() -> None:
    found = decode(entries=[{"frames": [{}]}], pg_config={"0": {"ranks": [0]}})
    (entry,) = found.entries
    for one in (found, entry, entry.frames[0], found.pg_config["0"]):
        assert not gc.is_tracked(one)


def test_numbers_may_be_written_as_texts() -> None:
    unread: Counter[str] = Counter()
    (entry,) = decode(unread, entries=[{"collective_seq_id": "4"}]).entries
    assert (entry.collective_seq_id, unread) == (4, Counter())


@pytest.mark.parametrize(
    "name",
    [
        "process_group",
        "pg_id",
        "collective_seq_id",
        "p2p_seq_id",
        "profiling_name",
        "is_p2p",
        "time_created_ns",
    ],
)
def test_what_entries_are_matched_by_has_to_be_right(name: str) -> None:
    with pytest.raises(ValueError, match=rf"^entries\[1\]\.{name}"):
        decode(entries=[{}, {name: {}}])


def test_what_is_no_entry_is_refused_with_its_place() -> None:
    with pytest.raises(ValueError, match=r"^entries\[1\] is no object$"):
        decode(entries=[{}, 5])
    with pytest.raises(msgspec.ValidationError, match="entries"):
        decode(entries={})
    with pytest.raises(msgspec.ValidationError, match="pg_config"):
        decode(pg_config=5)


def test_fields_of_another_type_are_counted() -> None:
    unread: Counter[str] = Counter()
    groups = {0: {"desc": "world", "ranks": {}}, "1": 5, "2": []}
    found = decode(unread, entries=[{"record_id": 7, "frames": 5}], pg_config=groups)
    assert (found.version, found.entries[0].record_id, found.entries[0].frames) == ("2.10", 7, [])
    assert {name: group.desc for name, group in found.pg_config.items()} == {"0": "world"}
    assert unread == {"frames": 1, "pg_config.ranks": 1, "pg_config": 2}


@pytest.mark.parametrize(("groups", "count"), [(None, 0), (5, 1)])
def test_groups_of_another_type_are_none(groups: object, count: int) -> None:
    unread: Counter[str] = Counter()
    found = decode(unread, entries=[{}], pg_config=groups)
    assert (found.pg_config, unread["pg_config"]) == ({}, count)


def test_a_long_version_is_cut() -> None:
    content = {"version": "2" * 81, "entries": [{"frames": 5}]}
    assert decode_dump(content, Counter()).version == "2" * 80


@pytest.mark.parametrize("content", [{}, {"entries": None}, {"entries": 5}, {"entries": [5, {}]}])
def test_what_holds_little_is_small_enough(content: dict[str, Any]) -> None:
    check_size(content)


def test_a_hundred_thousand_collectives_are_the_most() -> None:
    check_size({"entries": [None] * 100_000})
    with pytest.raises(TraceError, match=r"^100,001 collectives"):
        check_size({"entries": [None] * 100_001})


@pytest.mark.parametrize("key", ["input_sizes", "output_sizes"])
def test_four_million_numbers_of_shapes_are_the_most(key: str) -> None:
    """An entry, a shape and a number of it count as one each."""
    most = [SHAPE, SHAPE, SHAPE, SHAPE[:-1]]
    check_size({"entries": [{key: most}]})
    with pytest.raises(TraceError, match="more shapes"):
        check_size({"entries": [{key: [*most, 5]}]})


@pytest.mark.parametrize("key", ["frames", "input_dtypes", "output_dtypes"])
def test_four_million_values_of_any_kind_are_the_most(key: str) -> None:
    entries: list[Any] = [{key: SHAPE}] * 4
    check_size({"entries": entries})
    with pytest.raises(TraceError, match="more values"):
        check_size({"entries": [*entries, {}]})
