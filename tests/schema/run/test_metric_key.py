from __future__ import annotations

import json
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchscale.config.choices import OPERATIONS, ElementType, MatmulType, Metric
from torchscale.schema.cells.hardware import CopyKind
from torchscale.schema.run.metric_key import MetricKey
from torchscale.schema.run.result_set import LaunchFigures

SINGLE = [metric for metric in Metric if metric not in (Metric.BUSBW, Metric.COMPUTE, Metric.COPY)]
KEYS = st.one_of(
    st.builds(MetricKey, metric=st.sampled_from(SINGLE)),
    st.builds(
        MetricKey,
        metric=st.just(Metric.BUSBW),
        operation=st.sampled_from(OPERATIONS),
        dtype=st.sampled_from(get_args(ElementType)),
    ),
    st.builds(
        MetricKey, metric=st.just(Metric.COMPUTE), dtype=st.sampled_from(get_args(MatmulType))
    ),
    st.builds(
        MetricKey,
        metric=st.just(Metric.COPY),
        copy_kind=st.sampled_from(get_args(CopyKind)),
        pinned=st.sampled_from([None, True, False]),
    ),
)


@given(KEYS)
def test_a_key_survives_its_text(key: MetricKey) -> None:
    assert MetricKey.model_validate(key.text) == key
    assert key.text == "/".join([key.metric.value, *key.detail.split()])


@given(KEYS, st.floats(1e-9, 1e18))
def test_figures_survive_a_file(key: MetricKey, value: float) -> None:
    figures = LaunchFigures(started_at="2026-01-01T00:00:00Z", values={key: value})
    assert json.loads(figures.model_dump_json())["values"] == {key.text: value}
    assert LaunchFigures.model_validate_json(figures.model_dump_json()) == figures


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (MetricKey(metric=Metric.STEP_P95), "step-p95"),
        (
            MetricKey(metric=Metric.BUSBW, operation="all_reduce", dtype="fp32"),
            "busbw/all_reduce/fp32",
        ),
        (MetricKey(metric=Metric.COMPUTE, dtype="bf16"), "compute/bf16"),
        (MetricKey(metric=Metric.COPY, copy_kind="device"), "copy/device"),
        (
            MetricKey(metric=Metric.COPY, copy_kind="host_to_device", pinned=False),
            "copy/host_to_device/pageable",
        ),
    ],
)
def test_the_text_of_a_key_is_what_files_have_always_had(key: MetricKey, text: str) -> None:
    assert key.text == text


@pytest.mark.parametrize(
    "text",
    ["", "speed", "throughput/fp32", "busbw", "busbw/all_reduce", "busbw/all_reduce/fp4", "busbw/shuffle/fp32",
     "compute", "copy", "copy/sideways", "copy/device/frozen", "copy/device/pinned/twice"],
)  # fmt: skip
def test_a_text_that_is_no_key_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="MetricKey"):
        MetricKey.model_validate(text)
