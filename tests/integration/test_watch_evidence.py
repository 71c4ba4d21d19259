"""What ranks of a real job show beside their steps: lines, memory, compilations and their start."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from torchscale.features.watch.job.attempts import Attempt
from torchscale.features.watch.job.relay import Relay
from torchscale.features.watch.job.run import Watched, WatchRequest, run_program
from torchscale.schema.watch.rank import ProgramLine

PROGRAM = """
import os, sys, time
import torch
import torch.distributed as dist

rank = int(os.environ["RANK"])
if rank == 1:
    time.sleep(SLEEP)
dist.init_process_group("gloo")
torch.set_num_threads(1)

class Model(torch.nn.Linear):
    def forward(self, batch):
        return super().forward(batch).relu()

def write_summary():
    time.sleep(1.0)

def compiles(batch):
    return compiled(batch)

torch.manual_seed(0)
model = Model(64, 64)
torch.save(model.state_dict(), f"{sys.argv[1]}/first-{rank}.pt")
model.load_state_dict(torch.load(f"{sys.argv[1]}/first-{rank}.pt"))
compiled = torch.compile(model, backend="aot_eager", dynamic=False)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
kept = []
for step in range(60):
    size = 8 if step < 30 else 12
    compiles(torch.ones(size, 64)).sum().backward()
    for value in model.parameters():
        dist.all_reduce(value.grad)
    optimizer.step()
    optimizer.zero_grad()
    time.sleep(0.02)
    kept.append(torch.ones(1 << 20))
    if step == 40:
        write_summary()
    if step == 50 and rank == 0:
        torch.save(model.state_dict(), f"{sys.argv[1]}/last.pt")
dist.destroy_process_group()
"""
SLEEP = 3.0
"""Seconds by which rank 1 comes later to the process group."""
LINE_OF_SLEEP = 1 + PROGRAM.split("SLEEP", maxsplit=1)[0].count("\n")

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Watched:
    directory = tmp_path_factory.mktemp("watched")
    program = directory / "train.py"
    program.write_text(PROGRAM.replace("SLEEP", str(SLEEP)))
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command = [*torchrun, "--nproc-per-node", "2", str(program), str(directory)]
    relay = Relay()
    found = run_program(WatchRequest(command, directory / "job"), relay).watched()
    relay.close()
    assert found is not None
    assert found.report.exit_code == 0, found.report.notes
    return found


@pytest.fixture(scope="module")
def attempt(watched: Watched) -> Attempt:
    return watched.job.attempts[-1]


def test_a_pause_is_at_its_line_in_its_step_on_each_rank(attempt: Attempt) -> None:
    for evidence in attempt.evidence:
        lines = evidence.lines
        chosen = np.zeros(attempt.follower.steps, np.bool_)
        chosen[40] = True  # the pause comes after the 41st step of the optimizer
        shares = lines.time_shares(chosen, lambda line: line)
        line = max(shares, key=lambda line: shares[line].share)
        assert line.function == "write_summary"
        assert shares[line].samples >= 10  # 20 a second
        others = lines.time_shares(~chosen, lambda line: line)
        assert not any(_is_pause(line) for line in others)


def _is_pause(line: ProgramLine) -> bool:
    return line.function == "write_summary"


def test_memory_that_grows_is_seen_to_grow(attempt: Attempt) -> None:
    for evidence in attempt.evidence:
        memory = evidence.memory
        in_steps = memory.step >= 0
        assert in_steps.sum() >= 2
        assert (np.diff(memory.time_ns) > 0).all()
        assert memory.resident[in_steps][-1] - memory.resident[in_steps][0] > 40 << 20
        assert (memory.allocated == -1).all()


def test_compilations_have_their_step_frame_and_guard(attempt: Attempt) -> None:
    for evidence in attempt.evidence:
        first, again = evidence.compilations
        assert (first.step, first.reason) == (-1, "")
        assert again.step == 29  # before the end of the 31st step
        assert "size mismatch" in again.reason
        assert {one.function for one in evidence.compilations} == {"forward"}
        assert Path(again.file).name == "train.py"
        assert 0 < again.seconds < 60
        assert not again.has_failed


def test_checkpoints_are_those_of_the_rank(attempt: Attempt) -> None:
    names = [[Path(save.path).name for save in one.saves] for one in attempt.evidence]
    assert names == [["first-0.pt", "last.pt"], ["first-1.pt"]]
    assert attempt.evidence[0].saves[-1].steps == 51


def test_parts_of_the_start_add_up_and_show_who_came_late(
    watched: Watched, attempt: Attempt
) -> None:
    first, second = watched.report.startup
    assert watched.report.startup == attempt.startup
    assert second.before_group - first.before_group == pytest.approx(SLEEP, abs=1.5)
    assert first.group - second.group == pytest.approx(SLEEP, abs=1.5)
    assert second.places["before_group"] == f"train.py:{LINE_OF_SLEEP}"
    for one, end, stream in zip(
        (first, second), attempt.first_ends, attempt.follower.streams.values(), strict=True
    ):
        whole = end * 1e-9 - stream.facts.process_began
        assert one.total == pytest.approx(whole, abs=0.01)
        assert min(one.imports, one.loading, one.compiling) > 0
