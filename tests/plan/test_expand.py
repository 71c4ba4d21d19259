from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.factories import experiment, machine, trained
from torchscale.errors import ConfigError, MachineError
from torchscale.plan import expand
from torchscale.plan.devices import cpu_threads_per_rank
from torchscale.plan.expand import Plan, make_plan
from torchscale.schema.cells.training import TrainingCell


def reasons(**content: object) -> list[str | None]:
    return [entry.skip_reason for entry in make_plan(experiment(**content), machine(cores=2)).cells]


def test_the_known_matrix_is_24_cells_in_a_stable_order() -> None:
    plan = make_plan(
        experiment(
            models=["resnet50", "bert-large"], batch_sizes=[64, 128, 256], gpu_counts=[1, 2, 4, 8]
        ),
        machine(cores=2),
    )
    order = [
        (trained(entry).model, trained(entry).batch_size, trained(entry).world_size)
        for entry in plan.cells
    ]
    assert len(order) == len(set(order)) == 24
    assert order[:5] == [
        ("resnet50", 64, 1),
        ("resnet50", 64, 2),
        ("resnet50", 64, 4),
        ("resnet50", 64, 8),
        ("resnet50", 128, 1),
    ]
    assert len(plan.to_run) == 12


def test_a_count_that_does_not_fit_is_skipped_with_its_reason() -> None:
    assert reasons(gpu_counts=[1, 2, 8]) == [
        None,
        None,
        "needs 8 devices; there are 2 CPU ranks of 1 core",
    ]
    assert reasons(gpu_counts=[1, 8]) == [None, "needs 8 devices; there are 2 CPU ranks of 1 core"]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (
            {"parallel": {"strategy": "none"}, "gpu_counts": [2]},
            "strategy none runs on one device, not 2",
        ),
        (
            {"scaling": "strong", "batch_sizes": [7], "gpu_counts": [2]},
            "global batch 7 does not divide by 2 devices",
        ),
        (
            {"models": "tiny-gpt2", "model": {"channels_last": True}, "gpu_counts": [1]},
            "channels_last is a memory format for image models; tiny-gpt2 takes tokens",
        ),
        ({"training": {"precision": "tf32"}, "gpu_counts": [1]}, "tf32 needs a CUDA device"),
        (
            {"training": {"epochs": 1}, "data": {"num_samples": 4}, "gpu_counts": [1]},
            "an epoch of 4 samples is less than one global batch of 8",
        ),
    ],
)
def test_impossible_cells_are_skipped(content: dict[str, object], reason: str) -> None:
    assert reasons(**content) == [reason]


def test_old_gpus_have_no_bf16() -> None:
    plan = make_plan(
        experiment(training={"precision": ["fp16", "bf16"]}, gpu_counts=[1]),
        machine(gpus=1, capability="7.0"),
    )
    assert [entry.skip_reason for entry in plan.cells] == [
        None,
        "bf16 needs compute capability 8.0; NVIDIA H100 has 7.0",
    ]


@pytest.mark.parametrize(
    ("gpus", "counts"), [(1, [1]), (2, [1, 2]), (6, [1, 2, 4, 6]), (8, [1, 2, 4, 8])]
)
def test_auto_counts(gpus: int, counts: list[int]) -> None:
    plan = make_plan(experiment(gpu_counts="auto"), machine(gpus=gpus))
    assert [entry.cell.world_size for entry in plan.cells] == counts


@pytest.mark.parametrize(
    ("cores", "counts", "threads"),
    [(2, [1, 2, 4, 8], 1), (8, [1, 2], 4), (8, [1, 2, 4, 8], 1), (6, [4], 1), (3, [1], 3)],
)
def test_a_cpu_device_is_the_same_share_of_cores_at_every_count(
    cores: int, counts: list[int], threads: int
) -> None:
    plan = make_plan(experiment(gpu_counts=counts), machine(cores=cores))
    assert plan.threads_per_rank == threads
    for cell in plan.training:
        sets = plan.cpu_sets(cell.world_size)
        assert sets is not None
        assert [len(cpus) for cpus in sets] == [threads] * cell.world_size
        assert len({cpu for cpus in sets for cpu in cpus}) == threads * cell.world_size


@pytest.mark.parametrize(
    "content",
    [
        {"gpu_counts": "auto"},
        {"gpu_counts": [1, 2, 16]},
        {"gpu_counts": [16], "launch": {"oversubscribe": True}},
        {"gpu_counts": [1], "launch": {"devices": [0, 2, 3]}},
        {"gpu_counts": [1, 2], "launch": {"threads_per_rank": 3}},
        {"gpu_counts": [2, 8], "launch": {"nodes": 4, "devices_per_node": 2}},
        {"nodes": [1, 2], "gpu_counts": "auto", "launch": {"nodes": 2}},
    ],
)
def test_threads_on_cores_are_known_before_the_plan(content: dict[str, Any]) -> None:
    config = experiment(**content)
    plan = make_plan(config, machine(cores=8))
    assert cpu_threads_per_rank(config, tuple(range(8))) == plan.threads_per_rank


@pytest.mark.parametrize(("counts", "threads"), [([4], 1), ([16], 1), ([4, 3], 1), ([2, 4], 1)])
def test_ranks_that_share_cores_have_no_more_threads_than_there_are(
    counts: list[int], threads: int
) -> None:
    """Threads of OpenMP that share a core spin while they wait for each other."""
    shared = {"oversubscribe": True}
    plan = make_plan(experiment(gpu_counts=counts, launch=shared), machine(cores=2))
    assert plan.threads_per_rank == threads
    assert plan.is_oversubscribed(max(counts))


def test_ranks_that_share_a_gpu_share_the_cores_too() -> None:
    shared = {"oversubscribe": True}
    plan = make_plan(experiment(gpu_counts=[4], launch=shared), machine(gpus=1, cores=8))
    assert plan.threads_per_rank == 2


def test_the_chosen_devices_are_used_in_order() -> None:
    plan = make_plan(experiment(launch={"devices": [5, 2]}, gpu_counts=[1, 2, 4]), machine(gpus=8))
    assert plan.device_indices == (5, 2)
    assert [entry.skip_reason is None for entry in plan.cells] == [True, True, False]
    assert plan.cpu_sets(2) is None


def test_what_is_not_here_is_an_error_of_the_machine() -> None:
    with pytest.raises(MachineError, match="no CUDA device"):
        make_plan(experiment(device="cuda"), machine())
    with pytest.raises(
        MachineError, match=r"launch.devices: 7 not among the usable cores \(0, 1\)"
    ):
        make_plan(experiment(launch={"devices": [7]}), machine())
    with pytest.raises(MachineError, match="threads_per_rank: 3 exceeds the 2 usable cores"):
        make_plan(experiment(launch={"threads_per_rank": 3}), machine())


def test_auto_takes_cuda_where_it_is_and_cpu_when_asked() -> None:
    assert make_plan(experiment(), machine(gpus=2)).device == "cuda"
    assert make_plan(experiment(device="cpu"), machine(gpus=2)).device == "cpu"
    assert make_plan(experiment(), machine()).device == "cpu"


def test_a_cell_takes_the_options_of_its_model() -> None:
    plan = make_plan(
        experiment(
            models=[{"name": "tiny-gpt2", "sequence_length": 16}, "tiny-resnet", "pkg.mod:build"],
            model={"options": {"image_size": 64}},
            gpu_counts=[1],
        ),
        machine(),
    )
    assert [trained(entry).model_options for entry in plan.cells] == [
        {"sequence_length": 16},
        {"image_size": 64, "num_classes": 10},
        {"image_size": 64},
    ]


def test_strong_scaling_divides_the_global_batch() -> None:
    plan = make_plan(experiment(scaling="strong", batch_sizes=[64], gpu_counts=[1, 2]), machine())
    assert [
        (trained(entry).per_device_batch_size, trained(entry).global_batch_size)
        for entry in plan.cells
    ] == [
        (64, 64),
        (32, 64),
    ]


def test_the_hash_changes_with_the_plan() -> None:
    assert (
        make_plan(experiment(), machine()).hash
        == make_plan(experiment(), machine(gpus=0, cores=8)).hash
    )
    assert (
        make_plan(experiment(), machine()).hash
        != make_plan(experiment(batch_sizes=[9]), machine()).hash
    )


def test_only_the_gpus_that_a_cell_uses_must_be_able_to() -> None:
    """A node of an old and a new GPU: bf16 runs on the new one."""
    node = machine(gpus=2)
    old, new = node.environment.devices
    devices = (old.model_copy(update={"compute_capability": "7.0"}), new)
    node = replace(node, environment=node.environment.model_copy(update={"devices": devices}))
    bf16 = {"training": {"precision": "bf16"}, "gpu_counts": [1, 2]}
    first, both = make_plan(experiment(launch={"devices": [1, 0]}, **bf16), node).cells
    assert first.skip_reason is None
    assert both.skip_reason is not None
    assert [entry.skip_reason is None for entry in make_plan(experiment(**bf16), node).cells] == [
        False,
        False,
    ]


@given(
    cores=st.integers(1, 65),
    counts=st.lists(st.integers(1, 80), min_size=1, max_size=5, unique=True),
    batches=st.lists(st.integers(1, 512), min_size=1, max_size=3, unique=True),
    scaling=st.sampled_from(["weak", "strong"]),
)
def test_any_plan_keeps_its_promises(
    cores: int, counts: list[int], batches: list[int], scaling: str
) -> None:
    """Every cell once, run or skipped with a reason; ranks of a cell on disjoint cores of this
    machine; all of the global batch under strong scaling."""
    node = machine(cores=cores)
    plan = make_plan(experiment(gpu_counts=counts, batch_sizes=batches, scaling=scaling), node)
    assert (
        len({entry.cell.id for entry in plan.cells})
        == len(plan.cells)
        == len(counts) * len(batches)
    )
    assert all(entry.skip_reason is None or entry.skip_reason for entry in plan.cells)
    for cell in plan.training:
        sets = plan.cpu_sets(cell.world_size)
        assert sets is not None
        used = [cpu for cpus in sets for cpu in cpus]
        assert len(sets) == cell.world_size
        assert len(used) == len(set(used)) == cell.world_size * plan.threads_per_rank
        assert set(used) <= set(node.cores)
        if scaling == "strong":
            assert cell.global_batch_size == cell.batch_size


def over_nodes(of_sweep: int, gpus: int = 4, per_node: int | None = None, **content: Any) -> Plan:
    """The plan of a sweep over nodes with so many GPUs each."""
    launch = {"nodes": of_sweep, **({} if per_node is None else {"devices_per_node": per_node})}
    return make_plan(experiment(launch=launch, **content), machine(gpus=gpus, cores=16))


def test_a_count_takes_the_fewest_nodes() -> None:
    plan = over_nodes(3, gpu_counts=[1, 2, 4, 8, 12])
    assert [plan.nodes_of(cell.world_size) for cell in plan.to_run] == [1, 1, 1, 2, 3]
    assert [plan.local_size(cell.world_size) for cell in plan.to_run] == [1, 2, 4, 4, 4]
    assert plan.device_indices_of(12) == (0, 1, 2, 3)
    assert plan.uuids_of(12) == ("GPU-0", "GPU-1", "GPU-2", "GPU-3")
    assert not plan.is_oversubscribed(12)


def test_a_cell_is_the_same_on_any_number_of_nodes() -> None:
    assert over_nodes(2, gpu_counts=[8]).hash == over_nodes(1, gpus=8, gpu_counts=[8]).hash


def test_auto_counts_go_over_the_nodes() -> None:
    assert [cell.world_size for cell in over_nodes(3, gpu_counts="auto").to_run] == [1, 2, 4, 8, 12]


def test_nodes_are_an_axis() -> None:
    plan = over_nodes(2, gpu_counts="auto", nodes=[1, 2, 4])
    assert [entry.cell.world_size for entry in plan.cells] == [4, 8, 16]
    assert [entry.skip_reason for entry in plan.cells] == [
        None,
        None,
        "needs 4 nodes of 4 devices; the sweep has 2",
    ]


def test_fewer_devices_a_node_can_be_asked_for() -> None:
    plan = over_nodes(2, per_node=2, gpu_counts=[2, 4])
    assert plan.device_indices_of(4) == (0, 1)
    assert plan.nodes_of(4) == 2


def test_cores_are_shared_by_the_ranks_of_a_node() -> None:
    plan = make_plan(
        experiment(launch={"nodes": 2, "devices_per_node": 2}, gpu_counts=[1, 2, 4]),
        machine(cores=8),
    )
    assert plan.threads_per_rank == 4
    assert plan.cpu_sets(4) == ((0, 1, 2, 3), (4, 5, 6, 7))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            {"of_sweep": 3, "gpu_counts": [6]},
            "gpu_counts: 6 is no whole number of nodes of 4 devices",
        ),
        (
            {"of_sweep": 2, "per_node": 8, "gpu_counts": [8]},
            "devices_per_node: 8 exceeds the 4 that this node has",
        ),
    ],
)
def test_what_no_node_can_run_is_an_error(content: dict[str, Any], message: str) -> None:
    with pytest.raises(MachineError, match=message):
        over_nodes(**content)


def test_a_count_beyond_all_nodes_is_skipped() -> None:
    (entry,) = over_nodes(2, gpu_counts=[16]).cells
    assert entry.skip_reason == "needs 4 nodes of 4 devices; the sweep has 2"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            {
                "batch_sizes": list(range(1, 1001)),
                "gpu_counts": list(range(1, 101)),
                "launch": {"oversubscribe": True},
            },
            r"100,000 cells \(1,000 batch_sizes × 100 gpu_counts\); at most 20,000 fit one run",
        ),
        (
            {"batch_sizes": list(range(1, 101)), "benchmark": {"repeats": 1001}},
            r"200,200 launches \(200 cells × benchmark.repeats 1,001\); at most 100,000",
        ),
    ],
)
def test_a_few_lines_that_stand_for_very_many_launches_are_refused_at_once(
    content: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the first cell is made: a hundred thousand take minutes and gigabytes."""
    monkeypatch.setattr(expand, "_expand", lambda *_: pytest.fail("cells were made"))
    with pytest.raises(ConfigError, match=message):
        make_plan(experiment(**content), machine(cores=2))


def _script_cells(**content: Any) -> list[TrainingCell]:
    whole = {"batch_sizes": [8, 16], "gpu_counts": [1, 2], **content}
    return [trained(entry) for entry in make_plan(experiment(**whole), machine(cores=2)).cells]


def test_a_script_has_a_cell_for_each_value_that_it_is_told() -> None:
    entry = {"script": "train.py {batch_size} {lr}", "lr": [0.1, 0.2]}
    cells = _script_cells(models=[entry], training={"precision": ["fp32", "bf16"]})

    assert len({cell.id for cell in cells}) == len(cells) == 2 * 2 * 2
    assert {cell.batch_size for cell in cells} == {8, 16}
    assert {cell.model_options["lr"] for cell in cells} == {0.1, 0.2}
    assert {cell.precision for cell in cells} == {"own"}


def test_what_a_script_is_not_told_makes_no_cells_and_is_claimed_nowhere() -> None:
    (one, two) = _script_cells(models=[{"script": "train.py"}])

    assert (one.world_size, two.world_size) == (1, 2)
    assert one.batch_size is None
    assert one.learning_rate is None
    assert (one.precision, one.optimizer, one.data_source) == ("own", "own", "own")
    assert one.strategy.name == "own"
    assert one.settings == ()
    assert one.setting == "own script"
    assert one.id.startswith("train.py-n1-own-own-")
    with pytest.raises(ValueError, match=r"train\.py is not told its batch size"):
        assert one.global_batch_size


def test_a_precision_that_a_script_is_told_is_an_axis() -> None:
    cells = _script_cells(
        models=[{"script": "train.py --dtype {precision}"}],
        training={"precision": ["fp32", "bf16"]},
        gpu_counts=[1],
    )

    assert [cell.precision for cell in cells] == ["fp32", "bf16"]
    assert cells[0].setting == "fp32 own script"


def test_a_script_is_told_a_share_of_the_global_batch_that_is_whole() -> None:
    plan = make_plan(
        experiment(
            models=[{"script": "train.py {batch_size}"}],
            batch_sizes=[9],
            gpu_counts=[1, 2],
            scaling="strong",
        ),
        machine(cores=2),
    )

    assert [entry.skip_reason for entry in plan.cells] == [
        None,
        "global batch 9 does not divide by 2 devices",
    ]


def test_a_script_over_several_nodes_is_refused() -> None:
    plan = make_plan(
        experiment(models=[{"script": "train.py"}], gpu_counts=[2, 4], launch={"nodes": 2}),
        machine(cores=2),
    )

    assert plan.cells[0].skip_reason is None
    assert "on a single node" in str(plan.cells[1].skip_reason)
