"""nsys as it is found on machines: whole, absent, old, installed in part, silent, hanging."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.traces.builders import two_ranks
from torchscale.config.choices import ProfileTarget, Tool
from torchscale.errors import MachineError
from torchscale.launch import nsys as module
from torchscale.launch.control import StopRequest
from torchscale.launch.nsys import exact_steps, export, find_nsys, require_report, timed_capture, wrap
from torchscale.launch.profile import UserRun, record_program
from torchscale.run.cell_profiler import analyze_files, analyze_recording, choose_tool
from torchscale.schema.profiles.recording import Recording
from torchscale.schema.profiles.request import RecordRequest
from torchscale.schema.state import State

pytestmark = pytest.mark.slow

FAKE = """#!{python}
import os, pathlib, shutil, subprocess, sys, time

mode, words = {mode!r}, sys.argv[1:]
if words == ["--version"]:
    print({{"old": "NVIDIA Nsight Systems version 2021.3.2.4-027534f", "odd": "hello"}}.get(
        mode, "NVIDIA Nsight Systems version 2026.2.1.210-262137123456v0"))
    sys.exit(0)
if words == ["profile", "--help"]:
    values = ["cuda", "nvtx", *([] if mode == "no software trace" else ["cuda-sw"])]
    print("-t, --trace= Possible values are", ", ".join(values))
    sys.exit(0)
out = words[words.index("-o") + 1]
if any("lazy" in word for word in words):
    print("unrecognised option '--lazy=true'", file=sys.stderr)
    sys.exit(1)
if words[0] == "profile":
    trial = words[-1] == "true" and words[words.index("-t") + 1] in ("none", "nvtx")
    if mode == "no empty trace" and "none" in words:
        print("Illegal --trace argument 'none'", file=sys.stderr)
        sys.exit(1)
    command = words[words.index(out) + 1:]
    subprocess.run(command, check=False)
    if mode == "no importer":
        pathlib.Path(out + ".qdstrm").write_bytes(b"raw")
        print("Importer error status: Importation failed: the importer is missing", file=sys.stderr)
    elif mode != "nothing" and not (mode == "late nothing" and not trial):
        pathlib.Path(out + ".nsys-rep").write_bytes(b"report")
    sys.exit(0)
report = words[-1]
if mode == "truncated" and "trial" not in report:
    print("Error: unexpected end of file", file=sys.stderr)
    sys.exit(1)
if mode == "hanging" and "trial" not in report:
    pathlib.Path(out).write_bytes(b"half")
    time.sleep(600)
shutil.copy({database!r}, out)
"""


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Puts an nsys that behaves so on PATH."""
    database = two_ranks().write(tmp_path / "database.sqlite")

    def install(mode: str) -> Path:
        directory = tmp_path / "bin"
        directory.mkdir(exist_ok=True)
        path = directory / "nsys"
        path.write_text(FAKE.format(python=sys.executable, mode=mode, database=str(database)))
        path.chmod(0o755)
        monkeypatch.setenv("PATH", f"{directory}{os.pathsep}{os.environ['PATH']}")
        return path

    return install


def record(directory: Path) -> Recording:
    directory.mkdir()
    request = RecordRequest(
        tool=Tool.NSYS, target=ProfileTarget.SYNC_STALLS, directory=str(directory), seconds=1, max_steps=10
    )
    run = UserRun(
        command=[sys.executable, "-c", "print('trained')"], delay_seconds=0, keep_running=False, timeout_seconds=60
    )
    return record_program(run, request, find_nsys(), StopRequest())


def test_a_whole_one_records_exports_and_is_analysed(fake: Callable[[str], Path], tmp_path: Path) -> None:
    path = fake("whole")
    choice = choose_tool("auto", "cuda")
    assert (choice.tool, choice.note) == (Tool.NSYS, "")
    assert choice.nsys is not None
    assert choice.nsys == module.Nsys(str(path), (2026, 2), "cuda-sw")
    recording = record(tmp_path / "out")
    assert recording.state is State.OK
    assert recording.files == ("recording.sqlite",)
    assert "trained" in (tmp_path / "out" / "output.log").read_text()
    profile = analyze_recording(tmp_path / "out", recording)
    assert profile.analysis is not None
    assert profile.analysis.world_size == 2
    assert f"{choice.nsys.cuda_trace},nvtx" in recording.command
    # A report named by its user is exported first; where its directory is, nothing is written.
    (tmp_path / "theirs").mkdir()
    report = tmp_path / "theirs" / "run.nsys-rep"
    shutil.copy(tmp_path / "out" / "recording.nsys-rep", report)
    assert analyze_files([report]).world_size == 2
    assert list(report.parent.iterdir()) == [report]


@pytest.mark.parametrize(("mode", "trace"), [("no software trace", "cuda"), ("no empty trace", "cuda-sw")])
def test_options_that_a_version_lacks_are_left_out(fake: Callable[[str], Path], mode: str, trace: str) -> None:
    fake(mode)
    assert find_nsys().cuda_trace == trace


def test_absent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MachineError, match="nsys is not on PATH"):
        find_nsys()
    choice = choose_tool("auto", "cuda")
    assert choice.tool is Tool.KINETO
    assert "nsys is not on PATH" in choice.note
    assert choose_tool("auto", "cpu").note == ""
    with pytest.raises(MachineError):
        choose_tool("nsys", "cuda")


@pytest.mark.parametrize(
    ("mode", "message"),
    [
        ("old", r"Nsight Systems 2021\.3; 2022\.1 or newer"),
        ("odd", r"printed no version \(hello\)"),
        ("no importer", "its importer is missing"),
        ("nothing", "exited with 0 and wrote no report"),
    ],
)
def test_one_that_cannot_be_used_says_why(fake: Callable[[str], Path], mode: str, message: str) -> None:
    fake(mode)
    with pytest.raises(MachineError, match=message) as caught:
        find_nsys()
    assert caught.value.hint
    assert choose_tool("auto", "cuda").tool is Tool.KINETO


def test_no_report_after_all(fake: Callable[[str], Path], tmp_path: Path) -> None:
    fake("late nothing")
    recording = record(tmp_path / "out")
    assert recording.state is State.CRASHED
    assert "wrote no report" in recording.reason


def test_a_report_that_cannot_be_exported_is_kept(fake: Callable[[str], Path], tmp_path: Path) -> None:
    fake("truncated")
    recording = record(tmp_path / "out")
    assert recording.state is State.INCOMPLETE
    assert "unexpected end of file" in recording.reason
    assert "nsys export --type=sqlite" in recording.reason
    assert (tmp_path / "out" / "recording.nsys-rep").read_bytes() == b"report"
    assert not list((tmp_path / "out").glob("*.sqlite"))


def test_an_export_that_hangs_is_ended_and_leaves_nothing_half(fake: Callable[[str], Path], tmp_path: Path) -> None:
    fake("hanging")
    report = tmp_path / "run.nsys-rep"
    report.write_bytes(b"report")
    began = time.monotonic()
    with pytest.raises(MachineError, match="did not finish within 1 s"):
        export(find_nsys(), report, timeout_seconds=1)
    assert time.monotonic() - began < 30
    assert sorted(path.name for path in tmp_path.glob("run*")) == ["run.nsys-rep"]


def test_the_importer_is_told_apart_from_silence(tmp_path: Path) -> None:
    with pytest.raises(MachineError, match="its last output: out of luck"):
        require_report(tmp_path / "a", 1, "first\nout of luck\n")
    (tmp_path / "b.qdstrm").write_bytes(b"raw")
    with pytest.raises(MachineError, match="importer is missing") as caught:
        require_report(tmp_path / "b", 0, "")
    assert "QdstrmImporter -i b.qdstrm" in (caught.value.hint or "")
    (tmp_path / "c.nsys-rep").write_bytes(b"")
    with pytest.raises(MachineError, match="no report"):
        require_report(tmp_path / "c", 0, "")


def test_the_command_line(tmp_path: Path) -> None:
    nsys = module.Nsys("/usr/bin/nsys", (2026, 2))
    words = wrap(nsys, tmp_path / "out", ["torchrun", "train.py"], exact_steps())
    assert words[:4] == ["/usr/bin/nsys", "profile", "-t", "cuda,nvtx"]
    assert {"--capture-range=cudaProfilerApi", "--capture-range-end=stop", "--kill=none", "--wait=all"} < set(words)
    assert words[-2:] == ["torchrun", "train.py"]
    assert timed_capture(30.4, 12.0, keep_running=False) == ["--delay=30", "--duration=12", "--kill=sigterm"]
    assert timed_capture(0, 0.2, keep_running=True) == ["--delay=0", "--duration=1", "--kill=none"]
