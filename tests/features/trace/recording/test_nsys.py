"""nsys as it is found on machines: whole, absent, old, installed in part, silent, hanging. The
program here stands in for it; tests/integration/test_nsys.py records with the real one."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.features.trace.readers.builders import two_ranks
from torchscale.config.choices import DeviceKind, Tool
from torchscale.errors import MachineError
from torchscale.features.trace.analyze import analyze_files
from torchscale.features.trace.recording import nsys as module
from torchscale.features.trace.recording.choice import choose_tool
from torchscale.features.trace.recording.nsys import (
    HOST_TRACE,
    NsysSession,
    cuda_capture,
    cuda_trace,
    delayed_capture,
    failed_to_start,
    find_exporter,
    last_line,
    range_capture,
)
from torchscale.features.trace.recording.nsys_reports import export, require_report
from torchscale.features.trace.recording.nsys_trial import find_nsys

pytestmark = pytest.mark.slow

FAKE = """#!{python}
import os, pathlib, shutil, subprocess, sys, time

mode, words = {mode!r}, sys.argv[1:]
if words == ["--version"]:
    print({{"old": "NVIDIA Nsight Systems version 2021.3.2.4-027534f", "odd": "hello"}}.get(
        mode, "NVIDIA Nsight Systems version 2024.2.1.210-262137123456v0"))
    sys.exit(0)
if words == ["profile", "--help"]:
    values = ["cuda", "nvtx", *([] if mode == "no software trace" else ["cuda-sw"])]
    print("-t, --trace= Possible values are", ", ".join(values))
    sys.exit(0)
out = words[words.index("-o") + 1]
if words[0] == "profile":
    tried = pathlib.Path(__file__ + ".tried")
    is_first = not tried.exists()
    tried.touch()
    if mode == "no start at first" and is_first:
        print("/build/QuadD/ClientProxy.cpp(381): Throw in function QuadDProtobufComm::Endpoint")
        sys.exit(1)
    done = subprocess.run(words[words.index(out) + 1:], check=False)
    if mode == "no importer" or mode == "no importer at first" and is_first:
        pathlib.Path(out + ".qdstrm").write_bytes(b"raw")
        print("Importer error status: An unknown error occurred.", file=sys.stderr)
    elif mode != "nothing":
        pathlib.Path(out + ".nsys-rep").write_bytes(b"report")
    sys.exit(done.returncode)
report = words[-1]
if mode == "no blobs" and "--include-blobs=true" in words:
    print("unrecognised option '--include-blobs=true'")
    sys.exit(1)
if mode == "truncated":
    print("Error: unexpected end of file", file=sys.stderr)
    sys.exit(1)
if mode == "hanging":
    pathlib.Path(out).write_bytes(b"half")
    time.sleep(600)
pathlib.Path(out + ".words").write_text(" ".join(words))
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


def test_a_whole_one_is_taken_on_cuda_and_exports(
    fake: Callable[[str], Path], tmp_path: Path
) -> None:
    path = fake("whole")
    choice = choose_tool("auto", "cuda")
    assert (choice.tool, choice.note) == (Tool.NSYS, "")
    assert choice.nsys == module.Nsys(str(path), (2024, 2), "cuda-sw")
    # A report named by its user is exported first; where its directory is, nothing is written.
    (tmp_path / "theirs").mkdir()
    report = tmp_path / "theirs" / "run.nsys-rep"
    report.write_bytes(b"report")
    assert analyze_files([report]).world_size == 2
    assert list(report.parent.iterdir()) == [report]


def test_a_trace_that_a_version_lacks_is_not_asked_for(fake: Callable[[str], Path]) -> None:
    fake("no software trace")
    assert find_nsys().cuda_trace == "cuda"


@pytest.mark.parametrize("mode", ["no start at first", "no importer at first"])
def test_a_trial_without_a_report_is_repeated(mode: str, fake: Callable[[str], Path]) -> None:
    path = fake(mode)
    assert find_nsys().path == str(path)


@pytest.mark.parametrize(("mode", "asks"), [("whole", True), ("no blobs", False)])
def test_payloads_are_exported_where_the_version_can(
    fake: Callable[[str], Path], mode: str, asks: bool, tmp_path: Path
) -> None:
    fake(mode)
    report, target = tmp_path / "run.nsys-rep", tmp_path / "run.sqlite"
    report.write_bytes(b"report")
    export(find_exporter(), report, target, timeout_seconds=30)
    words = target.with_name("run.part.sqlite.words").read_text()
    assert ("--include-blobs=true" in words) == asks


def test_absent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MachineError, match="nsys is not on PATH"):
        find_nsys()
    choice = choose_tool("auto", "cuda")
    assert choice.tool is Tool.KINETO
    assert "nsys is not on PATH" in choice.note
    assert choose_tool("auto", "cpu").note == ""
    devices: tuple[DeviceKind, ...] = ("cuda", "cpu")
    for device in devices:
        with pytest.raises(MachineError):
            choose_tool("nsys", device)


def test_devices_that_it_does_not_know() -> None:
    assert choose_tool("auto", "xpu").tool is Tool.KINETO
    with pytest.raises(MachineError, match="nsys does not record xpu devices"):
        choose_tool("nsys", "xpu")


@pytest.mark.parametrize(
    ("mode", "message"),
    [
        ("old", r"Nsight Systems 2021\.3; 2022\.1 or newer"),
        ("odd", r"printed no version \(hello\)"),
        (
            "no importer",
            "cannot record here: it exited with 0 and wrote no report; its last output: Importer "
            "error",
        ),
        ("nothing", "cannot record here: it exited with 0 and wrote no report"),
        ("truncated", "cannot export: .*unexpected end of file"),
    ],
)
def test_one_that_cannot_be_used_says_why(
    fake: Callable[[str], Path], mode: str, message: str
) -> None:
    path = fake(mode)
    with pytest.raises(MachineError, match=message) as caught:
        find_nsys()
    assert caught.value.hint
    told = f"{caught.value.message} {caught.value.hint}".replace(str(path), "")
    assert tempfile.gettempdir() not in told, (
        "no message names a place that is gone when it is read"
    )
    assert choose_tool("auto", "cuda").tool is Tool.KINETO


def test_an_importer_that_cannot_start_is_found_before_anything_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a library that it needs is missing: nsys itself starts and answers."""
    root = tmp_path / "nsight-systems"
    for directory in ("target-linux-x64", "host-linux-x64", "bin"):
        (root / directory).mkdir(parents=True)
    program = root / "target-linux-x64" / "nsys"
    program.write_text("#!/bin/sh\necho NVIDIA Nsight Systems version 2024.2.1\n")
    program.chmod(0o755)
    (root / "bin" / "nsys").symlink_to(program)
    monkeypatch.setenv("PATH", f"{root / 'bin'}{os.pathsep}{os.environ['PATH']}")
    with pytest.raises(MachineError, match="cannot write reports: its importer is not installed"):
        find_nsys()
    importer = root / "host-linux-x64" / "QdstrmImporter"
    problem = "error while loading shared libraries: libssh.so: cannot open shared object file"
    importer.write_text(f"#!/bin/sh\necho '{importer}: {problem}' >&2\nexit 127\n")
    importer.chmod(0o755)
    with pytest.raises(
        MachineError, match=r"cannot be started: libssh\.so: cannot open shared object file"
    ):
        find_nsys()


def test_a_report_of_a_newer_nsys_says_which_version_it_needs(
    fake: Callable[[str], Path], tmp_path: Path
) -> None:
    fake("whole")
    report = tmp_path / "run.nsys-rep"
    report.write_bytes(
        b"NVIDIA Tegra Profiler Report 2026@2@1@210-262137123456v0.\n\x0bLocal (CLI)"
    )
    with pytest.raises(
        MachineError, match=r"recorded by Nsight Systems 2026\.2; .*2024\.2\) is older"
    ) as caught:
        analyze_files([report])
    assert "nsys export --type=sqlite" in (caught.value.hint or "")
    report.write_bytes(b"NVIDIA Tegra Profiler Report 2023@4@4@54-234433681190v0.\n")
    assert analyze_files([report]).world_size == 2


def test_a_report_that_cannot_be_exported_is_kept(
    fake: Callable[[str], Path], tmp_path: Path
) -> None:
    fake("truncated")
    report, target = tmp_path / "run.nsys-rep", tmp_path / "run.sqlite"
    report.write_bytes(b"report")
    with pytest.raises(MachineError, match="unexpected end of file") as caught:
        export(find_exporter(), report, target, timeout_seconds=30)
    assert "nsys export --type=sqlite" in (caught.value.hint or "")
    assert report.read_bytes() == b"report"
    assert not target.exists()


def test_an_export_that_hangs_is_ended_and_leaves_nothing_half(
    fake: Callable[[str], Path], tmp_path: Path
) -> None:
    fake("hanging")
    report = tmp_path / "run.nsys-rep"
    report.write_bytes(b"report")
    began = time.monotonic()
    with pytest.raises(MachineError, match="did not finish within 1 s"):
        export(find_exporter(), report, tmp_path / "run.sqlite", timeout_seconds=1)
    assert time.monotonic() - began < 30
    assert sorted(path.name for path in tmp_path.glob("run*")) == ["run.nsys-rep"]


NOWHERE = module.Nsys("/nowhere/bin/nsys", (2024, 2))


def test_the_importer_is_told_apart_from_silence(tmp_path: Path) -> None:
    with pytest.raises(MachineError, match="its last output: out of luck"):
        require_report(NOWHERE, tmp_path / "a", 1, "first\nout of luck\n", timeout_seconds=9)
    (tmp_path / "b.qdstrm").write_bytes(b"raw")
    with pytest.raises(MachineError, match="importer is missing") as caught:
        require_report(NOWHERE, tmp_path / "b", 0, "", timeout_seconds=9)
    assert "QdstrmImporter -i b.qdstrm" in (caught.value.hint or "")
    (tmp_path / "c.nsys-rep").write_bytes(b"")
    with pytest.raises(MachineError, match="no report"):
        require_report(NOWHERE, tmp_path / "c", 0, "", timeout_seconds=9)


@pytest.fixture
def importing(tmp_path: Path) -> Callable[[str], module.Nsys]:
    """An installation whose importer is this shell script."""

    def install(script: str) -> module.Nsys:
        root = tmp_path / "nsight"
        (root / "target-linux-x64").mkdir(parents=True)
        (root / "bin").mkdir()
        (root / "bin" / "nsys").touch()
        importer = root / "host-linux-x64" / "QdstrmImporter"
        importer.parent.mkdir()
        importer.write_text(f"#!/bin/sh\n{script}\n")
        importer.chmod(0o755)
        return module.Nsys(str(root / "bin" / "nsys"), (2024, 2))

    return install


def test_what_was_recorded_is_imported_once_more(
    importing: Callable[[str], module.Nsys], tmp_path: Path
) -> None:
    """As nsys's own attempt failed: on busy cores that happens."""
    nsys = importing('cp "$3" "$5"')
    (tmp_path / "run.qdstrm").write_bytes(b"raw")
    report = require_report(nsys, tmp_path / "run", 0, "", timeout_seconds=30)
    assert report == tmp_path / "run.nsys-rep"
    assert report.read_bytes() == b"raw"
    assert [path.name for path in tmp_path.glob("run*")] == ["run.nsys-rep"]


@pytest.mark.parametrize(
    ("script", "seconds", "words"),
    [
        ('echo half > "$5"; echo Import failed >&2; exit 1', 30, "exited with 1: Import failed"),
        ("exec sleep 300", 0.5, "did not finish within 0.5 s"),
    ],
)
def test_an_import_that_fails_keeps_what_was_recorded(
    importing: Callable[[str], module.Nsys],
    tmp_path: Path,
    script: str,
    seconds: float,
    words: str,
) -> None:
    nsys = importing(script)
    (tmp_path / "run.qdstrm").write_bytes(b"raw")
    with pytest.raises(MachineError, match=words):
        require_report(nsys, tmp_path / "run", 0, "", timeout_seconds=seconds)
    assert [path.name for path in tmp_path.glob("run*")] == ["run.qdstrm"]


@pytest.mark.parametrize(
    "printed",
    [
        "/build/QuadD/Common/ClientProxy.cpp(381): Throw in function QuadDProtobufComm::Endpoint "
        "…\nDynamic …\n",
        "Connection to the Agent lost.\nConnection to the Agent lost.\n",
        "Connection to Agent lost. This is most likely a bug. Internal reason: 'End of "
        "file'.\nPlease refer …\n",
        "End of file\n",
    ],
)
def test_a_failure_of_nsys_at_its_start_is_told_from_the_programs(printed: str) -> None:
    assert failed_to_start(printed, 0.4)
    assert not failed_to_start(printed, 60.0), "the program may have run"
    assert not failed_to_start(f"training begins\n{printed}", 0.4)
    assert not failed_to_start("", 0.4)
    assert not failed_to_start("End of file reached: data.bin\n", 0.4)


def test_progress_bars_are_no_last_line() -> None:
    assert (
        last_line("done\n[1/1] [=====50%     ] x.nsys-rep\rProcessing 12 events: [==20% ]\n\n")
        == "done"
    )


def test_the_command_line(tmp_path: Path) -> None:
    session = NsysSession(
        module.Nsys("/usr/bin/nsys", (2026, 2), "cuda-sw"), "torchscale7", tmp_path / "own"
    )
    trace, options = cuda_trace(session.nsys)
    command = ["torchrun", "train.py"]
    words = session.wrap(
        tmp_path / "out", command, [*options, *cuda_capture()], trace=trace, variables={}
    )
    assert words[:5] == [
        "/usr/bin/nsys",
        "profile",
        "--session-new=torchscale7",
        "-t",
        "cuda-sw,nvtx",
    ]
    assert {
        "--capture-range=cudaProfilerApi",
        "--capture-range-end=stop",
        "--kill=none",
        "--wait=all",
    } < set(words)
    assert words[-4:] == ["-o", str(tmp_path / "out"), *command]
    assert f"--env-var=TMPDIR={tempfile.gettempdir()}" in words, (
        "the program's own files are not nsys's"
    )
    assert session.environment({"A": "b"}) == {"A": "b", "TMPDIR": str(tmp_path / "own")}

    capture, variables = range_capture()
    words = session.wrap(tmp_path / "out", command, capture, trace=HOST_TRACE, variables=variables)
    assert words[4] == "nvtx"
    assert {"--capture-range=nvtx", "--nvtx-capture=torchscale.capture@*"} < set(words)
    assert any(word.endswith(",NSYS_NVTX_PROFILER_REGISTER_ONLY=0") for word in words)
    assert delayed_capture(30.4) == ["--delay=30"]
    assert delayed_capture(0) == [], "2022 calls --delay=0 illegal"


def test_nothing_is_left_where_temporary_files_are(
    fake: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    fake("whole")
    find_nsys()
    assert not any(place.iterdir())
    shutil.rmtree(place)
