"""What other programs read: its keys are those of a committed list, and it is valid by the
published schemas."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, get_args

import jsonschema
import pytest

from tests.explanations import measured as measured_parts
from tests.factories import cells
from tests.features.bisect.test_change_verdict import change_export
from tests.features.bisect.test_verdict import bisection_export
from tests.features.compare.analysis.test_calibrated import baseline as calibrated
from tests.features.compare.analysis.test_calibrated import new
from tests.features.compare.analysis.test_compare import STEADY, result, scaled, side
from tests.features.compare.analysis.test_operators import AFTER, BEFORE
from tests.features.compare.analysis.test_peers import machine
from tests.features.compare.history.test_page import changed_history
from tests.features.decide.tune.test_strategy_table import strategies_export
from tests.features.decide.tune.test_tables import tuning_export
from tests.features.validate.acceptance.runs import a_run, baseline_of
from tests.features.validate.fleet.test_fleet import NAMES, fleet_node, times, with_driver
from tests.features.validate.fleet.test_speeds import fleet
from tests.features.validate.health.test_node import node
from tests.features.watch.hang.test_explain import looped, rank, waiting
from tests.report.sections.test_lost_time import diagnosed_run
from tests.report.test_machine import machine_summary, record
from torchscale.analysis.summary.result_set import result_set
from torchscale.analysis.summary.run import RunSummary, summarize
from torchscale.config.choices import ResultSchema
from torchscale.features.compare.analysis.cell_why import Clarity
from torchscale.features.compare.analysis.change import ChangeVerdict
from torchscale.features.compare.analysis.compare import compare
from torchscale.features.compare.analysis.differences import differences
from torchscale.features.compare.analysis.explanation import explain
from torchscale.features.compare.analysis.likely_cause import CauseBasis
from torchscale.features.compare.analysis.operators import (
    ComparedRecording,
    OperatorFate,
    compare_recorded,
)
from torchscale.features.compare.analysis.pair import CellOutcome
from torchscale.features.compare.analysis.peers import machine_places
from torchscale.features.compare.export import comparison_json
from torchscale.features.compare.export_schema import OutcomeName, VerdictName
from torchscale.features.compare.history.export import history_json
from torchscale.features.compare.peers_schema import PeersExport
from torchscale.features.compare.sections.document import ComparisonReport
from torchscale.features.compare.why_export_schema import BasisName, ClarityName, FateName
from torchscale.features.decide.forecast.export import prediction_json
from torchscale.features.decide.forecast.page import PredictionReport
from torchscale.features.decide.forecast.predict import predict_series
from torchscale.features.decide.forecast.series import MeasuredCount, make_series
from torchscale.features.machine.max_batch import BatchTrial, MaxBatchOutcome
from torchscale.features.validate.fleet.fleet import judge_fleet, judge_pairwise
from torchscale.features.validate.fleet.speeds import judge_speeds
from torchscale.features.validate.health.node import validate_facts
from torchscale.features.validate.health.required import Requirements
from torchscale.features.watch.hang.explain import explain_hang
from torchscale.read.schemas import results_schema
from torchscale.report.formats.columns import SUMMARY_COLUMNS
from torchscale.report.formats.export import summary_csv
from torchscale.report.formats.machine_export import ceilings_json
from torchscale.report.formats.report_export import summary_json
from torchscale.schema.cells.memory import MemoryCell, MemoryResult
from torchscale.schema.launch.telemetry import Telemetry
from torchscale.schema.node.acceptance import Acceptance, Counter, Power
from torchscale.schema.node.fleet import SlowRail
from torchscale.schema.node.probe import CollectiveFacts
from torchscale.schema.run.step_parts import StepPart
from torchscale.schema.state import State

KEYS: dict[str, list[str]] = json.loads((Path(__file__).parent / "published_keys.json").read_text())
FREE = {"config", "env"}
"""Keys under which names are the user's, or a config's."""


@cache
def measured() -> RunSummary:
    return machine_summary()


def profile_text() -> str:
    profile = diagnosed().cells[1].profile
    assert profile is not None
    return profile.model_dump_json()


@cache
def diagnosed() -> RunSummary:
    return summarize(diagnosed_run())


def comparison() -> ComparisonReport:
    first, second, third, *_ = cells(batch_sizes=[8, 16, 32])
    split = (measured_parts(cell=third), measured_parts({StepPart.FORWARD: 0.02}, cell=third))
    before = side(result(first), result(second), split[0], name="before")
    after = side(result(first, scaled(STEADY, 0.9)), split[1], name="after", threads_per_rank=3)
    pair = compare(before, after)
    recording = ComparedRecording("a cell", compare_recorded(BEFORE, AFTER))
    return ComparisonReport(
        (pair,),
        tuple(differences([before, after])),
        ("before", "after"),
        (),
        0.02,
        (1.0, 2.0),
        why=(replace(explain(pair), recordings=(recording,)),),
    )


def calibrated_comparison() -> ComparisonReport:
    return ComparisonReport((compare(calibrated(), new(100.0)),), (), ("before", "after"))


def peers() -> PeersExport:
    """A machine among two, one of them under other conditions."""
    others = [machine("a", [90.0]), machine("b", [90.0], torch="2.12")]
    return machine_places(machine("new", [100.0, 101.0]), others, ())


def predictions() -> PredictionReport:
    points = [
        MeasuredCount(gpus, gpus // 8, (gpus * rate,), 256.0 * gpus)
        for gpus, rate in ((8, 100.0), (16, 95.0))
    ]
    outcome = predict_series(make_series("ResNet-50", points), [32, 1024], price=2.5)
    return PredictionReport("points.csv", (outcome,), 2.5, ("8 GPUs a node assumed",))


def search() -> MaxBatchOutcome:
    cell = MemoryCell(training=next(cell for cell in cells() if cell.world_size == 1))
    fits = record(cell, Telemetry(seconds=1.0, readings=0))
    too_large = fits.model_copy(
        update={"state": State.OOM, "reason": "out of memory", "payload": MemoryResult()}
    )
    return MaxBatchOutcome(
        directory=Path("results"),
        model="tiny-resnet",
        batch_size=8,
        trials=(BatchTrial(cell, fits), BatchTrial(cell, too_large)),
        problem="",
        largest=64,
        interrupted=False,
    )


def autopsy_text() -> str:
    return explain_hang([waiting(0), rank(1, looped(19))]).model_dump_json()


def fleet_text() -> str:
    """Four nodes, one of them with another driver, and a slow link on both rails."""
    rails = [
        judge_pairwise(
            [0, 1, 2, 3],
            NAMES,
            times(4, {(1, 3): 1.6}, 1),
            {},
            backend="nccl",
            message_bytes=4,
            rail=rail,
            rails=2,
        )[0]
        for rail in range(2)
    ]
    nodes = [*(fleet_node(rank) for rank in range(3)), with_driver(3, "470.1")]
    slow = [SlowRail(rail=1, share=0.2)]
    facts = CollectiveFacts(backend="nccl", world_size=4)
    speeds = judge_speeds(fleet(4, {3: 0.8}), {})
    return judge_fleet(
        nodes, facts, rails, slow=slow, left_out=[2], speeds=speeds
    ).model_dump_json()


def accepted() -> Acceptance:
    """An acceptance that flaps, held against a baseline."""
    values = (1.0, 2.0) * 6
    run = a_run(
        {("all-reduce", "node"): values},
        counters=(Counter(part="eth0", counter="rx_errors", before=1, after=2),),
    )
    power = Power(rounds=3, round_seconds=9.0, noise=0.1, measured=2)
    return Acceptance(run=run, baseline=baseline_of(run), power=power)


DOCUMENTS: list[tuple[ResultSchema, str, Any]] = [
    (ResultSchema.REPORT, "report", lambda: summary_json(measured())),
    (ResultSchema.REPORT, "report of a diagnosed run", lambda: summary_json(diagnosed())),
    (ResultSchema.COMPARE, "compare", lambda: comparison_json(comparison())),
    (ResultSchema.PEERS, "peers", lambda: peers().model_dump_json()),
    (ResultSchema.MACHINE, "machine", lambda: ceilings_json(measured().machine)),
    (ResultSchema.MAX_BATCH, "max-batch", lambda: search().to_json()),
    (ResultSchema.PREDICT, "predict", lambda: prediction_json(predictions())),
    (ResultSchema.HISTORY, "history", lambda: history_json(changed_history())),
    (ResultSchema.TUNE, "tune", lambda: tuning_export().model_dump_json()),
    (ResultSchema.TUNE, "tune of strategies", lambda: strategies_export().model_dump_json()),
    (
        ResultSchema.BISECT,
        "bisect",
        lambda: (
            bisection_export()
            .model_copy(update={"change": change_export().change})
            .model_dump_json()
        ),
    ),
    (ResultSchema.PROFILE, "profile", profile_text),
    (
        ResultSchema.VALIDATE,
        "validate",
        lambda: validate_facts(node(), Requirements(), None, accepted()).model_dump_json(),
    ),
    (ResultSchema.FLEET, "fleet", fleet_text),
    (ResultSchema.AUTOPSY, "autopsy", autopsy_text),
    (ResultSchema.BASELINE, "baseline", lambda: result_set(measured(), "main").model_dump_json()),
    (ResultSchema.BASELINE, "calibrated baseline", lambda: calibrated(planned=2).model_dump_json()),
    (ResultSchema.COMPARE, "calibrated compare", lambda: comparison_json(calibrated_comparison())),
]


def key_paths(content: object, path: str = "") -> Iterator[str]:
    """``cells[].figures.step_p50`` for every key; what several entries of a list have is told
    once."""
    if isinstance(content, list):
        for item in content:
            yield from key_paths(item, f"{path}[]")
    elif isinstance(content, dict):
        for key, value in content.items():
            yield f"{path}.{key}".removeprefix(".")
            if key not in FREE:
                yield from key_paths(value, f"{path}.{key}".removeprefix("."))


def all_keys() -> dict[str, list[str]]:
    """As ``published_keys.json`` holds them."""
    return {name: sorted(set(key_paths(json.loads(text())))) for _, name, text in DOCUMENTS}


@pytest.mark.parametrize(
    ("schema", "name", "text"), DOCUMENTS, ids=[name for _, name, _ in DOCUMENTS]
)
def test_the_keys_that_other_programs_read_stay(schema: ResultSchema, name: str, text: Any) -> None:
    del schema
    assert sorted(set(key_paths(json.loads(text())))) == KEYS[name]


@pytest.mark.parametrize(
    ("schema", "name", "text"), DOCUMENTS, ids=[name for _, name, _ in DOCUMENTS]
)
def test_what_is_written_is_valid_by_the_published_schema(
    schema: ResultSchema, name: str, text: Any
) -> None:
    del name
    published = json.loads(results_schema(schema))
    validator = jsonschema.Draft202012Validator(published)
    validator.validate(json.loads(text()))
    assert not validator.is_valid({"schema_version": 1}), "an empty document is none"


@pytest.mark.parametrize("name", ResultSchema)
def test_a_published_schema_says_what_it_is_of(name: ResultSchema) -> None:
    published = json.loads(results_schema(name))
    jsonschema.Draft202012Validator.check_schema(published)
    assert re.fullmatch(rf"torchscale/results/{name.value}-\d+", published["$id"])
    assert published["title"].startswith("torchscale ")
    assert "`torchscale " in published["description"]


def test_every_document_is_tested() -> None:
    assert {schema for schema, _, _ in DOCUMENTS} == set(ResultSchema)


def test_a_document_of_a_later_version_with_more_keys_stays_valid() -> None:
    for schema, _, text in DOCUMENTS:
        document = json.loads(text())
        if isinstance(document, dict):
            jsonschema.Draft202012Validator(json.loads(results_schema(schema))).validate(
                {**document, "added": 1}
            )


def test_verdicts_and_outcomes_are_published_as_tables_show_them() -> None:
    assert set(get_args(VerdictName)) == {verdict.value for verdict in ChangeVerdict}
    assert set(get_args(OutcomeName)) == {outcome.value for outcome in CellOutcome}
    assert set(get_args(ClarityName)) == {clarity.value for clarity in Clarity}
    assert set(get_args(FateName)) == {fate.value for fate in OperatorFate}
    assert set(get_args(BasisName)) == {basis.value for basis in CauseBasis}


@pytest.mark.parametrize("summary", [measured, diagnosed])
def test_csv_has_the_declared_columns(summary: Any) -> None:
    header = next(csv.reader(io.StringIO(summary_csv(summary()))))
    assert tuple(header) == SUMMARY_COLUMNS
    assert list(SUMMARY_COLUMNS) == KEYS["summary.csv"]
