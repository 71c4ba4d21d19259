"""The process that forks agents, started before its first launch is there."""

from __future__ import annotations

import time
from pathlib import Path

import psutil
import pytest

from tests.factories import training_result
from tests.integration.conftest import MODELS
from tests.launch.tasks import LIMITS, SOUND, tasks
from torchscale.launch.agents.elastic import ElasticLauncher
from torchscale.launch.agents.forker import AgentForker
from torchscale.launch.control import StopRequest
from torchscale.launch.environment import cpu_environment
from torchscale.schema.state import State

IDLE_SECONDS = 1.0


def wait_until_idle(process: AgentForker) -> None:
    """Until it uses no processor: it has imported what it can before its first launch."""
    deadline, used = time.monotonic() + 120, -1.0
    while (now := sum(psutil.Process(process.pid).cpu_times()[:2])) > used:
        assert time.monotonic() < deadline
        used = now
        time.sleep(IDLE_SECONDS)


@pytest.mark.parametrize("is_ready", [False, True])
def test_what_was_imported_before_the_first_launch_is_no_part_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_ready: bool
) -> None:
    monkeypatch.delenv("PYTEST_CURRENT_TEST")
    (task,) = tasks(SOUND, world_size=1)
    variables = {"PYTHONPATH": str(MODELS)}
    forker = AgentForker(tmp_path / "channel", cpu_environment(1, variables))
    forks = ElasticLauncher(tmp_path / "channel", forker)
    try:
        if is_ready:
            wait_until_idle(forker)
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
    begin = setup.import_seconds + setup.process_group_seconds + setup.build_seconds
    assert begin < record.seconds
    if not is_ready:
        assert setup.import_seconds > 0.2  # torch, which was imported within it
