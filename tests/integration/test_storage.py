"""A local S3: what is read from it, copied to it, and refused by it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.program import torchscale
from tests.factories import experiment
from tests.fake_launches import FakeLaunches, Recorder
from tests.features.export.formats.stores import run_folder
from tests.features.trace.readers.builders import kernel, kineto, step
from torchscale.errors import ExitCode
from torchscale.features.export import cell_exports
from torchscale.measure.benchmark import benchmark

CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI-testing",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The address of an S3 on a free port."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def s3(server: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """An empty bucket ``bucket``, and what puts objects into it."""
    import s3fs
    from moto.moto_api._internal import moto_api_backend

    moto_api_backend.reset()
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ENDPOINT_URL", server)
    files = s3fs.S3FileSystem(
        endpoint_url=server, skip_instance_cache=True, use_listings_cache=False
    )
    files.mkdir("bucket")
    return files


@pytest.fixture
def demo(tmp_path: Path, s3: Any) -> Path:
    """A run that is in the bucket too."""
    folder = run_folder(tmp_path / "demo")
    s3.put(str(folder), "bucket/runs/demo", recursive=True)
    return folder


@pytest.mark.parametrize("kind", ["html", "md", "csv", "json"])
def test_a_report_of_a_run_in_s3_is_that_of_the_run(tmp_path: Path, demo: Path, kind: str) -> None:
    for source in ("s3://bucket/runs/demo", str(demo)):
        done = torchscale(tmp_path, "report", source, "-o", f"{source[:2].strip('/')}.{kind}")
        assert done.returncode == 0, done.stderr
    remote, local = (path for path in sorted(tmp_path.glob(f"*.{kind}"), reverse=True))
    assert remote.read_bytes() == local.read_bytes()


def test_the_endpoint_of_s3_alone_counts_first(
    tmp_path: Path, demo: Path, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", server)
    assert torchscale(tmp_path, "report", "s3://bucket/runs/demo", "--json").returncode == 0


def test_runs_in_s3_are_compared(tmp_path: Path, demo: Path) -> None:
    done = torchscale(tmp_path, "compare", "s3://bucket/runs/demo", str(demo), "--json")
    assert done.returncode == 0, done.stderr
    sides = [side["name"] for side in json.loads(done.stdout)["sides"]]
    assert sides == ["s3://bucket/runs/demo", str(demo)]


def test_a_recording_in_s3_is_analyzed(tmp_path: Path, s3: Any) -> None:
    steps = [step(number, number * 1000, 900) for number in range(5)]
    kernels = [kernel("gemm", number * 1000 + 100, 600) for number in range(5)]
    (tmp_path / "rank0.json").write_text(kineto([*steps, *kernels], world_size=1))
    s3.put(str(tmp_path / "rank0.json"), "bucket/traces/rank0.json")
    local = torchscale(tmp_path, "profile", "analyze", "rank0.json", "--json")
    remote = torchscale(tmp_path, "profile", "analyze", "s3://bucket/traces/rank0.json", "--json")
    assert (remote.returncode, local.returncode) == (0, 0), remote.stderr
    assert remote.stdout.replace("s3://bucket/traces/", "") == local.stdout


@pytest.mark.parametrize(
    ("source", "code", "error"),
    [
        ("s3://nowhere/run", 2, "s3://nowhere/run: there is no bucket s3://nowhere"),
        ("s3://bucket/nothing", 2, "s3://bucket/nothing: there is nothing at this address"),
        ("s3://bucket", 2, "s3://bucket: there is nothing at this address"),
    ],
)
def test_what_is_not_there_is_named(
    tmp_path: Path, s3: Any, source: str, code: int, error: str
) -> None:
    done = torchscale(tmp_path, "report", source)
    assert done.returncode == code
    assert error in done.stderr
    assert "Traceback" not in done.stderr


def test_access_that_is_denied_is_told(
    tmp_path: Path, demo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from moto.core import set_initial_no_auth_action_count

    @set_initial_no_auth_action_count(0)  # type: ignore[untyped-decorator]
    def asked() -> subprocess.CompletedProcess[str]:
        """Who asks must be known."""
        return torchscale(tmp_path, "report", "s3://bucket/runs/demo")

    done = asked()
    assert done.returncode == 3
    assert "s3://bucket/runs/demo: access denied" in done.stderr
    assert "AWS_PROFILE" in done.stderr
    assert CREDENTIALS["AWS_SECRET_ACCESS_KEY"] not in done.stderr


def test_without_credentials_it_says_so(
    tmp_path: Path, demo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    done = torchscale(tmp_path, "report", "s3://bucket/runs/demo")
    assert done.returncode == 3
    assert "s3://bucket/runs/demo: no credentials were found" in done.stderr


def test_a_server_that_is_not_there_is_told(
    tmp_path: Path, s3: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    done = torchscale(tmp_path, "report", "s3://bucket/runs/demo")
    assert done.returncode == 3
    assert "s3://bucket/runs/demo: cannot be reached" in done.stderr
    assert "look whether http://127.0.0.1:9 (AWS_ENDPOINT_URL) is up" in done.stderr


def test_a_sweep_is_copied_cell_by_cell(
    tmp_path: Path,
    launches: FakeLaunches,
    s3: Any,
    recorder: Recorder,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[int] = []
    call = FakeLaunches.__call__

    def looking(fake: FakeLaunches, *arguments: Any, **named: Any) -> Any:
        seen.append(len([key for key in s3.find("bucket") if key.endswith("record.json")]))
        return call(fake, *arguments, **named)

    monkeypatch.setattr(FakeLaunches, "__call__", looking)
    monkeypatch.setattr(cell_exports, "_SHARE", float("inf"))
    config = experiment(batch_sizes=[8, 16], export={"storage": "s3://bucket/runs"})
    outcome = benchmark(config, output_dir=tmp_path / "demo", observer=recorder)
    assert outcome.exit_code is ExitCode.OK, recorder.notes
    assert seen == [0, 1, 2, 3]
    local = torchscale(tmp_path, "report", "demo", "--format", "html,md", "-v")
    assert local.returncode == 0
    remote = torchscale(tmp_path, "report", "s3://bucket/runs/demo", "--format", "html,md")
    assert remote.returncode == 0
    for name in ("report.html", "report.md"):
        assert (tmp_path / name).read_bytes() == (tmp_path / "demo" / name).read_bytes()


def test_a_copy_that_fails_in_the_middle_succeeds_later(
    tmp_path: Path, s3: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from s3fs.core import S3File

    run_folder(tmp_path / "demo")
    written, write = [0], S3File.write

    def fail(file: Any, content: bytes) -> Any:
        written[0] += 1
        if written[0] > 3:
            raise OSError(5, "the connection was reset")
        return write(file, content)

    command = ("export", "--to", "storage", "demo", "-o", "s3://bucket/runs")
    with monkeypatch.context() as patch:
        patch.setattr(S3File, "write", fail)
        done = torchscale(tmp_path, *command)
    assert done.returncode == 3
    assert "s3://bucket/runs/demo: [Errno 5] the connection was reset" in done.stderr
    partly = s3.find("bucket/runs/demo")
    assert len(partly) < 5
    assert not any(key.endswith("experiment.json") for key in partly), "nobody takes it for a run"
    again = torchscale(tmp_path, *command)
    assert again.returncode == 0
    there = {key.removeprefix("bucket/runs/demo/") for key in s3.find("bucket/runs/demo")}
    here = {
        path.relative_to(tmp_path / "demo").as_posix()
        for path in (tmp_path / "demo").rglob("*")
        if path.is_file()
    }
    assert there == here - {".copied.json"}


def test_a_bucket_that_is_not_there_loses_nothing(tmp_path: Path, s3: Any) -> None:
    run_folder(tmp_path / "demo")
    done = torchscale(tmp_path, "export", "--to", "storage", "demo", "-o", "s3://nowhere/runs")
    assert done.returncode == 2
    assert "there is no bucket s3://nowhere" in done.stderr


def test_a_large_file_is_copied_in_parts_and_back(tmp_path: Path, s3: Any) -> None:
    (tmp_path / "recorded").mkdir()
    content = os.urandom(1 << 20) * 19
    (tmp_path / "recorded" / "rank0.nsys-rep").write_bytes(content)
    done = torchscale(tmp_path, "export", "--to", "storage", "recorded", "-o", "s3://bucket/runs")
    assert done.returncode == 0, done.stderr
    assert s3.cat("bucket/runs/recorded/rank0.nsys-rep") == content


def test_ctrl_c_ends_a_fetch_at_once_and_leaves_nothing(tmp_path: Path) -> None:
    import socket

    silent = socket.create_server(("127.0.0.1", 0))
    environment = {
        **os.environ,
        **CREDENTIALS,
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{silent.getsockname()[1]}",
        "TMPDIR": str(tmp_path),
    }
    with (
        silent,
        subprocess.Popen(
            [sys.executable, "-m", "torchscale", "report", "s3://bucket/runs/demo"],
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        ) as program,
    ):
        connection, _ = silent.accept()  # it asks, and no answer comes
        with connection:
            began = time.monotonic()
            program.send_signal(signal.SIGINT)
            _, said = program.communicate(timeout=30)
    assert program.returncode == 130
    assert time.monotonic() - began < 10
    assert "Traceback" not in said
    assert not list(tmp_path.glob("torchscale-storage-*"))
