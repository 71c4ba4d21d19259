"""One of four nodes lies in an acceptance, through the real channel: nobody is told to be fit for
what nobody measured, no honest node is accused, and nothing raises."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.features.cluster.nodes.test_leader import SOON, Nodes
from tests.features.validate.acceptance.runs import a_run, noisy
from tests.features.validate.fleet.test_checks import follow
from tests.features.validate.fleet.test_tables import printed
from tests.features.validate.health.test_node import node as facts
from torchscale.errors import ExitCode
from torchscale.features.cluster.nodes.messages import CheckStep
from torchscale.features.cluster.nodes.roles import Conclusion
from torchscale.features.validate.fleet import node_part
from torchscale.features.validate.fleet.checks import RESULT, IsOver, RunPart
from torchscale.features.validate.fleet.node_part import FleetOptions
from torchscale.features.validate.fleet.run import FleetOutcome
from torchscale.features.validate.fleet.steps import FleetSteps
from torchscale.features.validate.health.node import validate_facts
from torchscale.features.validate.health.required import Requirements
from torchscale.features.validate.run.acceptance import AcceptanceOptions
from torchscale.features.validate.run.validate import ValidationOutcome
from torchscale.launch.control import StopRequest
from torchscale.observer import SILENT
from torchscale.schema.node.acceptance import Acceptance
from torchscale.schema.node.fleet import FleetValidation, NodeReport
from torchscale.schema.node.policy import Policy, Subject
from torchscale.schema.node.probe import CollectiveFacts
from torchscale.schema.node.validation import Disposition, Validation

LIAR = 2
ROUNDS = 8
GPUS = 8
Report = dict[str, Any]
Lie = Callable[[Report], object]
"""Changes what a node sends, as JSON."""


def now(seconds: float = 0.0) -> str:
    """So many seconds from now, as a round says when it began."""
    return datetime.fromtimestamp(time.time() + seconds, timezone.utc).isoformat(timespec="seconds")


def honest(rank: int, factor: float = 1.0) -> Validation:
    """What a sound node sends; ``factor``: on all of its rates."""
    hostname, rng = f"n{rank}", np.random.default_rng(rank)
    uuids = [f"{rank}-{it}" for it in range(GPUS)]
    base = facts(GPUS)
    assert base.host is not None
    assert base.driver is not None
    assert base.software is not None
    gpus = [
        gpu.model_copy(update={"uuid": f"GPU-{uuid}"})
        for gpu, uuid in zip(base.driver.gpus, uuids, strict=True)
    ]
    own = base.model_copy(
        update={
            "host": base.host.model_copy(update={"hostname": hostname}),
            "driver": base.driver.model_copy(update={"gpus": tuple(gpus)}),
            "software": base.software.model_copy(update={"cuda_uuids": tuple(uuids)}),
        }
    )
    speeds = {("training", "node"): noisy(rng, 900.0 * factor, ROUNDS)}
    speeds |= {
        ("memory bandwidth", f"GPU {it}"): noisy(rng, 3e12 * factor, ROUNDS) for it in range(GPUS)
    }
    run = a_run(speeds, hostname=hostname)
    rounds = [{**it.model_dump(), "started_at": now(), "seconds": 0.001} for it in run.rounds]
    series = [
        {**it.model_dump(), "uuids": [uuids[int(it.uuids[0])]] if it.uuids else []}
        for it in run.series
    ]
    run = type(run).model_validate({**run.model_dump(), "rounds": rounds, "series": series})
    return validate_facts(own, Requirements(), None, Acceptance(run=run))


def report_of(rank: int, factor: float = 1.0) -> Report:
    """The same as it is sent."""
    return dict(json.loads(NodeReport(validation=honest(rank, factor)).model_dump_json()))


def run_of(report: Report) -> Report:
    """What it measured."""
    return dict.__getitem__(report["validation"]["acceptance"], "run")


@pytest.fixture
def four(monkeypatch: pytest.MonkeyPatch) -> Iterator[Nodes]:
    """Four nodes that have met, of which the first measures nothing for real."""
    monkeypatch.setattr(
        node_part, "validate", lambda **_: ValidationOutcome(honest(0), lacks_required=False)
    )
    monkeypatch.setattr(node_part, "run_collective", all_is_well)
    nodes = Nodes(4)
    for rank in (1, 2, 3):
        nodes.join(rank)
    nodes.meet()
    yield nodes
    nodes.close()


def all_is_well(step: CheckStep, place: object, directory: Path, **_: object) -> str:
    """A collective over all nodes."""
    result = CollectiveFacts(backend="nccl", world_size=step.nodes * step.ranks, elements=1)
    (directory / RESULT).write_text(result.model_dump_json())
    return ""


def sends(text: str) -> RunPart:
    """A node that sends this of its own checks, and takes part in the collective."""

    def run(step: CheckStep, directory: Path, is_over: IsOver) -> str:
        del is_over
        if step.kind == "node":
            (directory / RESULT).write_text(text)
        return ""

    return run


def checked(
    nodes: Nodes, directory: Path, texts: dict[int, str], *, accept: bool = True
) -> FleetValidation:
    """What the first node says of nodes that send ``texts``."""
    asked = AcceptanceOptions(policy=Policy(looked_at=(Subject.MEMORY, Subject.TRAINING)))
    options = FleetOptions(acceptance=asked if accept else None, output_dir=directory)
    steps = FleetSteps(
        nodes.leader, options, StopRequest(), SILENT, directory, conclusion=Conclusion()
    )
    threads: list[threading.Thread] = []

    def serve() -> None:
        for _ in ("node", "collective"):
            each = [
                follow(follower, sends(texts[rank]))
                for rank, follower in enumerate(nodes.followers, start=1)
            ]
            for thread in each:
                thread.join(SOON)

    serving = threading.Thread(target=serve)
    serving.start()
    threads.append(serving)
    fleet = steps.check()
    for thread in threads:
        thread.join(SOON)
        assert not thread.is_alive()
    return fleet


def with_a_lie(
    nodes: Nodes, directory: Path, lie: Lie, *, slow: dict[int, float] | None = None
) -> FleetValidation:
    """The fleet of four of which one node lies; ``slow``: factors on the rates of others."""
    reports = {rank: report_of(rank, (slow or {}).get(rank, 1.0)) for rank in (1, 2, 3)}
    changed = lie(reports[LIAR])
    texts = {rank: json.dumps(report) for rank, report in reports.items()}
    if isinstance(changed, str):
        texts[LIAR] = changed
    return checked(nodes, directory, texts)


def accused(fleet: FleetValidation) -> set[int]:
    """Nodes that are unfit or slow."""
    unfit = {node.node_rank for node in fleet.nodes if not node.fit}
    low = {figure.node_rank for figure in fleet.speeds.low} if fleet.speeds else set()
    assert fleet.speeds is not None
    return unfit | low | set(fleet.speeds.implausible)


def test_four_honest_nodes_are_fit(four: Nodes, tmp_path: Path) -> None:
    fleet = with_a_lie(four, tmp_path, lambda report: None)
    assert fleet.verdict == "Keep: put them into service. All 4 nodes are fit."
    assert fleet.disposition is Disposition.KEEP
    assert accused(fleet) == set()
    assert fleet.speeds is not None
    assert len(fleet.speeds.figures) == 4 * (2 + GPUS)
    for node in fleet.nodes:
        assert node.validation is not None
        assert {part.disposition for part in node.validation.parts} == {Disposition.KEEP}


def each_series(change: Callable[[Report], object]) -> Lie:
    """Change every series."""

    def lie(report: Report) -> None:
        for series in run_of(report)["series"]:
            change(series)

    return lie


def scaled(factor: float, figure: str = "") -> Lie:
    """All rates, or those of a figure, times a factor."""

    def change(series: Report) -> None:
        if series["figure"].startswith(figure):
            series["values"] = [value * factor for value in series["values"]]

    return each_series(change)


def every_round(**values: object) -> Lie:
    """Change every round."""

    def lie(report: Report) -> None:
        for each in run_of(report)["rounds"]:
            each.update(values)

    return lie


def of_run(**values: object) -> Lie:
    """Change what is measured."""
    return lambda report: run_of(report).update(values)


def of_host(name: str) -> Lie:
    return lambda report: report["validation"]["facts"]["host"].update(hostname=name)


def without_acceptance(report: Report) -> None:
    report["validation"]["acceptance"] = None
    report["validation"]["verdict"] = "Fit for training on 8 GPUs."


def of_a_gpu_of_another(report: Report) -> None:
    run_of(report)["series"][1]["uuids"] = ["GPU-of-somebody-else"]


def a_round_twice(report: Report) -> None:
    for series in run_of(report)["series"]:
        series["values"][5] = series["values"][1]


def a_series_twice(report: Report) -> None:
    run_of(report)["series"].append(run_of(report)["series"][0])


def documented_device(report: Report) -> None:
    for series in run_of(report)["series"][1:]:
        series["device"] = "NVIDIA H100 80GB HBM3"
        series["values"] = [value * 10 for value in series["values"]]


def nothing_of_anything(report: Report) -> None:
    run_of(report).update(rounds=[], series=[])


def as_text(old: str, new: str) -> Lie:
    """Change the text that is sent."""
    return lambda report: json.dumps(report).replace(old, new, 1)


def number_without_end(report: Report) -> None:
    report["validation"]["facts"]["host"]["memory_bytes"] = 10**4000


LIES: dict[str, tuple[Lie, str]] = {
    "no acceptance": (without_acceptance, "it sent nothing of the acceptance"),
    "the name of another node": (of_run(hostname="n1"), "the figures of another host, n1"),
    "the facts of another node": (of_host("n1"), "the facts of another host, n1"),
    "an earlier day": (every_round(started_at=now(-86400)), "which is not in this check"),
    "a later day": (every_round(started_at=now(86400)), "which is not in this check"),
    "no time": (every_round(started_at="x" * 9000), "no result that this version understands"),
    "no time zone": (
        every_round(started_at="9999-12-31T23:59:59"),
        "no result that this version understands",
    ),
    "rounds that take days": (every_round(seconds=1e6), "longer than this check"),
    "a round twice": (a_round_twice, "rounds 2 and 6 are one measurement"),
    "a series twice": (a_series_twice, "no result that this version understands"),
    "a constant": (
        each_series(lambda series: series.update(values=[1.5] * ROUNDS)),
        "rounds 1 and 2 are one measurement",
    ),
    "more ranks than GPUs": (of_run(world_size=10**6), "1000000 ranks on 8 GPUs"),
    "a GPU of another": (of_a_gpu_of_another, "of a GPU that it does not have"),
    "beyond what is documented": (documented_device, "is impossible"),
    "fewer values than rounds": (
        each_series(lambda series: series.update(values=series["values"][:3])),
        "no result that this version understands",
    ),
    "NaN": (as_text("900.", "NaN, 900."), "no result that this version understands"),
    "not a number": (scaled(float("nan")), "no result that this version understands"),
    "infinite": (scaled(float("inf")), "no result that this version understands"),
    "zero": (scaled(0.0), "no result that this version understands"),
    "negative": (scaled(-1.0), "no result that this version understands"),
    "the largest float": (scaled(1e290), "no result that this version understands"),
    "the least float": (scaled(1e-320), "no result that this version understands"),
    "no JSON": (as_text("{", "}"), "no result that this version understands"),
    "a list without end": (lambda report: "[" * 100_000, "no result that this version"),
    "a number without end": (number_without_end, "it sent"),
    "a figure's name without end": (
        each_series(lambda series: series.update(figure="x" * 1_000_000)),
        "no result that this version understands",
    ),
    "a version without end": (
        of_run(versions={"kernel": "x" * 1_000_000}),
        "it sent a text of 1,000,000 characters",
    ),
    "a verdict without end": (
        lambda report: report["validation"]["facts"]["host"].update(addresses=["y" * 1_000_000]),
        "it sent a text of 1,000,000 characters",
    ),
}


@pytest.mark.parametrize("name", LIES)
def test_a_node_that_contradicts_itself_is_unfit_and_nobody_else(
    four: Nodes, tmp_path: Path, name: str
) -> None:
    lie, expected = LIES[name]
    fleet = with_a_lie(four, tmp_path, lie)
    assert not fleet.fit
    assert accused(fleet) == {LIAR}
    assert expected in fleet.verdict
    assert len(fleet.verdict) < 1000
    assert FleetOutcome(fleet, interrupted=False).exit_code is ExitCode.FAILED
    assert max(map(len, printed(fleet))) < 1000


def all_keep(report: Report) -> None:
    """A verdict of its own on a slow node with a broken GPU."""
    validation = report["validation"]
    scaled(0.5)(report)
    validation["facts"]["driver"]["gpus"][3]["remapping_failed"] = True
    assert validation["fit"]
    for figure in validation["acceptance"]["figures"]:
        figure["status"] = "within"


def test_a_verdict_of_a_nodes_own_counts_for_nothing(four: Nodes, tmp_path: Path) -> None:
    fleet = with_a_lie(four, tmp_path, all_keep)
    assert accused(fleet) == {LIAR}
    assert "failed GPU errors" in fleet.verdict or "node 2 (n2): failed" in fleet.verdict
    validation = fleet.nodes[LIAR].validation
    assert validation is not None
    assert not validation.fit
    assert validation.parts[3].disposition is Disposition.RETURN


def test_a_node_that_says_it_is_unfit_without_a_reason_is_not_believed(
    four: Nodes, tmp_path: Path
) -> None:
    def lie(report: Report) -> None:
        report["validation"].update(fit=False, verdict="x" * 1000, checks=[])

    assert with_a_lie(four, tmp_path, lie).fit


def test_a_gpu_without_figures_is_not_kept(four: Nodes, tmp_path: Path) -> None:
    def lie(report: Report) -> None:
        del run_of(report)["series"][4]

    validation = with_a_lie(four, tmp_path, lie).nodes[LIAR].validation
    assert validation is not None
    kept = [part.disposition is Disposition.KEEP for part in validation.parts]
    assert kept.count(False) == 1
    (told,) = (part for part in validation.parts if part.disposition is not Disposition.KEEP)
    assert told.gpu == 3
    assert told.reasons == ("the acceptance has no figure of it",)


def test_a_node_that_is_a_thousand_times_as_fast_hides_nobody_and_is_named(
    four: Nodes, tmp_path: Path
) -> None:
    fleet = with_a_lie(four, tmp_path, scaled(1000.0, "training"))
    assert accused(fleet) == {LIAR}
    assert (
        "node 2 (n2) cannot be judged: training is far above what the others reach" in fleet.verdict
    )


def test_a_node_that_is_somewhat_faster_is_not_compared_and_accuses_nobody(
    four: Nodes, tmp_path: Path
) -> None:
    fleet = with_a_lie(four, tmp_path, scaled(1.6), slow={1: 0.99})
    assert accused(fleet) == set()
    assert fleet.speeds is not None
    assert any("training of node 2: 1.6" in text for text in fleet.speeds.left_out)


@pytest.mark.parametrize("factor", [0.3, 0.8])
def test_a_node_that_says_it_is_slow_accuses_itself_alone(
    four: Nodes, tmp_path: Path, factor: float
) -> None:
    assert accused(with_a_lie(four, tmp_path, scaled(factor))) == {LIAR}


def test_a_node_that_sends_the_figures_of_another_accuses_neither_alone(
    four: Nodes, tmp_path: Path
) -> None:
    other = report_of(1)
    fleet = checked(four, tmp_path, _copied(other))
    assert not fleet.fit
    assert (
        "node 1 (n1) and node 2 (n2) sent one measurement, which one of them has not made"
        in fleet.verdict
    )
    assert fleet.speeds is not None
    assert fleet.speeds.copies == ((1, 2),)
    assert not fleet.speeds.low


def _copied(other: Report) -> dict[int, str]:
    """Of three nodes, the second with the rates of the first."""
    mine = report_of(LIAR)
    for own, series in zip(run_of(mine)["series"], run_of(other)["series"], strict=True):
        own["values"] = series["values"]
    return {1: json.dumps(other), LIAR: json.dumps(mine), 3: json.dumps(report_of(3))}


def test_many_invented_parts_accuse_no_honest_part(four: Nodes, tmp_path: Path) -> None:
    """They would make the spread of all parts as small as their own."""

    def lie(report: Report) -> None:
        run = run_of(report)
        rng = np.random.default_rng(5)
        for it in range(500):
            values = list(noisy(rng, 3e12, ROUNDS, 0.0001))
            invented = {**run["series"][1], "part": f"GPU {100 + it}", "values": values}
            run["series"].append(invented)

    fleet = with_a_lie(four, tmp_path, lie)
    assert accused(fleet) <= {LIAR}


def test_escapes_in_names_do_not_reach_the_terminal(four: Nodes, tmp_path: Path) -> None:
    fleet = with_a_lie(four, tmp_path, of_host("\x1b[2J\u202en1"))
    assert accused(fleet) == {LIAR}
    assert "\x1b" not in fleet.verdict
    assert "\u202e" not in fleet.verdict
    assert not any("\x1b" in line or "\u202e" in line for line in printed(fleet))


def test_a_node_that_lies_of_what_was_required_changes_no_exit_code(
    four: Nodes, tmp_path: Path
) -> None:
    def lie(report: Report) -> None:
        report["validation"]["checks"].append(
            {
                "id": "require_cuda",
                "group": "required",
                "title": "CUDA",
                "status": "fail",
                "seen": "",
            }
        )

    fleet = with_a_lie(four, tmp_path, lie)
    assert FleetOutcome(fleet, interrupted=False).exit_code is ExitCode.OK


def test_a_node_without_a_round_leaves_the_fleet_undecided(four: Nodes, tmp_path: Path) -> None:
    fleet = with_a_lie(four, tmp_path, nothing_of_anything)
    assert fleet.disposition is Disposition.UNDECIDED
    assert fleet.verdict.startswith("Undecided: node 2 (n2): 0 rounds, keep asks for 5")
    assert FleetOutcome(fleet, interrupted=False).exit_code is ExitCode.UNDECIDED


def test_an_acceptance_that_nobody_asked_for_is_left_out(four: Nodes, tmp_path: Path) -> None:
    texts = {rank: json.dumps(report_of(rank)) for rank in (1, 2, 3)}
    fleet = checked(four, tmp_path, texts, accept=False)
    assert fleet.fit
    for node in fleet.nodes[1:]:
        assert node.validation is not None
        assert node.validation.acceptance is None
