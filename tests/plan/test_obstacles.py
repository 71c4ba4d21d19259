"""What a plan knows cannot run, and why."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.factories import experiment, machine
from torchscale.plan.expand import Plan, make_plan
from torchscale.schema.node.environment import DeviceInfo
from torchscale.schema.node.machine import Machine


def reason(cores: int = 16, gpus: int = 0, **content: Any) -> str | None:
    """Why the one cell of an experiment is skipped."""
    settings = {"models": "tiny-decoder", "batch_sizes": 8, "gpu_counts": 4, **content}
    (entry,) = make_plan(experiment(**settings), machine(gpus=gpus, cores=cores)).cells
    return entry.skip_reason


def strategy(name: str, **options: Any) -> dict[str, Any]:
    return {"strategy": {"name": name, **options}}


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (
            {"parallel": strategy("tensor"), "model": {"compile": "max-autotune"}},
            "compile max-autotune may choose other kernels on each tensor-parallel rank",
        ),
        ({"parallel": strategy("none")}, "strategy none runs on one device, not 4"),
        (
            {"parallel": strategy("hybrid", tensor=3)},
            "hybrid: replicate 1 × shard 1 × tensor 3 × pipeline 1 does not multiply to 4 devices",
        ),
        (
            {"models": "gpt2", "parallel": strategy("tensor")},
            "gpt2 does not support tensor parallelism; decoder, llama and moe models do",
        ),
        (
            {"models": "tiny-llama", "parallel": strategy("sequence")},
            "tiny-llama does not support sequence parallelism; decoder",
        ),
        (
            {"models": "tiny-llama", "parallel": strategy("pipeline")},
            "tiny-llama does not support pipeline parallelism; decoder",
        ),
        (
            {"models": {"name": "tiny-decoder", "num_heads": 2}, "parallel": strategy("tensor")},
            "2 attention heads do not divide over 4 tensor-parallel devices",
        ),
        (
            {"models": "llama-8b", "gpu_counts": 16, "cores": 16, "parallel": strategy("tensor")},
            "8 attention heads do not divide over 16 tensor-parallel devices",
        ),
        (
            {"models": {"name": "tiny-decoder", "seq_len": 63}, "parallel": strategy("sequence")},
            "63 tokens do not divide over 4 devices along the sequence",
        ),
        (
            {"models": {"name": "tiny-decoder", "num_layers": 3}, "parallel": strategy("pipeline")},
            "3 layers are too few for 4 pipeline stages",
        ),
        (
            {"parallel": strategy("pipeline", microbatches=2)},
            "needs at least 4 microbatches, not 2",
        ),
        (
            {
                "models": {"name": "tiny-decoder", "num_layers": 8},
                "parallel": strategy("pipeline", schedule="interleaved", microbatches=6),
            },
            "6 microbatches do not divide by the 4 devices of an interleaved schedule",
        ),
        (
            {"parallel": strategy("pipeline", microbatches=5)},
            "the 32 samples per step and model replica do not divide by 5",
        ),
        (
            {"training": {"gradient_accumulation": 3}},
            "the 8 samples per step and model replica do not divide by 3 passes",
        ),
        (
            {"parallel": strategy("pipeline"), "training": {"gradient_accumulation": 2}},
            "set gradient_accumulation: 1",
        ),
        (
            {"parallel": strategy("model"), "training": {"gradient_accumulation": 2}},
            "set gradient_accumulation: 1",
        ),
        (
            {"parallel": strategy("tensor"), "training": {"precision": "fp16"}},
            "fp16's gradient scaler",
        ),
        (
            {"model": {"compile": True}, "parallel": strategy("hybrid", shard=2, tensor=2)},
            "torch.compile fails on tensor parallelism combined with data parallelism",
        ),
        (
            {"parallel": strategy("ep")},
            "tiny-decoder does not support expert parallelism; moe models do",
        ),
        (
            {"models": "tiny-moe", "parallel": strategy("sequence")},
            "tiny-moe does not support sequence parallelism; decoder models do",
        ),
        (
            {"models": {"name": "tiny-moe", "num_experts": 6}, "parallel": strategy("ep")},
            "6 experts do not divide over 4 devices",
        ),
        (
            {
                "models": {"name": "tiny-moe", "expert_size": 129},
                "parallel": strategy("hybrid", shard=2, ep=2),
            },
            "expert_size 129 of experts does not divide over 2 shards",
        ),
        (
            {
                "models": "tiny-moe",
                "parallel": strategy("ep"),
                "training": {"precision": "fp16"},
            },
            "fp16's gradient scaler does not know of gradients that overflow in another rank's",
        ),
        (
            {
                "models": "tiny-moe",
                "parallel": strategy("ep", dense="fsdp"),
                "training": {"activation_checkpointing": "selective"},
            },
            "selective activation checkpointing does not support experts that FSDP2 shards",
        ),
        (
            {"models": "tiny-resnet", "parallel": strategy("cp")},
            "tiny-resnet takes images: it has no sequence of tokens to split",
        ),
        (
            {"models": "tiny-bert", "parallel": strategy("cp")},
            "tiny-bert does not support context parallelism; decoder, gpt2, llama and moe models "
            "do, or your own",
        ),
        (
            {"models": {"name": "tiny-decoder", "seq_len": 60}, "parallel": strategy("cp")},
            "sequences of 60 tokens do not divide into 8 chunks, two for each of 4 devices",
        ),
        (
            {
                "models": {"name": "tiny-decoder", "seq_len": 12},
                "parallel": strategy("hybrid", tensor=4, sequence=True, cp=2),
                "gpu_counts": 8,
            },
            "6 tokens do not divide over 4 devices along the sequence",
        ),
        (
            {"model": {"compile": True}, "parallel": strategy("hybrid", tensor=2, cp=2)},
            "torch.compile fails on tensor parallelism combined with data parallelism",
        ),
        (
            {"models": "tiny-moe", "parallel": strategy("hybrid", cp=2, tensor=2)},
            "models with experts that are split along the sequence and by tensor or pipeline "
            "parallelism were never compared with a single process; use cp with copies, shard or ep",
        ),
        (
            {"parallel": strategy("hybrid", cp=3)},
            "tensor 1 × pipeline 1 × context 3 does not multiply to 4 devices",
        ),
        ({"training": {"precision": "fp8"}}, "fp8 needs a CUDA device"),
        ({"training": {"precision": "mxfp8"}}, "mxfp8 needs a CUDA device"),
        (
            {"training": {"precision": "nvfp4"}, "parallel": strategy("tensor")},
            "nvfp4 cannot be combined with tensor",
        ),
        (
            {"training": {"precision": "fp8"}, "parallel": strategy("tensor")},
            "fp8 cannot be combined with tensor",
        ),
        ({"parallel": strategy("ddp", comm_hook="bf16")}, "comm_hook bf16 needs NCCL"),
        ({"data": {"source": "cifar100"}}, "cifar100 has images, but tiny-decoder takes tokens"),
        (
            {"models": "tiny-resnet", "data": {"source": "cifar100"}},
            "cifar100 has 100 classes, tiny-resnet has num_classes=10",
        ),
        ({"gpu_counts": 32}, "needs 32 devices; there are 16 CPU ranks of 1 core"),
    ],
)
def test_what_cannot_run_is_skipped_with_its_reason(content: dict[str, Any], told: str) -> None:
    found = reason(**content)
    assert found is not None
    assert told in found


@pytest.mark.parametrize(
    ("torch", "name", "device", "told"),
    [
        ("2.6.0+cu124", "fsdp", "cpu", "FSDP on CPUs needs PyTorch 2.7; this is 2.6.0+cu124"),
        ("2.6.0", "pipeline", "cpu", "a pipeline on CPUs needs PyTorch 2.8; this is 2.6.0"),
        ("2.7.1", "model", "cpu", "a pipeline on CPUs needs PyTorch 2.8; this is 2.7.1"),
        ("2.7.1", "fsdp", "cpu", None),
        ("2.8.0", "pipeline", "cpu", None),
        ("2.6.0", "tensor", "cpu", None),
        ("2.6.0", "fsdp", "cuda", None),
        ("2.6.0", "pipeline", "cuda", None),
        ("3.0.0a0+git", "pipeline", "cpu", None),
        ("unknown", "pipeline", "cpu", None),
    ],
)
def test_what_an_older_torch_cannot_do_on_cpus(
    torch: str, name: str, device: str, told: str | None
) -> None:
    node = machine(gpus=4, cores=16)
    environment = node.environment
    versions = environment.versions.model_copy(update={"torch": torch})
    node = replace(node, environment=environment.model_copy(update={"versions": versions}))
    settings: dict[str, Any] = {
        "models": "tiny-decoder",
        "batch_sizes": 8,
        "gpu_counts": 4,
        "device": device,
    }
    (entry,) = make_plan(experiment(**settings, parallel=strategy(name)), node).cells
    assert entry.skip_reason == told


@pytest.mark.parametrize(
    "content",
    [
        {"parallel": strategy("tensor")},
        {"models": "my_models:build", "parallel": strategy("pipeline")},
        {"models": "hf:here/config.json", "model": {"channels_last": True}},
        {"models": {"name": "tiny-resnet", "num_classes": 100}, "data": {"source": "cifar100"}},
        {"training": {"gradient_accumulation": 4}},
        {"parallel": strategy("cp"), "training": {"precision": "fp16"}},
        {"models": "tiny-gpt2", "parallel": strategy("cp", degree=2, parameters="fsdp")},
        {"models": "my_models:build", "parallel": strategy("cp")},
        {"gpu_counts": 32, "cores": 2, "launch": {"oversubscribe": True}},
    ],
)
def test_what_may_run_does(content: dict[str, Any]) -> None:
    assert reason(**content) is None


def test_fp8_needs_a_device_that_has_it() -> None:
    settings = {
        "models": "tiny-decoder",
        "batch_sizes": 8,
        "gpu_counts": 1,
        "training": {"precision": "fp8"},
    }
    for capability, told in (
        ("8.0", "fp8 needs compute capability 8.9; NVIDIA H100 has 8.0"),
        ("9.0", None),
    ):
        (entry,) = make_plan(experiment(**settings), machine(gpus=1, capability=capability)).cells
        assert entry.skip_reason == told


@pytest.mark.parametrize("precision", ["mxfp8", "nvfp4"])
@pytest.mark.parametrize(
    ("capability", "torchao", "told"),
    [
        ("9.0", "0.18.0", "{} needs compute capability 10.0; NVIDIA H100 has 9.0"),
        ("10.0", None, "{} needs torchao 0.18, which is not installed: pip install"),
        ("10.0", "0.9.1", "{} needs torchao 0.18; this is 0.9.1: pip install"),
        ("10.0", "0.18.0+cu130", ""),
        ("10.3", "1.0.0", ""),
        ("12.0", "not known", ""),
    ],
)
def test_block_scaled_products_need_blackwell_and_torchao(
    precision: str, capability: str, torchao: str | None, told: str
) -> None:
    settings = {
        "models": "tiny-decoder",
        "batch_sizes": 8,
        "gpu_counts": 1,
        "training": {"precision": precision},
    }
    there = machine(gpus=1, capability=capability)
    versions = there.environment.versions.model_copy(update={"torchao": torchao})
    environment = there.environment.model_copy(update={"versions": versions})
    (entry,) = make_plan(experiment(**settings), replace(there, environment=environment)).cells
    assert (entry.skip_reason or "").startswith(told.format(precision))
    assert bool(entry.skip_reason) == bool(told)


def test_a_clock_that_stops_the_device_takes_no_pipeline() -> None:
    settings = {
        "models": "tiny-decoder",
        "batch_sizes": 8,
        "gpu_counts": 2,
        "benchmark": {"sync_cuda": True},
    }
    for name, told in (
        ("ddp", None),
        ("pipeline", "sync_cuda (and the clock for xpu) would synchronize the device between"),
    ):
        (entry,) = make_plan(experiment(**settings, parallel=strategy(name)), machine(gpus=2)).cells
        assert (entry.skip_reason or "").startswith(told or "")
        assert (entry.skip_reason is None) == (told is None)


def test_ranks_beyond_the_last_device_begin_again_with_the_first() -> None:
    content = {"gpu_counts": [1, 2, 4], "launch": {"oversubscribe": True}}
    plan = make_plan(experiment(**content), machine(cores=2))
    assert plan.cpu_sets(2) == ((0,), (1,))
    assert plan.cpu_sets(4) == ((0,), (1,), (0,), (1,))
    assert [plan.is_oversubscribed(count) for count in (1, 2, 4)] == [False, False, True]
    on_cuda = make_plan(experiment(**content), machine(gpus=2))
    assert on_cuda.device_indices_of(4) == (0, 1, 0, 1)
    assert on_cuda.is_oversubscribed(4)


def two_nodes(**launch: Any) -> Plan:
    """Four GPUs, of which 0 and 2 hang on node 0."""
    base = machine(gpus=4, cores=8)
    nodes = {0: 0, 1: 1, 2: 0, 3: 1}
    devices = tuple(
        DeviceInfo(**{**info.model_dump(), "numa_node": nodes[info.index]})
        for info in base.environment.devices
    )
    environment = base.environment.model_copy(update={"devices": devices})
    here = Machine(environment, base.cores, {0: (0, 1, 2, 3), 1: (4, 5, 6, 7)})
    return make_plan(experiment(gpu_counts=[1, 2, 4], launch=launch), here)


def test_a_smaller_count_fills_one_numa_node_first_and_binds_to_it() -> None:
    plan = two_nodes()
    assert plan.device_indices_of(2) == (0, 2)
    assert plan.cpu_sets(2) == ((0, 1, 2, 3), (0, 1, 2, 3))
    assert plan.device_indices_of(4) == (0, 2, 1, 3)
    assert plan.cpu_sets(4) == ((0, 1, 2, 3), (0, 1, 2, 3), (4, 5, 6, 7), (4, 5, 6, 7))


def test_spread_devices_unbound_ranks_and_an_order_of_ones_own() -> None:
    assert two_nodes(placement="spread").device_indices_of(2) == (0, 1)
    assert two_nodes(numa_binding=False).cpu_sets(2) is None
    assert two_nodes(devices=[3, 1, 0, 2]).device_indices_of(2) == (3, 1)
    assert (
        make_plan(experiment(gpu_counts=[2]), machine(gpus=2)).cpu_sets(2) is None
    )  # nodes are not known


def test_checkpoints_need_a_state_that_is_known_and_a_place_that_all_share() -> None:
    settings: dict[str, Any] = {"measure": ["checkpoint"], "gpu_counts": 2}
    assert reason(**settings) is None
    assert reason(**settings, parallel=strategy("zero1")) == (
        "zero1 keeps optimizer states that torch.distributed.checkpoint does not know"
    )
    script: dict[str, Any] = {"models": {"script": "train.py --batch-size {batch_size}"}}
    assert (reason(**settings, **script) or "").startswith("checkpoints of a script of your own")
    nodes: dict[str, Any] = {"launch": {"nodes": 2, "devices_per_node": 1}}
    assert reason(**settings, **nodes) == (
        "several nodes need a directory that all share: set checkpoint.path"
    )
    assert reason(**settings, **nodes, checkpoint={"path": "/scratch"}) is None
    assert "strategy none runs on one device" in (
        reason(**settings, parallel=strategy("none")) or ""
    )


TEXT = {"lengths": {"median": 20, "sigma": 1.0}}


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (
            {"models": "gpt2", "data": TEXT},
            "gpt2 takes samples of one length; data.lengths needs a decoder or moe model",
        ),
        (
            {"data": {**TEXT, "source": "shards"}},
            "shards has samples of one length; data.lengths needs synthetic data",
        ),
        (
            {"data": TEXT, "parallel": strategy("pipeline")},
            "data.lengths is not supported where devices pass a sample on or share its tokens",
        ),
        (
            {"models": "tiny-moe", "data": TEXT},
            "experts would compute the padding as well; use data.packing: packed",
        ),
        (
            {
                "models": {
                    "name": "tiny-decoder",
                    "num_heads": 3,
                    "hidden_size": 96,
                    "seq_len": 63,
                },
                "data": TEXT,
                "gpu_counts": 3,
                "batch_sizes": 3,
                "parallel": strategy("sequence"),
            },
            "samples are padded to a multiple of 8 tokens, which 3 devices along the sequence",
        ),
    ],
)
def test_samples_of_different_lengths_need_what_takes_them(
    content: dict[str, Any], told: str
) -> None:
    assert (reason(**content) or "").startswith(told)


@pytest.mark.parametrize(
    "content",
    [
        {"data": TEXT},
        {"data": TEXT, "parallel": strategy("sequence")},
        {"data": {**TEXT, "packing": "packed"}, "parallel": strategy("fsdp")},
        {"models": "tiny-moe", "data": {**TEXT, "packing": "packed"}, "parallel": strategy("ep")},
        {"data": {**TEXT, "source": "synthetic-host"}},
    ],
)
def test_samples_of_different_lengths_are_no_obstacle_else(content: dict[str, Any]) -> None:
    assert reason(**content) is None


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ({"parallel": strategy("hybrid", ep=2, tensor=2)}, None),
        ({"parallel": strategy("hybrid", ep=2, pipeline=2)}, None),
        ({"parallel": strategy("hybrid", tensor=2, pipeline=2)}, None),
        ({"parallel": strategy("hybrid", shard=2, tensor=2)}, None),
        (
            {"gpu_counts": 8, "parallel": strategy("hybrid", ep=2, tensor=2, shard=2)},
            "experts that are spread over devices, sharded by FSDP2 and split by tensor",
        ),
        (
            {"gpu_counts": 8, "parallel": strategy("hybrid", ep=2, pipeline=2, data=2)},
            "copies of experts are averaged as soon as a gradient is there",
        ),
        (
            {
                "models": {"name": "tiny-moe", "kv_rank": 24, "rope_size": 16},
                "parallel": strategy("hybrid", ep=2, tensor=2),
            },
            "tensor parallelism does not split latent attention",
        ),
        (
            {
                "models": {"name": "tiny-moe", "expert_size": 63},
                "parallel": strategy("hybrid", ep=2, tensor=2),
            },
            "expert_size 63 does not divide over 2 tensor-parallel devices",
        ),
        (
            {
                "models": {"name": "tiny-moe", "num_kv_heads": 1},
                "parallel": strategy("hybrid", ep=2, tensor=2),
            },
            "1 attention heads do not divide over 2 tensor-parallel devices",
        ),
    ],
)
def test_experts_in_one_mesh_with_other_splits(content: dict[str, Any], told: str | None) -> None:
    found = reason(**{"models": "tiny-moe", **content})
    assert found is None if told is None else (found or "").startswith(told)
