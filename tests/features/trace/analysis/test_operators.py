from __future__ import annotations

import io
import math
from collections.abc import Sequence
from typing import Any

import pytest

from tests.features.trace.readers.builders import host, kernel, kineto, read_rank, step
from torchscale.errors import TraceError
from torchscale.features.trace.analysis.operators import recorded_step
from torchscale.features.trace.span import Trace

STEPS = 4
PERIOD = 1000.0
"""Microseconds."""


def trace(ranks: Sequence[Sequence[dict[str, Any]]], **header: Any) -> Trace:
    """Read with the shapes of operators."""
    return Trace(
        tuple(
            read_rank(
                io.BytesIO(kineto(events, rank, len(ranks), **header).encode()),
                f"rank{rank}.json",
                with_shapes=True,
            )
            for rank, events in enumerate(ranks)
        ),
        "torch.profiler",
    )


def collective(name: str, elements: int) -> dict[str, Any]:
    """What NCCL's kernels have in their arguments."""
    return {"Collective name": name, "In msg nelems": elements, "dtype": "Float"}


def shapes(*inputs: Sequence[Any]) -> dict[str, Any]:
    """What operators have in their arguments where shapes are recorded."""
    return {"Input Dims": list(inputs)}


def on_device(*, matmul: float = 300.0, reduce: float = 200.0) -> list[dict[str, Any]]:
    """Steps of two products and an all-reduce that begins 50 µs before they end."""
    events = []
    for number in range(STEPS):
        origin = number * PERIOD
        events += [
            step(number, origin, PERIOD),
            kernel("gemm", origin, matmul),
            kernel("gemm", origin + matmul, matmul),
            kernel(
                "ncclDevKernel_AllReduce_Sum_f32",
                origin + 2 * matmul - 50,
                reduce,
                stream=9,
                **collective("allreduce", 256),
            ),
        ]
    return events


def test_kernels_exposed_collectives_and_the_rest_are_the_step() -> None:
    found = recorded_step(trace([on_device(), on_device(matmul=320.0)]))
    assert found.steps == STEPS - 1, "the first carries the skew of the profiler's start"
    assert found.seconds == pytest.approx(1e-3)
    assert found.operators["gemm"].count == 2
    assert found.operators["gemm"].seconds == pytest.approx(620e-6), "mean over ranks"
    (name,) = found.collectives
    assert name == "all_reduce 1.00 KiB"
    assert found.communication == pytest.approx(150e-6), "50 of 200 µs are under a product"
    assert found.rest == pytest.approx(1e-3 - 620e-6 - 150e-6)


def test_operators_of_other_shapes_are_told_apart() -> None:
    events = []
    for number in range(STEPS):
        origin = number * PERIOD
        small, large = shapes([8, 32], [32, 4], []), shapes([8, 64], [64, 4], [])
        events += [
            step(number, origin, PERIOD),
            host("cpu_op", "aten::mm", origin, 100.0, **small),
            host("cpu_op", "aten::mm", origin + 200, 300.0, **large),
            host("cpu_op", "aten::empty", origin + 210, 10.0, **shapes([], [])),
            host("cpu_op", "aten::relu", origin + 600, 50.0),
        ]
    found = recorded_step(trace([events], backend="gloo"))
    assert {name: round(use.seconds * 1e6) for name, use in found.operators.items()} == {
        "aten::mm [8×32, 32×4]": 100,
        "aten::mm [8×64, 64×4]": 300,
        "aten::relu": 50,
    }, "without those that others call"


def test_long_lists_of_tensors_are_cut() -> None:
    events = []
    for number in range(STEPS):
        origin = number * PERIOD
        events += [
            step(number, origin, PERIOD),
            host("cpu_op", "aten::cat", origin, 100.0, **shapes([[8, 32]] * 50, [])),
        ]
    (name,) = recorded_step(trace([events], backend="gloo")).operators
    assert name.startswith("aten::cat [8×32, 8×32, ")
    assert name.endswith("…]")
    assert len(name) < 100


def test_collectives_at_the_same_time_count_once() -> None:
    events = []
    for number in range(STEPS):
        origin = number * PERIOD
        events += [step(number, origin, PERIOD), kernel("gemm", origin, 100.0)]
        for stream, (op, size) in enumerate((("AllReduce", 256), ("AllGather", 1024))):
            name = f"ncclDevKernel_{op}"
            events.append(
                kernel(
                    name,
                    origin + 100 + 50 * stream,
                    200.0,
                    9 + stream,
                    **collective(op.lower(), size),
                )
            )
    found = recorded_step(trace([events]))
    assert found.communication == pytest.approx(250e-6)
    assert math.fsum(use.seconds for use in found.collectives.values()) == found.communication
    larger = max(found.collectives.values(), key=lambda use: use.seconds)
    assert larger.seconds == pytest.approx(200e-6), "the larger one counts in full"


def test_a_recording_without_steps_has_no_step() -> None:
    with pytest.raises(TraceError, match="no step that all ranks share"):
        recorded_step(trace([[kernel("gemm", 0.0, 100.0)]]))
