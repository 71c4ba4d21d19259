"""Programs that compile what the collector's functions lie around."""

from __future__ import annotations

from pathlib import Path

from tests.worker.forks import Forks
from tests.worker.watch.watched_forks import run_watched
from torchscale.analysis.exchanges.events import MomentKind
from torchscale.features.watch.job.stream import Names, RankStream

COMPILED_STEPS = """
import warnings
import torch
warnings.filterwarnings("error", message="Dynamo does not know how to trace")
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.Adam(model.parameters(), foreach=True)
step = torch.compile(optimizer.step, backend="eager")
for _ in range(5):
    model(torch.ones(4)).sum().backward()
    step()
from torch._dynamo.utils import counters
assert counters["stats"]["unique_graphs"] == 1, counters
"""


def test_steps_that_are_compiled_are_seen_and_the_collector_is_no_part_of_them(
    forks: Forks, tmp_path: Path
) -> None:
    folder = run_watched(forks, tmp_path, COMPILED_STEPS)

    moments = RankStream(folder, Names()).read().moments
    assert len(moments.at(MomentKind.STEP)) == 5
