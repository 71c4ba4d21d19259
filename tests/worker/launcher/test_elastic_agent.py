"""torchrun's agent sees at once that ranks have ended; further cases in ``tests/launch``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.integration.conftest import MODELS
from tests.launch.tasks import SOUND, tasks
from torchscale.schema.launch.task import GroupItem

PROGRAM = """
import sys
from pathlib import Path
from time import perf_counter
from torchscale.schema.launch.task import GroupItem
from torchscale.worker.launcher import elastic_agent

elastic_agent._MONITOR_SECONDS = 600.0
item = GroupItem.model_validate_json(Path(sys.argv[1]).read_text())
sys.exit(elastic_agent.run_agent(item, perf_counter()))
"""


def test_the_end_of_ranks_is_seen_without_waiting_for_the_next_look(tmp_path: Path) -> None:
    (task,) = tasks(SOUND, world_size=2)
    item = GroupItem(task=task, directory=str(tmp_path), cpu_sets=task.cpu_sets)
    (tmp_path / "item.json").write_text(item.model_dump_json())
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "item.json")]
    environment = {**os.environ, "PYTHONPATH": str(MODELS), "OMP_NUM_THREADS": "1"}
    subprocess.run(command, env=environment, check=True, timeout=240)
    assert (tmp_path / "rank-0.json").exists()
    assert (tmp_path / "rank-1.json").exists()
