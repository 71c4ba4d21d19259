"""Which ranks are chosen of a recording."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.features.trace.readers.builders import kernel, kineto, step
from torchscale.errors import TraceError, UsageError
from torchscale.features.trace.readers.recordings import ReadOptions, read_recordings
from torchscale.features.trace.readers.selection import (
    RankRanges,
    Stratum,
    choose_ranks,
    described_ranks,
    groups_and_nodes,
    sample_ranks,
)


def test_ranks_are_ranges_and_numbers() -> None:
    ranks = RankRanges.parse("0-7, 512")
    assert [rank in ranks for rank in (0, 7, 8, 511, 512)] == [True, True, False, False, True]
    assert str(ranks) == "0-7,512"


@pytest.mark.parametrize("text", ["", "7-3", "a", "1,,2", "-1", "1-2-3", "9" * 12])
def test_what_names_no_ranks_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="neither a rank nor a range"):
        RankRanges.parse(text)


def mesh(data: int, tensor: int) -> list[Stratum]:
    """Groups along both dimensions."""
    rows = [frozenset(range(first, first + tensor)) for first in range(0, data * tensor, tensor)]
    columns = [frozenset(range(first, data * tensor, tensor)) for first in range(tensor)]
    return groups_and_nodes(rows + columns, ())


def test_every_group_keeps_members_where_the_sample_has_room() -> None:
    sets = mesh(8, 4)
    chosen = sample_ranks(range(32), sets, 16)
    assert len(set(chosen)) == 16
    assert all(len(members.intersection(chosen)) >= 2 for members, _ in sets)
    assert chosen == sample_ranks(range(32), sets, 16)


def test_every_node_keeps_a_member() -> None:
    nodes = groups_and_nodes((), [frozenset(range(first, first + 8)) for first in range(0, 64, 8)])
    chosen = sample_ranks(range(64), nodes, 8)
    assert [rank // 8 for rank in chosen] == list(range(8))


def test_without_groups_a_sample_is_spread_evenly() -> None:
    assert sample_ranks(range(9), [], 3) == [0, 4, 8]


def test_a_choice_says_what_it_rests_on() -> None:
    choice = choose_ranks(range(32), mesh(8, 4), RankRanges.parse("0-15"), 4)
    assert choice.absent == 28
    assert len(choice.ranks) == 4
    assert max(choice.ranks) <= 15
    assert choice.note.startswith("16 of 32 recorded ranks were chosen by --ranks 0-15; a sample")
    with pytest.raises(TraceError, match="none of the 32 recorded ranks is among --ranks 99"):
        choose_ranks(range(32), [], RankRanges.parse("99"), None)


def recording(directory: Path, rank: int, **header: object) -> Path:
    """A trace of one rank, whose header stands before its events."""
    text = json.loads(kineto([kernel("gemm", 5.0 * rank + 1, 2.0)], rank, 8))
    events = text.pop("traceEvents")
    path = directory / f"trace{rank}.json"
    path.write_text(json.dumps({**text, **header, "traceEvents": events}))
    return path


def test_groups_and_hosts_are_read_from_the_beginning(tmp_path: Path) -> None:
    info = {"rank": 3, "world_size": 8, "pg_config": [{"pg_name": "0", "ranks": [1, 3]}]}
    paths = [recording(tmp_path, 3, distributedInfo=info, host_name="n1")]
    # All that follows the beginning may be damaged.
    paths[0].write_text(paths[0].read_text()[:-5])
    assert described_ranks(paths) == (
        {3: paths[0]},
        [Stratum(frozenset({1, 3}), 2), Stratum(frozenset({3}), 1)],
    )


def test_only_the_files_of_wanted_ranks_are_read(tmp_path: Path) -> None:
    paths = [recording(tmp_path, rank) for rank in range(4)]
    paths[3].write_text(paths[3].read_text()[:-5])
    trace = read_recordings(paths, ReadOptions(ranks=RankRanges.parse("0-1")))
    assert [rank.rank for rank in trace.ranks] == [0, 1]
    assert trace.absent == 2
    assert trace.notes == ("2 of 4 recorded ranks were chosen by --ranks 0-1",)


def test_two_files_of_one_rank_are_refused(tmp_path: Path) -> None:
    first, second = recording(tmp_path, 1), tmp_path / "again.json"
    second.write_text(first.read_text())
    with pytest.raises(TraceError, match=r"rank 1 is there more than once: trace1\.json"):
        described_ranks([first, second])


def test_a_file_that_does_not_say_its_rank_is_named(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text('{"traceEvents": []}')
    with pytest.raises(TraceError, match="does not say of which rank"):
        described_ranks([path])


def test_of_a_file_of_several_ranks_none_is_chosen(tmp_path: Path) -> None:
    path = tmp_path / "merged.json"
    path.write_text(kineto([{**step(0, 0.0, 10.0), "pid": "[TP00] 4000"}], rank=0))
    with pytest.raises(TraceError, match="holds several ranks"):
        described_ranks([path])
