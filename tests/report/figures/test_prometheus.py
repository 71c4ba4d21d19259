"""The text format of Prometheus and OpenMetrics, read by its grammar."""

from __future__ import annotations

import math

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_prometheus

from tests.features.export.formats.exposition import Sample, parse
from tests.features.export.formats.runs import CHECKS, HOSTILE, NASTY, RUN, cell
from tests.report.test_machine import machine_summary
from torchscale.features.export.formats import openmetrics
from torchscale.report.figures import prometheus
from torchscale.report.figures.figure import ExportedRun, Figure
from torchscale.report.figures.run import exported_run
from torchscale.util.text import strip_control


def samples(run: ExportedRun) -> list[Sample]:
    """The samples of a run, the same in both formats, and the same for the client library of
    Prometheus."""
    text, open_text = prometheus.render(run).text, openmetrics.render(run).text
    found = parse(text)
    assert parse(open_text, openmetrics=True) == found
    for families in (parse_prometheus(text), parse_openmetrics(open_text)):
        theirs = [sample for family in families for sample in family.samples]
        assert [(each.name, each.labels) for each in theirs] == [
            (each.name, each.labels) for each in found
        ]
        assert [each.value for each in theirs] == pytest.approx(
            [each.value for each in found], nan_ok=True
        )
    return found


def test_a_figure_has_its_labels_and_the_ends_of_its_interval() -> None:
    values = {sample.name: sample for sample in samples(ExportedRun("nightly", (cell(),)))}
    labels = {"run": "nightly", "cell": "gpt2-n2", "model": "gpt2", "gpus": "2"}
    assert values["torchscale_samples_per_second"] == Sample(
        "torchscale_samples_per_second", labels, 1450.25
    )
    assert values["torchscale_samples_per_second_lower_95"].value == 1441
    assert values["torchscale_samples_per_second_upper_95"].value == 1459.5
    assert "torchscale_step_mean_seconds_lower_95" not in values
    assert values["torchscale_cell_info"].labels == {
        **labels,
        "kind": "training",
        "precision": "bf16",
    }
    assert values["torchscale_cell_state"].labels["state"] == "ok"


def test_what_was_not_measured_is_not_there() -> None:
    found = samples(RUN)
    failed = {sample.name for sample in found if sample.labels.get("cell") == "oom"}
    assert failed == {"torchscale_cell_info", "torchscale_cell_state"}
    (flag,) = [sample for sample in found if sample.name == "torchscale_cell_flag"]
    assert (flag.labels["cell"], flag.labels["flag"]) == ("flagged", "noisy")


def test_any_text_is_a_label() -> None:
    found = samples(HOSTILE)
    shown = strip_control(NASTY)  # none of them steers a terminal that shows them
    assert {sample.labels["run"] for sample in found} == {shown}
    assert shown in {sample.labels["cell"] for sample in found}


def test_checks_of_a_node_are_samples() -> None:
    assert [sample.labels["status"] for sample in samples(CHECKS)] == [
        "pass",
        "warn",
        "fail",
        "n/a",
    ]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.1, "0.1"),
        (3e9, "3000000000"),
        (1e300, "1e+300"),
        (-2.5, "-2.5"),
        (math.nan, "NaN"),
        (math.inf, "+Inf"),
    ],
)
def test_numbers_are_written_as_they_are(value: float, text: str) -> None:
    run = ExportedRun("r", (cell(figures=(Figure("x", "", 'a \\ " \n b', value),)),))
    line = prometheus.render(run).text.splitlines()[-1]
    assert line.endswith(f"}} {text}")
    assert len(parse(prometheus.render(run).text)) == 3


def test_a_whole_run_of_every_kind_is_exported() -> None:
    summary = machine_summary()
    found = samples(exported_run(summary))
    names = {sample.name.removeprefix("torchscale_") for sample in found}
    assert {
        "matmul_flops_per_second",
        "bus_bandwidth_bytes_per_second",
        "peak_memory_bytes",
    } <= names
    rates = {
        sample.labels["cell"]: sample.value
        for sample in found
        if sample.name == "torchscale_samples_per_second"
    }
    assert rates == {
        cell.cell.id: cell.figures.samples_per_second for cell in summary.measured if cell.figures
    }
    assert rates
    unmeasured = {sample.labels["cell"] for sample in found if sample.labels.get("state") == "oom"}
    assert len(unmeasured) == 2
    others = {sample.name for sample in found if sample.labels["cell"] in unmeasured}
    assert others == {"torchscale_cell_info", "torchscale_cell_state"}


def test_the_reader_refuses_what_is_wrong() -> None:
    good = prometheus.render(RUN).text
    for wrong in (
        good[:-1],
        good.replace("# TYPE torchscale_cell_state gauge\n", ""),
        good + good.splitlines()[-1] + "\n",
        good.replace('="nightly"', "=nightly"),
        good.replace(" 1450.25", " many"),
    ):
        assert wrong != good
        with pytest.raises(ValueError):
            parse(wrong)
