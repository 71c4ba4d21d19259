"""Recordings read by tasks of a Ray cluster: the same as processes read, and what is told else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.features.trace.readers.test_reader_pool import columns, recordings
from torchscale.errors import MachineError, TraceError
from torchscale.features.trace.readers import ray_readers, reader_pool
from torchscale.features.trace.readers.rank_reader import read_for_another
from torchscale.features.trace.readers.ray_readers import RayReaders, _at_once, read_elsewhere
from torchscale.features.trace.readers.reader_pool import BYTES_PER_BYTE, PROCESS_BYTES
from torchscale.features.trace.readers.recordings import ReadOptions, read_recordings
from torchscale.version import __version__


class Died(Exception):
    """What the tasks of :class:`Ray` raise."""


class Ray:
    """The part of Ray that is used; tasks run when they are asked for."""

    exceptions = SimpleNamespace(RayError=Died)

    def __init__(self, *, cores: int = 2, nodes: int = 1, ends: bool = True) -> None:
        self.cores, self.living, self.ends = cores, nodes, ends
        self.options: dict[str, Any] = {}
        self.most = self.running = 0
        self.cancelled: list[object] = []
        self._results: dict[int, Callable[[], Any]] = {}

    def nodes(self) -> list[dict[str, bool]]:
        return [{"Alive": True}] * self.living + [{"Alive": False}]

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": float(self.cores)}

    def remote(self, **options: Any) -> Callable[[Callable[..., Any]], Any]:
        self.options = options
        return lambda function: SimpleNamespace(remote=lambda *a: self._ask(lambda: function(*a)))

    def _ask(self, call: Callable[[], Any]) -> int:
        number = len(self._results)
        self._results[number] = call
        self.running += 1
        self.most = max(self.most, self.running)
        return number

    def wait(
        self, asked: Sequence[int], *, num_returns: int, timeout: float
    ) -> tuple[list[int], list[int]]:
        assert num_returns == 1
        return (list(asked[:1]), list(asked[1:])) if self.ends else ([], list(asked))

    def get(self, number: int) -> Any:
        self.running -= 1
        return self._results[number]()

    def cancel(self, reference: int, *, force: bool) -> None:
        assert force
        self.cancelled.append(reference)


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> Ray:
    from contextlib import nullcontext

    fake = Ray()
    monkeypatch.setattr(ray_readers, "connected", lambda _: nullcontext(fake))
    return fake


def _scratch(directory: Path) -> Path:
    (directory / "scratch").mkdir()
    return directory / "scratch"


def test_tasks_read_what_one_process_reads(tmp_path: Path, ray: Ray) -> None:
    paths = recordings(tmp_path, 5)
    told: list[tuple[int, int]] = []
    reading = ReadOptions(
        directory=_scratch(tmp_path),
        on_read=lambda done, total: told.append((done, total)),
        readers=RayReaders(),
    )
    by_ray = read_recordings(paths, reading)
    alone = read_recordings(paths)

    assert list(map(columns, by_ray.ranks)) == list(map(columns, alone.ranks))
    assert told == [(done, 5) for done in range(1, 6)]
    assert ray.options == {"num_cpus": 1, "max_retries": 1, "scheduling_strategy": "SPREAD"}
    assert ray.most == 4  # two for each core
    assert ray.cancelled == []


def test_the_first_damaged_file_is_named(tmp_path: Path, ray: Ray) -> None:
    paths = recordings(tmp_path, 6)
    for damaged in (paths[1], paths[2]):
        damaged.write_text(damaged.read_text()[:-40])
    with pytest.raises(TraceError, match=r"rank1\.json: the trace is cut off"):
        RayReaders().read(paths, _scratch(tmp_path), 1 << 30, lambda _: None)
    assert len(ray._results) <= 5  # nothing more was asked for


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (
            "The worker died\nunexpectedly",
            r"rank0\.json: the Ray task .* \(Died: The worker died\)",
        ),
        ("Traceback:\n  x\nOSError: gone", r"\(Died: OSError: gone\)"),
        ("ModuleNotFoundError: No module named 'torchscale'", "have no torchscale"),
    ],
)
def test_a_task_that_ends_is_an_error(
    said: str, expected: str, tmp_path: Path, ray: Ray, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ends(*_: object) -> None:
        raise Died(said)

    monkeypatch.setattr(ray_readers, "read_elsewhere", ends)
    with pytest.raises(MachineError, match=expected):
        RayReaders().read(recordings(tmp_path, 3), _scratch(tmp_path), 1 << 30, lambda _: None)
    assert ray.cancelled == [1, 2]


def test_tasks_that_do_not_end_are_given_up(
    tmp_path: Path, ray: Ray, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader_pool, "_LEAST_SECONDS", 0.01)
    ray.ends = False
    with pytest.raises(MachineError, match=r"rank0\.json: not read after minutes"):
        RayReaders().read(recordings(tmp_path, 2), _scratch(tmp_path), 1 << 30, lambda _: None)
    assert ray.cancelled == [0, 1]


def test_another_version_on_a_node_is_told(
    tmp_path: Path, ray: Ray, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        ray_readers, "read_elsewhere", lambda *a: ({"version": "9.9", "node": "b"}, {})
    )
    with pytest.raises(MachineError, match=r"b of the Ray cluster has torchscale 9\.9"):
        RayReaders().read(recordings(tmp_path, 1), _scratch(tmp_path), 1 << 30, lambda _: None)


def test_memory_and_cores_bound_what_is_asked_for(tmp_path: Path) -> None:
    (path,) = recordings(tmp_path, 1)
    with path.open("a") as file:
        file.write(" " * (10 << 20))
    size = int(BYTES_PER_BYTE * path.stat().st_size)
    paths = [path] * 100
    assert _at_once(Ray(cores=4), paths, 1 << 40) == 8
    assert _at_once(Ray(cores=400), paths, 1 << 40) == 100
    assert _at_once(Ray(cores=400, nodes=3), paths, 2 * (PROCESS_BYTES + size)) == 6
    assert _at_once(Ray(cores=400, nodes=90), paths, 5 * size) == 5
    assert _at_once(Ray(cores=400), paths, 1) == 1


def test_a_task_returns_the_files_that_a_process_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (path,) = recordings(tmp_path, 1)
    written = _scratch(tmp_path)
    expected = read_for_another(path, 3, written)
    monkeypatch.chdir(written)
    told, files = read_elsewhere(path.name, 3, str(tmp_path), __version__)

    assert json.dumps(told) == json.dumps(expected)
    assert Path.cwd() == tmp_path
    by_process = {file.name: file.read_bytes() for file in written.iterdir()}
    as_given = {
        name: text.replace(str(path).encode(), path.name.encode())
        for name, text in by_process.items()
    }
    assert files == as_given


def test_a_file_that_a_node_does_not_see_is_told(tmp_path: Path) -> None:
    told, files = read_elsewhere("rank0.json", 0, str(tmp_path), __version__)
    assert str(told["error"]).startswith("rank0.json: not on ")
    assert files == {}
    assert read_elsewhere("x", 0, str(tmp_path), "0.0")[0]["version"] == __version__


@pytest.mark.slow
def test_a_real_cluster_gives_the_same_json(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    directory = tmp_path / "traces"
    directory.mkdir()
    recordings(directory, 4)
    command = [sys.executable, "-m", "torchscale", "profile", "analyze", "traces", "--json"]
    printed = []
    for options in ([], ["--engine", "ray", "--ray-address", "local"]):
        done = subprocess.run(
            [*command, *options],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
            timeout=200,
        )
        printed.append(done.stdout)
    assert printed[0] == printed[1]
    assert json.loads(printed[0])


KILLED_ONCE = """
import os, sys
from pathlib import Path
from torchscale.errors import MachineError
from torchscale.features.trace.readers import ray_readers
original = ray_readers.read_elsewhere
marks, paths = Path(sys.argv[1]), [Path(path) for path in sys.argv[2:]]

def dies(path, number, *rest, _marks=str(marks)):
    import os
    for mark in ("first", "second")[: 2 if number == 1 else 1]:
        try:
            os.close(os.open(f"{_marks}/{number}.{mark}", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            continue
        os._exit(1)
    return original(path, number, *rest)

ray_readers.read_elsewhere = dies
readers = ray_readers.RayReaders("local")
print(len(readers.read(paths[:1], marks, 1 << 30, lambda _: None)))
try:
    readers.read(paths, marks, 1 << 30, lambda _: None)
except MachineError as error:
    print(error.message)
"""


@pytest.mark.slow
def test_a_task_whose_process_dies_is_tried_once_more(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    marks = _scratch(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", KILLED_ONCE, str(marks), *map(str, recordings(tmp_path, 2))],
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
        env={**os.environ, "RAY_task_retry_delay_ms": "0"},
    )
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()  # and nothing of Ray's
    assert first == "1"
    assert "rank1.json: the Ray task that read it ended (WorkerCrashedError" in second
