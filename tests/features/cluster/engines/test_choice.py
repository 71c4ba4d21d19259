"""Which engine carries a sweep, by options and environment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.factories import experiment
from torchscale.config.engines import EngineChoice
from torchscale.errors import MachineError, UsageError
from torchscale.features.cluster.engines.choice import choose_engine, describe_choice
from torchscale.measure.nodes import COUNT_VARIABLES, NodeOptions
from torchscale.observer import SilentObserver

BATCH = {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "4"}
INTERACTIVE = {
    **BATCH,
    "SLURM_STEP_ID": "4294967290",
    "SLURM_STEP_NUM_NODES": "1",
    "SLURM_STEP_NODELIST": "n1",
}
STEP = {**BATCH, "SLURM_STEP_ID": "0", "SLURM_STEP_NODELIST": "n[1-4]"}
STEP_OF_1 = {**STEP, "SLURM_STEP_NUM_NODES": "1", "SLURM_STEP_NODELIST": "n1"}
STEP_OF_4 = {**STEP, "SLURM_STEP_NUM_NODES": "4"}
RAY = {"RAY_ADDRESS": "10.0.0.1:6379"}
IN_JOB = "job 7 of Slurm has 4 nodes"


@pytest.mark.parametrize(
    ("options", "nodes", "env", "expected"),
    [
        ({}, None, {}, None),
        ({"nodes": 4}, None, {}, None),
        ({}, None, BATCH, ("slurm", 4, IN_JOB)),
        ({"nodes": 2}, None, BATCH, ("slurm", 2, IN_JOB)),
        ({}, 3, BATCH, ("slurm", 3, IN_JOB)),
        ({"nodes": 2}, 3, BATCH, ("slurm", 2, IN_JOB)),
        ({}, None, INTERACTIVE, ("slurm", 4, IN_JOB)),
        ({}, None, {**BATCH, "SLURM_STEP_ID": "0"}, ("slurm", 4, IN_JOB)),
        ({}, None, STEP, None),
        ({}, None, STEP_OF_1, None),
        ({}, None, STEP_OF_4, None),
        ({}, None, {**BATCH, "SLURM_JOB_NUM_NODES": "1"}, None),
        ({"nodes": 1}, None, BATCH, None),
        ({}, 1, BATCH, None),
        ({}, None, {**BATCH, "PET_NNODES": "4"}, None),
        ({}, None, {**BATCH, "SKYPILOT_NUM_NODES": "4"}, None),
        ({}, None, {**RAY, "OMPI_COMM_WORLD_SIZE": "4"}, None),
        ({}, None, RAY, ("ray", None, "RAY_ADDRESS is 10.0.0.1:6379")),
        ({}, None, {**BATCH, **RAY}, ("ray", None, "RAY_ADDRESS is 10.0.0.1:6379")),
        ({"nodes": 1}, None, RAY, None),
        ({"engine": "ray"}, None, {}, ("ray", None, "--engine ray is given")),
        ({"engine": "ray", "nodes": 2}, None, BATCH, ("ray", 2, "--engine ray is given")),
        ({"ray_address": "auto"}, None, BATCH, ("ray", None, "--ray-address is given")),
        ({"engine": "ray", "ray_address": "auto"}, 2, {}, ("ray", 2, "--ray-address is given")),
        (
            {"engine": "slurm"},
            None,
            STEP_OF_4,
            ("slurm", 4, "--engine slurm is given, in job 7"),
        ),
        (
            {"engine": "slurm", "nodes": 1},
            None,
            {**BATCH, "PET_NNODES": "2"},
            ("slurm", 1, "--engine slurm is given, in job 7"),
        ),
        ({"engine": "channel"}, None, {**BATCH, **RAY}, None),
        ({"node_rank": 0}, None, BATCH, None),
        ({"master": "n1"}, None, RAY, None),
        ({"token_file": Path("t")}, None, BATCH, None),
    ],
)
def test_the_engine_of_a_sweep(
    options: dict[str, Any],
    nodes: int | None,
    env: dict[str, str],
    expected: tuple[Any, ...] | None,
) -> None:
    chosen = choose_engine(_options(options), nodes, env)
    if expected is None:
        assert chosen is None
    else:
        assert chosen is not None
        assert (chosen.engine.value, chosen.nodes, chosen.reason) == expected


@pytest.mark.parametrize(
    ("options", "env", "way_out"),
    [
        ({}, RAY, "start one; --nnodes 1 goes without Ray, though RAY_ADDRESS is set"),
        ({}, {**BATCH, **RAY}, "start one; --engine slurm or --nnodes 1 goes without Ray"),
        ({"engine": "ray"}, RAY, "start one"),
    ],
)
def test_an_engine_that_nobody_asked_for_says_how_to_go_without_it(
    options: dict[str, Any], env: dict[str, str], way_out: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise MachineError("no cluster", hint="start one")

    monkeypatch.setattr("torchscale.features.cluster.engines.ray.RayActors", fail)
    chosen = choose_engine(_options(options), None, env)
    assert chosen is not None
    with pytest.raises(MachineError) as caught:
        chosen.start("sweep", None, SilentObserver())
    assert caught.value.hint is not None
    assert caught.value.hint.startswith(way_out)


def _options(options: dict[str, Any]) -> NodeOptions:
    if "engine" in options:
        options = {**options, "engine": EngineChoice(options["engine"])}
    return NodeOptions(**options)


@pytest.mark.parametrize(
    ("options", "env", "expected"),
    [
        ({"engine": "slurm"}, {}, "--engine slurm: this is no job of Slurm"),
        ({"engine": "slurm", "node_rank": 1}, BATCH, "--node-rank is for the channel"),
        ({"engine": "ray", "master": "n1"}, {}, "--master is for the channel: ray knows its nodes"),
        ({"ray_address": "auto", "token_file": Path("t")}, {}, "--token-file is for the channel"),
        ({"engine": "slurm", "ray_address": "auto"}, BATCH, "--ray-address is for Ray, and --eng"),
        ({"engine": "channel", "ray_address": "auto"}, {}, "and --engine is channel"),
        ({"nodes": 5}, BATCH, "--nnodes 5: job 7 of Slurm has 4 nodes"),
        ({"engine": "slurm", "nodes": 5}, STEP_OF_1, "--nnodes 5: job 7 of Slurm has 4 nodes"),
    ],
)
def test_contradictions_are_named(
    options: dict[str, Any], env: dict[str, str], expected: str
) -> None:
    with pytest.raises(UsageError) as raised:
        choose_engine(_options(options), None, env)
    assert expected in raised.value.message


class Noting(SilentObserver):
    """Keeps what is noted."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


@pytest.mark.parametrize(
    ("options", "env", "nodes", "note"),
    [
        ({}, BATCH, 4, f"engine: slurm with 4 nodes, since {IN_JOB}"),
        ({"nodes": 2}, BATCH, 2, f"engine: slurm with 2 nodes, since {IN_JOB}"),
        ({}, RAY, 1, "engine: ray with all nodes of the cluster, since RAY_ADDRESS is 10.0.0.1"),
        (
            {"engine": "ray", "nodes": 3},
            {},
            3,
            "engine: ray with 3 nodes, since --engine ray is given",
        ),
        ({"nodes": 2}, {}, 1, "engine: channel, since neither a job of Slurm on several"),
        (
            {"nodes": 2, "engine": "channel"},
            BATCH,
            1,
            "engine: channel, since --engine channel is given",
        ),
        ({"nodes": 2, "master": "n1"}, BATCH, 1, "engine: channel, since --master is given"),
        ({"nodes": 2}, STEP_OF_4, 1, "engine: channel, since this is a task of step 0 of Slurm"),
        ({"nodes": 2}, {**RAY, "PET_NNODES": "2"}, 1, "engine: channel, since PET_NNODES is set"),
        ({}, {}, 1, ""),
    ],
)
def test_a_plan_says_what_would_carry_it(
    options: dict[str, Any],
    env: dict[str, str],
    nodes: int,
    note: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in (*COUNT_VARIABLES, *STEP_OF_4):
        monkeypatch.delenv(name, raising=False)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    observer = Noting()
    described = describe_choice(experiment(), _options(options), observer)
    assert described.launch.nodes == nodes
    assert "".join(observer.notes).startswith(note)
    assert bool(observer.notes) is bool(note)
