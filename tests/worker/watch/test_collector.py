"""The collector in a process of one rank, on a real disk."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import get_args

import pytest

from torchscale.features.watch.job.program_processes import TIMING_VARIABLE, watching_environment
from torchscale.features.watch.job.stream import Names, RankStream
from torchscale.schema.base import SCHEMA_VERSION
from torchscale.schema.watch.rank import RankFacts, RankUse
from torchscale.worker.watch import facts, ring_settings
from torchscale.worker.watch.collector import FORMAT, Collector
from torchscale.worker.watch.dump import DUMP_VERSION

PROGRAM = """
import os, sys, time
import torch
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = torch.utils.data.DataLoader(torch.zeros(64, 4), batch_size=4)
for epoch in range(2):
    model.train()
    for batch in loader:
        model(batch).sum().backward()
        optimizer.step()
    model.eval()
    torch.save(model.state_dict(), sys.argv[1] + "/model.pt")
EXTRA
"""


OF_A_DEVICE = """
import pickle, sys
import torch
import torch.distributed as dist
import torch._C._distributed_c10d as c10d

gloos = c10d._dump_fr_trace

def timed(*arguments):
    content = pickle.loads(gloos(*arguments))
    for entry in content.get("entries", []):
        name = entry["profiling_name"].replace("gloo", "nccl")
        entry.update(profiling_name=name, state="completed", duration_ms=0.25)
    return pickle.dumps(content)

c10d._dump_nccl_trace = timed
c10d._dump_fr_trace = lambda *_: pickle.dumps({"version": "2.10", "entries": []})
dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}/store", rank=0, world_size=1)
for _ in range(50):
    dist.all_reduce(torch.ones(256))
dist.destroy_process_group()
"""
"""Its collectives are in NCCL's recorder, with the times that they took on a device."""


def _run(directory: Path, extra: str = "", *, code: int = 0, program: str = PROGRAM) -> Path:
    import os

    if not (directory / "job").exists():
        (directory / "job").mkdir()
    environment = watching_environment(directory / "job", os.environ)
    done = subprocess.run(
        [sys.executable, "-c", program.replace("EXTRA", extra), str(directory)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == code, done.stderr
    assert done.stderr == ""
    return directory / "job" / "ranks" / "0.0"


def test_a_program_of_one_process_leaves_its_steps(tmp_path: Path) -> None:
    from torchscale.analysis.exchanges.events import MomentKind

    folder = _run(tmp_path)
    facts = RankFacts.model_validate_json((folder / "rank.json").read_bytes())
    assert (facts.rank, facts.world_size, facts.state) == (0, 1, "ended")
    moments = RankStream(folder, Names()).read().moments
    counts = {kind: int((moments.kind == kind).sum()) for kind in MomentKind}
    assert counts[MomentKind.STEP] == counts[MomentKind.OPTIMIZER] == 32
    assert counts[MomentKind.BACKWARD] == counts[MomentKind.BACKWARD_END] == 32
    assert (
        counts[MomentKind.DATA] == counts[MomentKind.DATA_END] == 34
    )  # each epoch ends with a look for more
    assert counts[MomentKind.SAVE] == counts[MomentKind.SAVE_END] == 2
    assert counts[MomentKind.EVALUATION] == 2
    RankUse.model_validate_json((folder / "use.json").read_bytes())


COMPILED = """
class Model(torch.nn.Linear):
    def forward(self, batch):
        return super().forward(batch) * 2
compiled = torch.compile(Model(4, 4), backend="aot_eager", dynamic=False)
for size in (2, 2, 3):
    compiled(torch.ones(size, 4)).sum().backward()
    optimizer.step()
torch._dynamo.reset()
compiled(torch.ones(5, 4)).sum().backward()
optimizer.step()
time.sleep(1.5)
"""


@pytest.mark.slow
def test_what_a_program_shows_beside_its_steps_is_left(tmp_path: Path) -> None:
    from torchscale.analysis.exchanges.events import MomentKind

    stream = RankStream(_run(tmp_path, COMPILED), Names())
    moments = stream.read().moments
    compiled = moments.between(MomentKind.COMPILE, MomentKind.COMPILE_END)
    steps = moments.at(MomentKind.STEP)
    stream.evidence.assign(steps, 0)
    evidence = stream.evidence.evidence(())

    first, again, anew = evidence.compilations
    assert [first.reason, anew.reason] == ["", ""]
    assert "size mismatch" in again.reason
    assert {one.function for one in evidence.compilations} == {"forward"}
    assert [one.step for one in evidence.compilations] == [31, 33, 34]
    spent = sum(one.seconds for one in evidence.compilations)
    assert compiled.length * 1e-9 == pytest.approx(spent, rel=0.05)
    assert len(evidence.lines.step)
    assert min(evidence.memory.resident) > 10 << 20
    startup = stream.facts.startup
    assert startup.python_ns is not None
    assert startup.import_ns is not None
    assert startup.imported_ns is not None
    assert stream.facts.process_began * 1e9 < startup.python_ns < startup.import_ns
    assert startup.import_ns < startup.imported_ns < steps[0]
    assert startup.group_ns is None


def test_a_program_that_ends_while_the_thread_writes_leaves_each_moment_once(
    tmp_path: Path,
) -> None:
    from torchscale.analysis.exchanges.events import MomentKind

    extra = """
import threading
from torchscale_collector import files
is_writing, append = threading.Event(), files.append_whole
def slow(path, content):
    if path.name.startswith("marks") and threading.current_thread().daemon:
        append(path, content)
        is_writing.set()
        time.sleep(1)
    else:
        append(path, content)
files.append_whole = slow
for _ in range(3):
    optimizer.step()
assert is_writing.wait(10)
"""
    moments = RankStream(_run(tmp_path, extra), Names()).read().moments
    assert int((moments.kind == MomentKind.STEP).sum()) == 32 + 3


def test_lengths_of_collectives_are_left_and_what_each_recorder_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TIMING_VARIABLE, "1")
    folder = _run(tmp_path, program=OF_A_DEVICE)
    facts = RankFacts.model_validate_json((folder / "rank.json").read_bytes())
    use = RankUse.model_validate_json((folder / "use.json").read_bytes())
    names = Names()
    stream = RankStream(folder, names)
    read = stream.read()

    assert facts.is_timed
    assert use.recorders == {"gloo": 0, "nccl": 50}
    assert use.failed_recorders == {}
    assert names.groups == {("0", "nccl", False): 0}
    assert read.lengths.duration.tolist() == [250_000] * 50
    assert read.lengths.sequence.tolist() == read.calls.sequence.tolist()


def test_what_a_killed_process_wrote_stays(tmp_path: Path) -> None:
    import signal

    extra = "time.sleep(1.5)\nos.kill(os.getpid(), 9)"
    folder = _run(tmp_path, extra, code=-signal.SIGKILL)

    facts = RankFacts.model_validate_json((folder / "rank.json").read_bytes())
    assert facts.state == "running"
    assert (folder / "marks-000001.bin").stat().st_size > 8 * 32


def test_a_folder_that_cannot_be_written_harms_nobody(tmp_path: Path) -> None:
    (tmp_path / "job").write_text("a file where the folder should be")

    _run(tmp_path)


def test_what_fails_is_told_whatever_is_written_after_it(tmp_path: Path) -> None:
    breaks = """
import torchscale_collector.collector as collector
import torchscale_collector.sampler as sampler
collector.beat = lambda _: time.monotonic()  # written in every round
sampler.user_place = lambda _: 1 / 0
time.sleep(0.5)
"""
    folder = _run(tmp_path, breaks)
    facts = RankFacts.model_validate_json((folder / "rank.json").read_text())
    assert (facts.state, facts.problem) == ("failed", "ZeroDivisionError: division by zero")


def test_a_second_run_has_a_folder_of_its_own(tmp_path: Path) -> None:
    _run(tmp_path)
    _run(tmp_path)

    assert (tmp_path / "job" / "ranks" / "0.1" / "rank.json").is_file()


def test_a_process_that_trains_nothing_leaves_nothing(tmp_path: Path) -> None:
    import os

    done = subprocess.run(
        [sys.executable, "-c", "import torch; print(torch.zeros(1).item())"],
        env=watching_environment(tmp_path / "job", os.environ),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (done.returncode, done.stdout) == (0, "0.0\n")
    assert not (tmp_path / "job").exists()


def test_a_request_is_answered_with_stacks(tmp_path: Path) -> None:
    hang = tmp_path / "job" / "hang"
    hang.mkdir(parents=True)
    (hang / "autopsy-request").write_text("")
    _run(tmp_path, "time.sleep(1.5)")

    answer = json.loads((hang / "autopsy-rank-0.json").read_text())
    assert answer["threads"][0]["is_main"]
    assert answer["rank"] == 0


def test_versions_are_those_that_the_reader_expects() -> None:
    assert get_args(RankFacts.model_fields["format"].annotation) == (FORMAT,)
    assert DUMP_VERSION == SCHEMA_VERSION
    assert TIMING_VARIABLE == ring_settings.TIMING_VARIABLE


IDLE = """
import os, threading, time, torch
assert len(os.listdir("/proc/self/task")) > 1  # somebody looks already
assert threading.active_count() == 1
time.sleep(0.3)
if os.fork() == 0:
    assert len(os.listdir("/proc/self/task")) == 1
    os._exit(0)
assert os.wait()[1] == 0
"""


def test_a_rank_that_begins_nothing_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert not _run(tmp_path, program=IDLE).parent.exists()


def test_threads_that_fork_at_once_leave_the_collection_at_work(tmp_path: Path) -> None:
    collector = Collector(tmp_path)
    collector._has_thread = True
    collector.pause()
    for act in (collector.pause, collector.go_on):  # of a thread that does not wait so long
        other = threading.Thread(target=act)
        other.start()
        other.join()
    assert collector._busy.locked()
    collector.go_on()
    assert not collector._busy.locked()


def test_a_backend_stays_known_after_its_groups_are_destroyed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    collector = Collector(tmp_path)
    collector._facts = {"device": "cpu", "backend": ""}
    written: list[str] = []
    monkeypatch.setattr(collector, "_write_facts", written.append)
    for named, known in (("nccl", "nccl"), ("", "nccl"), ("gloo", "gloo")):
        monkeypatch.setattr(facts, "backend", lambda named=named: named)
        monkeypatch.setattr(facts, "device", lambda: "cuda")
        collector._refresh_facts()
        found = {name: collector._facts[name] for name in ("device", "backend")}
        assert found == {"device": "cuda", "backend": known}
    assert written == ["running", "running"]
