"""One truth for a watched job: its state, its speed and what limits it are the same wherever they
are shown."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from html import unescape
from pathlib import Path

import pytest
from pypdf import PdfReader

from tests.features.export.formats.exposition import parse
from torchscale.features.watch.text import limit_text
from torchscale.schema.watch.report import JobState, WatchReport
from torchscale.util.interpreter import module_command
from torchscale.util.units import format_seconds

pytestmark = [pytest.mark.slow, pytest.mark.real]

PROGRAM = """
import os, signal, sys, time
import torch, torch.distributed as dist
from torch import nn

how, steps = sys.argv[1], int(sys.argv[2])
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
net = nn.Sequential(*(nn.Linear(128, 128) for _ in range(4)))
if how == "recompiling":
    torch._dynamo.config.recompile_limit = torch._dynamo.config.accumulated_recompile_limit = 1000
    net = torch.compile(net, backend="eager", dynamic=False)
model = nn.parallel.DistributedDataParallel(net)
optimizer = torch.optim.SGD(model.parameters(), 1e-3)
for step in range(steps):
    is_half = step >= steps // 2
    batch = torch.randn(32 + step * (how == "recompiling" and step % 4 == 0), 128)
    if how == "slow" and rank == 1 and is_half:
        time.sleep(0.03)
    if how == "failed" and rank == 1 and is_half:
        raise ValueError("a bad batch")
    if how == "killed" and rank == 1 and is_half:
        os.kill(os.getpid(), signal.SIGKILL)
    model(batch).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    time.sleep(0.01)
dist.destroy_process_group()
"""
JOBS = {
    "healthy": (JobState.DONE, 300),
    "failed": (JobState.FAILED, 300),
    "slow": (JobState.DONE, 400),
    "recompiling": (JobState.DONE, 160),
    "killed": (JobState.FAILED, 300),
}
_RANKS = 2


@dataclass
class Shown:
    """What each surface shows of one job: name of the surface → its text."""

    how: str
    directory: Path
    texts: dict[str, str] = field(default_factory=dict)

    @property
    def report(self) -> WatchReport:
        """``watch.json``."""
        return WatchReport.model_validate_json((self.directory / "watch.json").read_text())


def torchscale(directory: Path, *words: str) -> tuple[str, str]:
    """Standard output and error of a command."""
    ran = subprocess.run(
        module_command("torchscale", *words),
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        env={**os.environ, "COLUMNS": "400"},
    )
    return ran.stdout, ran.stderr


@pytest.fixture(scope="module", params=JOBS)
def shown(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Shown:
    """A job that has ended, on every surface."""
    how = str(request.param)
    here = tmp_path_factory.mktemp(how)
    (here / "train.py").write_text(PROGRAM)
    job = here / "results" / "job"
    run = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    run += [f"--nproc-per-node={_RANKS}", "train.py", how, str(JOBS[how][1])]
    found = Shown(how, job)
    found.texts["watch"] = torchscale(here, "watch", "-o", "results/job", "--", *run)[1]
    found.texts["watch DIR"] = torchscale(here, "watch", "job")[0]
    for name in ("html", "pdf", "md", "csv", "json"):
        torchscale(here, "report", "job", "--format", name)
        path = job / f"report.{name}"
        found.texts[name] = _pdf_text(path) if name == "pdf" else path.read_text()
    found.texts["terminal"] = torchscale(here, "report", "job", "--format", "terminal")[0]
    found.texts["runs"] = torchscale(here, "runs")[0]
    found.texts["compare"] = torchscale(here, "compare", "job", "job", "--json")[0]
    found.texts["history"] = torchscale(here, "history", "job", "--json")[0]
    for name in ("prometheus", "openmetrics", "junit"):
        found.texts[name] = torchscale(here, "export", "job", "--to", name)[0]
    return found


def _pdf_text(path: Path) -> str:
    return "\n".join(page.extract_text() for page in PdfReader(path).pages)


def _flat(text: str) -> str:
    """Without marks, and in one line."""
    plain = re.sub(r'<span class="mark"[^>]*>.</span>|\\|\*', "", text)
    return re.sub(r"\s+", " ", unescape(re.sub(r"<(?!module>)[^>]*>", "", plain)))


def test_its_state_is_one(shown: Shown) -> None:
    state = shown.report.state
    assert state is JOBS[shown.how][0]
    assert f" {state.value} " in _flat(shown.texts["runs"])
    for name in ("html", "pdf", "md", "terminal"):
        assert re.search(rf"Ended\? {state.value}\b", _flat(shown.texts[name])), name
    assert ("<error " in shown.texts["junit"]) is (state is JobState.FAILED)
    failure = shown.report.failure
    assert (failure is not None) is (state is JobState.FAILED)
    if failure is not None:
        for name in ("watch", "html", "pdf", "md", "terminal", "runs"):
            assert failure.summary in _flat(shown.texts[name]), name


def test_its_speed_is_one(shown: Shown) -> None:
    step = shown.report.step_seconds
    assert step is not None
    digits = f"{format_seconds(step)} a step"
    for name in ("watch", "watch DIR", "html", "pdf", "md", "terminal", "runs"):
        assert digits in _flat(shown.texts[name]), name
    samples = {one.name: one.value for one in parse(shown.texts["prometheus"])}
    assert samples["torchscale_step_mean_seconds"] == pytest.approx(step)
    assert samples["torchscale_watch_step_seconds"] == pytest.approx(step)
    assert "torchscale_step_mean_seconds{" in shown.texts["openmetrics"]
    assert f"step_mean_seconds: {step:.6g} s" in shown.texts["junit"]
    (cell,) = json.loads(shown.texts["json"])["cells"]
    assert cell["figures"]["step_mean"] == pytest.approx(step)
    assert f",{step * 1e3:.6g}," in shown.texts["csv"]
    (pair,) = json.loads(shown.texts["compare"])["pairs"]
    changes = {one["metric"]: one for one in pair["cells"][0]["changes"]}
    for side in ("before", "after"):
        assert 1 / changes["steps"][side] == pytest.approx(step)
    for trend in json.loads(shown.texts["history"])["trends"]:  # of jobs that ended in order
        if trend["metric"] == "steps":
            assert 1 / trend["points"][0]["level"] == pytest.approx(step)


def test_what_limits_it_is_one(shown: Shown) -> None:
    report = shown.report
    for name in ("html", "pdf", "md", "terminal", "runs"):
        for item in report.findings[:1]:
            assert limit_text(item) in _flat(shown.texts[name]), name
    for item in report.findings:
        finding = item.finding
        for name in ("watch", "watch DIR", "html", "md", "terminal"):
            assert _flat(finding.summary) in _flat(shown.texts[name]), name
        sure = f"{finding.confidence.value} confidence"
        assert sure in shown.texts["watch"]
        doubts = f" ({', '.join(finding.doubts)})" if finding.doubts else ""
        assert f"{finding.confidence.value}{doubts}" in _flat(shown.texts["html"])
        assert finding.kind.value in shown.texts["prometheus"]
    (cell,) = json.loads(shown.texts["json"])["cells"]
    told = [(one["kind"], one["rank"], one["summary"]) for one in cell["diagnosis"]["findings"]]
    assert told == [
        (one.finding.kind.value, one.finding.rank, one.finding.summary) for one in report.findings
    ]
    if shown.how == "slow":
        (slow,) = [one for one in report.findings if one.first_step and one.finding.rank == 1]
        assert 180 <= (slow.first_step or 0) <= 220


def test_its_report_tells_of_nothing_that_was_not_done(shown: Shown) -> None:
    for name in ("html", "md"):
        text = _flat(shown.texts[name])
        for word in ("bit by bit", "Unsynchronized", "target_half_width", "preset", "repeats"):
            assert word not in text, (name, word)
