from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from tests.analysis.summary.test_scripts import scripts
from tests.factories import cells, environment, experiment
from tests.features.compare.analysis.test_compare import result, side
from torchscale.config.choices import MatchKey
from torchscale.errors import UsageError
from torchscale.features.compare.analysis.differences import (
    cell_differences,
    differences,
    result_facts,
    unequal_facts,
)
from torchscale.features.compare.analysis.matching import (
    Match,
    match_cells,
    named_values,
    workload_key,
)
from torchscale.schema.cells.checkpoint import CheckpointCell
from torchscale.schema.cells.hardware import HardwareCell
from torchscale.schema.cells.memory import MemoryCell
from torchscale.schema.launch.transport import Transport, Way, WayKind
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


def hardware(devices: int) -> HardwareCell:
    """Ceilings of a machine: a cell that trains nothing."""
    return HardwareCell(
        matmul_sizes=(64,),
        matmul_dtypes=("fp32",),
        seconds=0.1,
        copy_bytes=1,
        disk_bytes=1,
        world_size=devices,
        device="cpu",
    )


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
    ceilings = hardware(1)
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
    assert matched(side(result(two)), side(machine, result(one)), ONE_GLOBAL_BATCH) == [
        (two.id, one.id),
        (None, ceilings.id),
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


def test_a_cell_that_matches_by_its_id_leaves_the_others_of_its_workload_alone() -> None:
    """The same workload, measured for longer as well."""
    (quick, *_), (full, *_) = cells(benchmark={"preset": "quick"}), cells()
    both, alone = side(result(full), result(quick)), side(result(full))
    assert matched(alone, both, ()) == [(full.id, full.id), (None, quick.id)]
    assert matched(both, alone, ()) == [(full.id, full.id), (quick.id, None)]


def test_how_many_cells_differ_in_precision_alone_is_said() -> None:
    full, half = cells(), cells(training={"precision": "bf16"})
    _, (note,) = match_cells(side(*map(result, full)), side(*map(result, half)))
    assert note.startswith("2 of the cells without a counterpart")
    _, notes = match_cells(side(*map(result, full)), side(*map(result, full)))
    assert notes == ()


def test_cells_that_no_key_tells_apart_are_compared_without() -> None:
    (quick, *_), (full, *_) = cells(benchmark={"preset": "quick"}), cells()
    with pytest.raises(UsageError) as caught:
        match_cells(side(result(full), result(quick)), side(result(full)), keys=[MatchKey.MODEL])
    assert caught.value.hint == "compare them without --match"


def test_of_cells_that_were_all_skipped_one_is_matched() -> None:
    one, two = (ResultCell(cell=cell, state=State.SKIPPED) for cell in cells(batch_sizes=[8]))
    pairs = matched(side(one, two), side(result(cells()[0])), [MatchKey.MODEL])
    assert pairs == [(one.cell.id, cells()[0].id), (two.cell.id, None)]


def test_what_a_cell_is_matched_by_has_names() -> None:
    assert named_values(hardware(2)) == {"devices": "2"}
    cell = cells(gpu_counts=[2])[0]
    assert named_values(cell)["settings"] == "default"
    assert (named_values(cell)["batch"], named_values(cell)["global_batch"]) == ("8", "16")
    bare = cell.model_copy(update={"model_options": {}})
    assert named_values(bare)["model"] == "tiny-resnet"
    own = cell.model_copy(update={"batch_size": None})
    assert (named_values(own)["batch"], named_values(own)["global_batch"]) == ("own", "own")


def test_what_every_rank_record_holds_is_not_listed_twice() -> None:
    """torch, and the devices themselves: each has a UUID of its own, and only their number
    counts."""
    (cell, *_) = cells()
    versions = environment().versions.model_copy(update={"torch": "2.14.0"})
    sets = [
        side(result(cell), environment=environment(1)),
        side(result(cell, torch="2.14.0"), environment=environment(2, versions=versions)),
    ]
    found = {one.what: (one.values, one.forbids) for one in differences(sets)}
    assert found == {
        "torch": (("2.13.0", "2.14.0"), True),
        "devices": (("1", "2"), False),
    }
    assert "devices" not in result_facts(side(result(cell), environment=environment()))


def test_a_record_on_its_own_has_its_version_and_what_its_cells_say() -> None:
    """No session, no config and no cell that failed tell more."""
    one, two = cells(gpu_counts=[1, 2])
    found = result_facts(
        side(
            result(one, device="NVIDIA H100", torch="2.13.0"),
            result(two, state=State.CRASHED, device="NVIDIA A100", torch="2.14.0"),
            environment=None,
            config=None,
        )
    )
    assert found == {"device": "NVIDIA H100", "torch": "2.13.0", "torchscale": "0.1.0"}
    threads = side(result(one), environment=None, config=None, threads_per_rank=4)
    assert result_facts(threads)["threads per rank"] == "4"


def test_settings_are_facts_by_their_place_in_the_config() -> None:
    """Without the axes, which the cells tell, and without the name of the experiment."""
    (cell, *_) = cells()
    facts = result_facts(side(result(cell), config=experiment(experiment_name="one")))
    settings = {name.removeprefix("config ") for name in facts if name.startswith("config ")}
    assert {"benchmark.repeats", "training.precision", "data.source"} <= settings
    assert facts["config training.precision"] == '["fp32"]'
    assert (facts["config scaling"], facts["config benchmark.repeats"]) == ("weak", "1")
    axes = ("experiment_name", "models", "batch_sizes", "gpu_counts", "nodes", "measure")
    assert not [name for name in settings if name.startswith(axes)]


def test_devices_of_several_kinds_are_listed_in_order_of_their_names() -> None:
    one, two = cells(gpu_counts=[1, 2])
    mixed = side(result(one, device="NVIDIA H100"), result(two, device="NVIDIA A100"))
    assert result_facts(mixed)["device"] == "NVIDIA A100, NVIDIA H100"


def test_only_a_device_or_torch_that_both_sides_have_forbids() -> None:
    columns = [{"torch": "2.13.0", "host": "a"}, {"host": "b"}, {"torch": "2.13.0", "host": "a"}]
    assert [(one.what, one.forbids) for one in unequal_facts(columns)] == [
        ("torch", False),
        ("host", False),
    ]
    columns[1]["torch"] = "2.14.0"
    assert [(one.what, one.forbids) for one in unequal_facts(columns)] == [
        ("torch", True),
        ("host", False),
    ]


def test_all_values_of_a_side_are_listed_once_each() -> None:
    one, two = cells(gpu_counts=[1, 2])
    half_one, half_two = cells(gpu_counts=[1, 2], training={"precision": "bf16"})
    matches: list[Match] = [
        (result(one), result(half_one)),
        (result(two), result(two)),
        (result(two), result(half_two)),
    ]
    machine = ResultCell(cell=hardware(1), state=State.OK)
    (found,) = cell_differences([[(machine, machine), *matches]])
    assert found.what == "precision of cells"
    assert found.values == ("fp32", "bf16, fp32")
    assert [one.what for one in cell_differences([[(result(one), result(one))], matches])] == [
        "precision of cells"
    ]


def test_a_script_matches_whatever_its_arguments_and_they_are_listed_word_by_word() -> None:
    (before,), (after,) = scripts("train.py --bucket 25 --fast"), scripts("train.py --bucket=4 b")
    matches, _ = match_cells(side(result(before)), side(result(after)))
    assert [(ours and ours.cell.id, theirs and theirs.cell.id) for ours, theirs in matches] == [
        (before.id, after.id)
    ]
    listed = {one.what: one.values for one in cell_differences([matches])}
    assert listed == {
        "argument --bucket": ("25", "4"),
        "argument --fast": ("given", ""),
        "argument 2": ("", "b"),
    }


def test_two_scripts_differ_by_one_argument_and_not_by_their_model_too() -> None:
    (before,), (after,) = scripts("a.py --lr 1"), scripts("b.py --lr 1")
    matches, _ = match_cells(side(result(before)), side(result(after)))
    (found,) = cell_differences([matches])
    assert (found.what, found.values) == ("argument 1", ("a.py", "b.py"))


def test_scripts_of_which_a_side_has_several_match_by_their_arguments_alone() -> None:
    before = scripts("train.py --a 1", "train.py --a 2")
    after = scripts("train.py --a 2", "train.py --a 3")
    matches, _ = match_cells(side(*map(result, before)), side(*map(result, after)))
    both = [(ours.cell.id, theirs.cell.id) for ours, theirs in matches if ours and theirs]
    assert (before[1].id, after[0].id) in both
    several = scripts("train.py --a 4", "train.py --a 5")
    matches, _ = match_cells(side(*map(result, before)), side(*map(result, several)))
    assert not [match for match in matches if all(match)]


def test_another_transport_is_a_difference_where_both_sides_know_theirs() -> None:
    (cell, *_) = cells()
    sockets, verbs, unknown = (
        result(cell, transport=moved)
        for moved in (
            Transport(ways=(Way(kind=WayKind.SOCKET, name="NET/Socket"),)),
            Transport(ways=(Way(kind=WayKind.IB, name="NET/IB"),)),
            Transport(unknown="no line says"),
        )
    )
    (found,) = cell_differences([[(sockets, verbs)]])
    assert (found.what, found.values) == ("transport of cells", ("NET/Socket", "NET/IB"))
    assert cell_differences([[(sockets, sockets)]]) == []
    assert cell_differences([[(unknown, verbs)]]) == []
