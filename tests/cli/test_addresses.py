"""Addresses in place of paths: every command that reads shows of an address what it shows of a
local folder, and names the address."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.cli.program import torchscale
from tests.features.export.formats.stores import run_folder
from tests.features.trace.readers.builders import kernel, kineto, step
from tests.features.validate.test_bundle import SLOW
from tests.features.watch.hang.test_flight_recorder import dump, entry
from tests.object_stores import empty_store, put, put_folder
from torchscale.features.validate.bundle import write_bundle
from torchscale.observer import SILENT
from torchscale.schema.watch.report import WatchReport

RUN, OTHER = "data/runs/demo", "data/runs/other"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory with ``data``, which is in a store too."""
    place = tmp_path_factory.mktemp("place")
    run_folder(place / RUN)
    run_folder(place / OTHER)
    for folder in ("recordings", "traces", "watched", "baselines", "wheels"):
        (place / "data" / folder).mkdir()
    steps = [step(number, number * 1000, 900) for number in range(5)]
    kernels = [kernel("gemm", number * 1000 + 100, 600) for number in range(5)]
    (place / "data/recordings/rank0.json").write_text(kineto([*steps, *kernels], world_size=1))
    (place / "data/traces/rank_0").write_text(json.dumps(dump(entry(3), entry(4, retired=False))))
    (place / "data/traces/rank_1").write_text(json.dumps(dump(entry(3))))
    watched = WatchReport(
        tool_version="1", command=("python", "train.py"), started_at="2026-01-01", seconds=3
    )
    (place / "data/watched/watch.json").write_text(watched.model_dump_json())
    (place / "data/points.csv").write_text("gpus,nodes,throughput\n8,1,1000\n16,2,1900\n")
    (place / "data/policy.yaml").write_text("rounds: many\n")
    (place / "data/export.sqlite").write_text("no database")
    (place / "data/old.yaml").write_text("model_name: resnet50\n")
    write_bundle(SLOW, place / "data/node.zip", None, SILENT)
    saved = ("compare", RUN, "--save", "main", "--baselines", "data/baselines")
    assert torchscale(place, *saved).returncode == 0
    kept = ("history", "data/runs", "--db", "data/history.sqlite")
    assert torchscale(place, *kept).returncode == 0
    with empty_store():
        put_folder(place / "data", "memory://data")
        yield place


COMMANDS = [
    f"report {RUN} --json",
    f"report --source {RUN} --format md --output -",
    "report data/runs",
    f"report {RUN} --format terminal",
    f"report generate {RUN} --format csv -o -",
    f"report {RUN} --cell resnet18-b16",
    "report data/watched --format md -o -",
    "report data/nothing --json",
    "runs data/runs --json",
    "runs data/runs",
    "runs baselines --baselines data/baselines",
    "runs baselines main --baselines data/baselines --json",
    f"compare {RUN} {OTHER}",
    f"compare {RUN} {OTHER} --format html -o -",
    f"compare {RUN} {OTHER} --json",
    f"compare --why {RUN} {OTHER}",
    f"compare {RUN} {OTHER} --reference {OTHER} --json",
    f"compare {RUN} main --baselines data/baselines",
    f"compare {RUN} data/baselines/main.json",
    f"compare {RUN} --against last --history data/runs",
    f"compare {RUN} --against data/baselines/main.json --json",
    f"compare {RUN}/cells/nothing/launch-0/record.json {OTHER}",
    "history data/runs --json",
    "history --db data/history.sqlite --json",
    f"predict {RUN} --gpus 64 --json",
    "predict --table data/points.csv --gpus 32",
    f"predict --source {RUN} --gpus 64",
    f"export --to junit {RUN}",
    f"export --to prometheus --source {RUN}",
    "export --to junit data/points.csv",
    "watch data/watched --json",
    f"watch {RUN}",
    "autopsy --log-dir data/traces --json",
    f"autopsy --log-dir {RUN}/cells",
    "profile analyze data/recordings --json",
    "profile analyze data/recordings/rank0.json",
    "profile analyze data/points.csv",
    "profile strip data/export.sqlite --output copy.sqlite",
    "validate --verify data/node.zip --json",
    "validate --acceptance --baseline data/points.csv",
    "validate --acceptance --baseline data/node.zip --policy data/policy.yaml",
    "init new.yaml --from data/old.yaml",
    "bisect a==1 a==2 --wheels data/wheels/none -- python x.py",
]
_WAITING = re.compile(r" …(?: \d+ s)?$")
_SPELLED = re.compile(r"(?<![\w/])data/")


def shown(done: CompletedProcess[str]) -> tuple[int, list[str]]:
    """What was printed, apart from the time, the widths of columns, and what is said while somebody
    waits."""
    said = [line for line in done.stderr.splitlines() if not _WAITING.search(line)]
    text = "\n".join([done.stdout, *said]).replace("memory://data", "data")
    text = re.sub(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d\S*", "TIME", text)
    return done.returncode, text.split()


@pytest.mark.parametrize("line", COMMANDS)
def test_an_address_is_read_as_a_folder_is(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for made in ("new.yaml", "copy.sqlite"):
        (place / made).unlink(missing_ok=True)
    words = line.split()
    local = torchscale(place, *words, columns=400)
    (place / "new.yaml").unlink(missing_ok=True)
    remote = torchscale(
        place, *(_SPELLED.sub("memory://data/", word) for word in words), columns=400
    )
    if "data/nothing" in line or "wheels" in line or "/nothing/" in line:
        assert remote.returncode == 2
        assert "memory://data/" in remote.stderr
        assert "there is nothing at this address" in remote.stderr
    else:
        assert shown(remote) == shown(local)
    assert "torchscale-storage" not in remote.stdout + remote.stderr
    assert not list(tmp_path.iterdir())


def test_a_report_of_a_copy_goes_where_the_command_runs(place: Path, tmp_path: Path) -> None:
    done = torchscale(tmp_path, "report", "memory://data/runs/demo", "--format", "html,csv")
    written = [line for line in done.stderr.splitlines() if line.startswith("Wrote")]
    assert written == ["Wrote report.html", "Wrote report.csv"]
    torchscale(place, "report", RUN, "--format", "html,csv")
    for name in ("report.html", "report.csv"):
        assert (tmp_path / name).read_bytes() == (place / RUN / name).read_bytes()
        (place / RUN / name).unlink()


def test_no_file_names_the_scratch_folder(place: Path, tmp_path: Path) -> None:
    addresses = ["memory://data/runs/demo", "memory://data/runs/demo"]
    done = torchscale(tmp_path, "compare", *addresses, "--format", "html,md,json", "--cost", "2")
    assert done.returncode == 0
    texts = [path.read_text() for path in tmp_path.iterdir()]
    assert len(texts) == 3
    assert not any("torchscale-storage" in text for text in texts)


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("report s3://a/b -o s3://c/d.html", "s3://c/d.html: only a local path"),
        (
            "benchmark -o s3://a/b --model resnet18",
            "--output-dir s3://a/b: only a local path can be here",
        ),
        ("benchmark s3://a/b.yaml", "s3://a/b.yaml: only a local path can be here"),
        ("measure hardware --output-dir s3://a/b", "s3://a/b: only a local path can be here"),
        ("validate --output-dir s3://a/b", "s3://a/b: only a local path can be here"),
        ("validate --bundle s3://a/b.zip", "--bundle s3://a/b.zip: only a local path can be here"),
        ("history data --html s3://a/b.html", "s3://a/b.html: only a local path"),
        ("compare a b --output s3://a/c.html", "s3://a/c.html: only a local path"),
        ("watch -o s3://a/b -- true", "s3://a/b: only a local path can be here"),
        ("init s3://a/b.yaml", "s3://a/b.yaml: only a local path can be here"),
        ("report foo://a/b", "foo://a/b: unknown scheme foo; expected one of s3://"),
        ("report az://a/b", "az:// needs adlfs, which is not installed"),
        ("report s3://k:hunter22@a/b", "s3://…: an address has no credentials"),
        ("report az://a/b?sig=hunter22", "az://…: an address has no credentials"),
        ("report memory://data/runs memory://data/runs", "one run at a time, not 2"),
        ("profile memory://data/runs/demo", "a config or a run folder to record into is local"),
        ("history memory://data/runs --db memory://data/history.sqlite", "added to a local file"),
        (
            "compare memory://data/runs/demo --save x --baselines memory://data/baselines",
            "--baselines memory://data/baselines: --save writes to a local directory",
        ),
        (
            "compare memory://data/runs/demo --save x --calibrate 5",
            "memory://data/runs/demo is at an address",
        ),
    ],
)
def test_what_an_address_cannot_be(place: Path, tmp_path: Path, line: str, error: str) -> None:
    done = torchscale(tmp_path, *line.split())
    assert done.returncode == 2
    assert error in done.stderr
    assert "hunter22" not in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())


def test_hostile_keys_leave_the_rest_readable(place: Path, tmp_path: Path) -> None:
    put_folder(place / RUN, "memory://hostile/demo")
    put({"../../../up": b"x", "a\nb": b"x"}, "memory://hostile/demo")
    done = torchscale(tmp_path, "report", "memory://hostile/demo", "--json")
    assert done.returncode == 0
    assert len(json.loads(done.stdout)["cells"]) == 2
    assert "left out 2 objects whose name no file can have here" in done.stderr
    assert "a\\nb" in done.stderr


def test_a_wrong_line_leaves_no_scratch_folder(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for line in ("report memory://data/runs/demo --port", "report serve memory://data --port x"):
        assert torchscale(tmp_path, *line.split()).returncode == 2
    assert torchscale(tmp_path, "report", "memory://data/runs/demo", "--json").returncode == 0
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_local_command_imports_no_library_of_stores() -> None:
    code = (
        "import sys; sys.argv = ['torchscale', 'runs', '.']\n"
        "from torchscale.cli.main import main; main()\n"
        "assert not {'fsspec', 's3fs', 'aiohttp'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
