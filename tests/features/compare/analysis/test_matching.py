from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from tests.factories import cells, environment, experiment
from tests.features.compare.analysis.test_compare import result, side
from torchscale.config.choices import MatchKey
from torchscale.errors import UsageError
from torchscale.features.compare.analysis.differences import cell_differences, differences
from torchscale.features.compare.analysis.matching import Match, match_cells, workload_key
from torchscale.schema.cells.checkpoint import CheckpointCell
from torchscale.schema.cells.hardware import HardwareCell
from torchscale.schema.cells.memory import MemoryCell
from torchscale.schema.run.experiment_file import Session
from torchscale.schema.run.result_set import ResultCell, ResultSet
from torchscale.schema.state import State

ONE_GLOBAL_BATCH = (MatchKey.MODEL, MatchKey.GLOBAL_BATCH)


def matched(
    reference: ResultSet, other: ResultSet, keys: Sequence[MatchKey]
) -> list[tuple[str | None, str | None]]:
    matches, _ = match_cells(reference, other, keys=keys)
    return [
        (before.cell.id if before else None, after.cell.id if after else None)
        for before, after in matches
    ]


def test_cells_of_other_counts_match_by_their_global_batch() -> None:
    """Eight samples on each of two devices, and sixteen on one."""
    (_, two), (one, _) = cells(batch_sizes=[8]), cells(batch_sizes=[16])
    assert matched(side(result(two)), side(result(one)), ()) == [(two.id, None), (None, one.id)]
    assert matched(side(result(two)), side(result(one)), ONE_GLOBAL_BATCH) == [(two.id, one.id)]


def test_a_key_that_does_not_tell_cells_apart_is_an_error_with_what_would() -> None:
    one, two = cells(batch_sizes=[8])
    with pytest.raises(UsageError) as caught:
        match_cells(
            side(result(one)), side(result(one), result(two), name="after"), keys=[MatchKey.MODEL]
        )
    model = "tiny-resnet (image_size=32, num_classes=10)"
    assert (
        caught.value.message == f"--match model: 2 cells of after are model {model}; expected one"
    )
    assert caught.value.hint == "add what tells them apart: global_batch, devices"


def test_a_key_that_only_one_side_has_need_not_tell_cells_apart() -> None:
    one, two = cells(batch_sizes=[8])
    other = cells(models="tiny-gpt2", gpu_counts=[1])[0]
    pairs = matched(side(result(one), result(two)), side(result(other)), [MatchKey.MODEL])
    assert pairs == [(one.id, None), (two.id, None), (None, other.id)]


def test_a_skipped_cell_gives_way_to_a_measured_one_of_the_same_key() -> None:
    one, two = cells(batch_sizes=[8])
    skipped = ResultCell(cell=two, state=State.SKIPPED)
    pairs = matched(side(result(one)), side(skipped, result(one)), [MatchKey.MODEL])
    assert pairs == [(one.id, one.id), (None, two.id)]


def test_cells_without_a_model_match_by_their_workload_and_memory_by_what_it_trains() -> None:
    ceilings = HardwareCell(
        matmul_sizes=(64,),
        matmul_dtypes=("fp32",),
        seconds=0.1,
        copy_bytes=1,
        disk_bytes=1,
        world_size=1,
        device="cpu",
    )
    machine = ResultCell(cell=ceilings, state=State.OK)
    (_, two), (one, _) = cells(batch_sizes=[8]), cells(batch_sizes=[16])
    memory = [ResultCell(cell=MemoryCell(training=cell), state=State.OK) for cell in (two, one)]
    pairs = matched(
        side(result(two), memory[0], machine),
        side(machine, memory[1], result(one)),
        ONE_GLOBAL_BATCH,
    )
    assert pairs == [
        (two.id, one.id),
        (memory[0].cell.id, memory[1].cell.id),
        (ceilings.id, ceilings.id),
    ]


def test_checkpoints_match_on_whatever_disk_and_not_with_other_threads() -> None:
    (one, two) = cells(batch_sizes=[8])
    here, there, other, threads = (
        ResultCell(cell=CheckpointCell(training=cell, path=path, threads=count), state=State.OK)
        for cell, path, count in (
            (one, "/nvme", 1),
            (one, "/lustre", 1),
            (two, "/lustre", 1),
            (one, "/lustre", 2),
        )
    )
    assert here.cell.id != there.cell.id
    assert matched(side(here), side(there, other), ()) == [
        (here.cell.id, there.cell.id),
        (None, other.cell.id),
    ]
    assert workload_key(here.cell) != workload_key(threads.cell)


def test_what_differs_between_matched_cells_is_listed_side_by_side() -> None:
    (_, two), (one, _) = (
        cells(batch_sizes=[8]),
        cells(batch_sizes=[16], training={"precision": "bf16"}),
    )
    matches: list[Match] = [(result(two), result(one)), (None, result(two))]
    found = {one.what: one.values for one in cell_differences([matches])}
    assert found == {
        "batch of cells": ("8", "16"),
        "devices of cells": ("2", "1"),
        "precision of cells": ("fp32", "bf16"),
    }
    assert cell_differences([[(result(two), result(two))]]) == []


def test_every_difference_is_named_and_the_deciding_ones_first() -> None:
    (cell, *_) = cells()
    versions = environment(8).versions.model_copy(update={"nccl": "2.27.3"})
    sets = [
        side(result(cell)),
        side(
            result(cell, device="NVIDIA A100"),
            environment=environment(
                8, hostname="node-2", versions=versions, env={"NCCL_ALGO": "Ring"}
            ),
            config=experiment(benchmark={"repeats": 5}),
        ),
    ]
    found = {one.what: one for one in differences(sets)}
    assert next(iter(found)) == "device"
    assert found["device"].forbids
    expected: Mapping[str, tuple[str, str]] = {
        "host": ("node-1", "node-2"),
        "NCCL": ("", "2.27.3"),
        "variable NCCL_ALGO": ("", "Ring"),
        "config benchmark.repeats": ("1", "5"),
    }
    assert {what: found[what].values for what in expected} == expected
    assert not any(one.forbids for what, one in found.items() if what != "device")
    assert differences([sets[0], sets[0]]) == []


def test_a_side_measured_under_changing_conditions_says_so() -> None:
    (cell, *_) = cells()
    ring = environment(env={"NCCL_ALGO": "Ring"})
    later = Session(started_at="2026-02-01T00:00:00+00:00", tool_version="0.2.0", environment=ring)
    steady = side(result(cell), environment=environment(), tool_version="0.1.0")
    found = {
        one.what: one.values
        for one in differences([steady, steady.model_copy(update={"later": (later,)})])
    }
    assert found == {
        "variable NCCL_ALGO": ("", "absent, then Ring"),
        "torchscale": ("0.1.0", "0.1.0, then 0.2.0"),
    }


def test_a_side_without_figures_forbids_nothing() -> None:
    (cell, *_) = cells()
    failed = side(result(cell, state=State.CRASHED, device="", torch=""))
    assert not any(one.forbids for one in differences([side(result(cell)), failed]))


def test_another_precision_is_another_workload() -> None:
    """The history of a workload would show a change of precision as one of speed."""
    single, half = (
        cells(gpu_counts=1, training={"precision": name})[0] for name in ("fp32", "bf16")
    )
    assert workload_key(single) != workload_key(half)
    assert workload_key(single) == workload_key(single.model_copy())


def test_what_a_cell_has_of_its_own_column_is_not_among_its_other_settings() -> None:
    """One difference is shown once; the settings that have no column of their own together."""
    plain, other = (
        cells(gpu_counts=[1], training=content)[0]
        for content in ({}, {"optimizer": "sgd", "gradient_accumulation": 2})
    )
    matches: list[Match] = [(result(plain), result(other)), (result(plain), None)]
    found = {one.what: one.values for one in cell_differences([matches])}
    assert found["optimizer of cells"] == ("adamw", "sgd")
    assert found["settings of cells"] == ("default", "accumulate=2")
