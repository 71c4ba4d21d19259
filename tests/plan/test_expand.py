from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.factories import experiment, machine, trained
from torchscale.errors import MachineError
from torchscale.plan.expand import make_plan


def reasons(**content: object) -> list[str | None]:
    return [entry.skip_reason for entry in make_plan(experiment(**content), machine(cores=2)).cells]


def test_the_known_matrix_is_24_cells_in_a_stable_order() -> None:
    plan = make_plan(
        experiment(models=["resnet50", "bert-large"], batch_sizes=[64, 128, 256], gpu_counts=[1, 2, 4, 8]),
        machine(cores=2),
    )
    order = [(trained(entry).model, trained(entry).batch_size, trained(entry).world_size) for entry in plan.cells]
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
    assert reasons(gpu_counts=[1, 2, 8]) == [None, None, "needs 8 devices; this machine has 2 CPU ranks of 1 core"]
    assert reasons(gpu_counts=[1, 8]) == [None, "needs 8 devices; this machine has 2 CPU ranks of 1 core"]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ({"parallel": {"strategy": "none"}, "gpu_counts": [2]}, "strategy none runs on one device, not 2"),
        ({"scaling": "strong", "batch_sizes": [7], "gpu_counts": [2]}, "global batch 7 does not divide by 2 devices"),
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
        experiment(training={"precision": ["fp16", "bf16"]}, gpu_counts=[1]), machine(gpus=1, capability="7.0")
    )
    assert [entry.skip_reason for entry in plan.cells] == [
        None,
        "bf16 needs compute capability 8.0; NVIDIA H100 has 7.0",
    ]


@pytest.mark.parametrize(("gpus", "counts"), [(1, [1]), (2, [1, 2]), (6, [1, 2, 4, 6]), (8, [1, 2, 4, 8])])
def test_auto_counts(gpus: int, counts: list[int]) -> None:
    plan = make_plan(experiment(gpu_counts="auto"), machine(gpus=gpus))
    assert [entry.cell.world_size for entry in plan.cells] == counts


@pytest.mark.parametrize(
    ("cores", "counts", "threads"),
    [(2, [1, 2, 4, 8], 1), (8, [1, 2], 4), (8, [1, 2, 4, 8], 1), (6, [4], 1), (3, [1], 3)],
)
def test_a_cpu_device_is_the_same_share_of_cores_at_every_count(cores: int, counts: list[int], threads: int) -> None:
    plan = make_plan(experiment(gpu_counts=counts), machine(cores=cores))
    assert plan.threads_per_rank == threads
    for cell in plan.training:
        sets = plan.cpu_sets(cell.world_size)
        assert sets is not None
        assert [len(cpus) for cpus in sets] == [threads] * cell.world_size
        assert len({cpu for cpus in sets for cpu in cpus}) == threads * cell.world_size


def test_the_chosen_devices_are_used_in_order() -> None:
    plan = make_plan(experiment(launch={"devices": [5, 2]}, gpu_counts=[1, 2, 4]), machine(gpus=8))
    assert plan.device_indices == (5, 2)
    assert [entry.skip_reason is None for entry in plan.cells] == [True, True, False]
    assert plan.cpu_sets(2) is None


def test_what_is_not_here_is_an_error_of_the_machine() -> None:
    with pytest.raises(MachineError, match="no CUDA device"):
        make_plan(experiment(device="cuda"), machine())
    with pytest.raises(MachineError, match=r"launch.devices: 7 not among the usable cores \(0, 1\)"):
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
    assert [(trained(entry).per_device_batch_size, trained(entry).global_batch_size) for entry in plan.cells] == [
        (64, 64),
        (32, 64),
    ]


def test_the_hash_changes_with_the_plan() -> None:
    assert make_plan(experiment(), machine()).hash == make_plan(experiment(), machine(gpus=0, cores=8)).hash
    assert make_plan(experiment(), machine()).hash != make_plan(experiment(batch_sizes=[9]), machine()).hash


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
    assert [entry.skip_reason is None for entry in make_plan(experiment(**bf16), node).cells] == [False, False]


@given(
    cores=st.integers(1, 65),
    counts=st.lists(st.integers(1, 80), min_size=1, max_size=5, unique=True),
    batches=st.lists(st.integers(1, 512), min_size=1, max_size=3, unique=True),
    scaling=st.sampled_from(["weak", "strong"]),
)
def test_any_plan_keeps_its_promises(cores: int, counts: list[int], batches: list[int], scaling: str) -> None:
    """Every cell once, run or skipped with a reason; ranks of a cell on disjoint cores of this machine; all of the
    global batch under strong scaling."""
    node = machine(cores=cores)
    plan = make_plan(experiment(gpu_counts=counts, batch_sizes=batches, scaling=scaling), node)
    assert len({entry.cell.id for entry in plan.cells}) == len(plan.cells) == len(counts) * len(batches)
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
