"""The process that forks agents, started before its first launch is there."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.factories import training_result
from tests.integration.conftest import MODELS
from tests.launch.tasks import LIMITS, SOUND, tasks
from torchscale.launch.agents.elastic import ElasticLauncher
from torchscale.launch.agents.forker import AgentForker
from torchscale.launch.control import StopRequest
from torchscale.launch.environment import cpu_environment
from torchscale.schema.state import State

WAIT_SECONDS = 6.0
"""Longer than torch takes to be imported where nothing else runs: two seconds."""


@pytest.mark.quiet
def test_a_wait_for_the_first_launch_is_no_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTEST_CURRENT_TEST")
    (task,) = tasks(SOUND, world_size=1)
    variables = {"PYTHONPATH": str(MODELS)}
    forker = AgentForker(tmp_path / "channel", cpu_environment(1, variables))
    forks = ElasticLauncher(tmp_path / "channel", forker)
    try:
        time.sleep(WAIT_SECONDS)
        (tmp_path / "launch").mkdir()
        record = forks.run(
            task.model_copy(update={"started_at": time.time()}),
            tmp_path / "launch",
            limits=LIMITS,
            extra_env=variables,
            stop=StopRequest(),
            on_progress=lambda progress: None,
        )
        assert forker.poll() is None, "another process has run the launch"
    finally:
        forks.close()
    assert record.state is State.OK, record.reason
    setup = training_result(record).ranks[0].setup
    assert setup is not None
    assert 0.2 < setup.import_seconds < WAIT_SECONDS
