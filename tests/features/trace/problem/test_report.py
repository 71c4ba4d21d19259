"""A recording that fails becomes a small file that fails in the same way and holds nothing private:
by the command, for each way of failing."""

from __future__ import annotations

import gzip
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from tests.cli.program import torchscale
from tests.features.trace.readers.builders import NsysExport, host, kernel, kineto, step
from torchscale.config.choices import WindowChoice
from torchscale.errors import TraceError
from torchscale.features.trace.problem import failing
from torchscale.features.trace.problem import report as problem
from torchscale.features.trace.problem.failing import _alike, _failure

PRIVATE = ("acme", "bob", "node-1", "secret")
Change = Callable[[list[dict[str, Any]]], None]


def events(steps: int = 12) -> list[dict[str, Any]]:
    found = []
    for number in range(steps):
        begin = 1000.0 * number
        found += [
            step(number, begin, 1000),
            host("cpu_op", f"acme::op{number}", begin, 900, **{"External id": number}),
            host("user_annotation", "/home/bob/train.py", begin + 1, 10),
            kernel(f"acme_gemm{number}<secret>", begin + 100, 600, link=number),
            kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", begin + 800, 100),
        ]
    return found


def recording(change: Change | None = None, **header: Any) -> str:
    found = events()
    if change is not None:
        change(found)
    return kineto(found, **{"trace_path": "/home/bob/acme/run", "acme": ["secret"], **header})


def of_event(**fields: Any) -> Change:
    return lambda found: found[33].update(fields)


def of_all(**fields: Any) -> Change:
    def change(found: list[dict[str, Any]]) -> None:
        for event in found:
            event.update(fields)

    return change


def long_steps(found: list[dict[str, Any]]) -> None:
    for event in found:
        if event["name"].startswith("ProfilerStep"):
            event["dur"] = 30_000


def without_nccl(found: list[dict[str, Any]]) -> None:
    found[:] = [event for event in found if "nccl" not in event["name"]]


def cut_in_the_middle() -> str:
    text = recording()
    return text[: text.index('"dur"', len(text) // 2)]


def with_bad_bytes() -> bytes:
    return recording().encode().replace(b"acme_gemm7", b"acme\xff\xfe")


def report(
    directory: Path, content: str | bytes, name: str = "trace.json"
) -> tuple[CompletedProcess[str], Path]:
    """Write a recording and report it."""
    path, output = directory / name, directory / "problem.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return (
        torchscale(directory, "profile", "analyze", name, "--report-problem", output.name),
        output,
    )


def error_of(path: Path) -> str:
    message = _failure([path], WindowChoice.AUTO, None)
    assert message is not None
    return _alike(message, path)


def strict_analysis(paths: list[Path], *_: object, **__: object) -> None:
    """Refuse a recording for the types of a few fields, as a reader may that knows no others."""
    for path in paths:
        check_types(path)


def check_types(path: Path) -> None:
    """Raise for the first field of another type."""
    try:
        text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        content = json.loads(text.decode(), parse_constant=int)
    except (ValueError, RecursionError) as error:
        raise TraceError(
            f"{path.name}: not valid JSON (after byte {path.stat().st_size})"
        ) from error
    found = content
    if isinstance(content, dict):
        found = content["traceEvents"]
        if not isinstance(content.get("distributedInfo", {}).get("rank", 0), int):
            raise TraceError(f"{path.name}: Expected `int` - at `$.distributedInfo.rank`")
    for place, event in enumerate(found):
        if not isinstance(event, dict):
            raise TraceError(f"{path.name}: Expected `object` - at `$[{place}]`")
        for field, kind in (("dur", float), ("ts", float), ("tid", int)):
            if not isinstance(event.get(field, 0), (int, kind)):
                raise TraceError(f"{path.name}: Expected `{kind}` - at `$[{place}].{field}`")
        if not isinstance(event.get("args", {}).get("correlation", 0), int):
            raise TraceError(f"{path.name}: Expected `int` - at `$[{place}].args.correlation`")


@pytest.fixture
def strict(monkeypatch: pytest.MonkeyPatch) -> None:
    """An analysis that refuses fields of other types."""
    monkeypatch.setattr(failing, "analyze_files", strict_analysis)


WAYS: dict[str, tuple[Callable[[], str | bytes], int]] = {
    "a rank that cannot be": (lambda: recording(rank=7), 90),
    "no rank of several": (
        lambda: recording(distributedInfo={"world_size": 4, "backend": "gloo"}),
        90,
    ),
    "steps that overlap": (lambda: recording(long_steps), 250),
    "impossible times": (lambda: recording(of_all(ts=1e30)), 200),
    "no time": (lambda: recording(of_all(dur=0)), 80),
    "no collectives": (lambda: recording(without_nccl), 180),
    "cut off": (cut_in_the_middle, 400),
    "a comma is missing": (lambda: recording().replace('",\n      "pid": 10', '"\n"pid": 10'), 400),
    "a quote too many": (lambda: recording().replace('"dur"', '""dur"', 1), 4200),
    "brackets within brackets": (
        lambda: '{"traceEvents": [{"acme": ' + "[" * 99_999 + "]" * 99_999 + "}]}",
        4200,
    ),
}
WAYS_OF_STRICT: dict[str, tuple[Callable[[], str | bytes], int]] = {
    "a field of another type": (lambda: recording(of_event(dur="12 acme")), 50),
    "an object for a number": (lambda: recording(of_event(ts={"acme": ["bob"] * 9})), 50),
    "an argument as text": (lambda: recording(of_event(args={"correlation": "bob"})), 70),
    "a rank of another type": (lambda: recording(distributedInfo={"rank": "acme"}), 80),
    "null for an event": (
        lambda: recording().replace('"traceEvents": [\n', '"traceEvents": [\nnull,\n'),
        40,
    ),
    "bytes that are no text": (with_bad_bytes, 400),
    "not a number": (lambda: recording().replace("900,", "NaN,"), 60),
    "two keys of one name": (
        lambda: recording().replace('"rank": 0', '"rank": "acme", "rank": "bob"'),
        90,
    ),
    "a list": (
        lambda: json.dumps([*events()[:7], {**events()[7], "tid": ["acme"]}, *events()[8:]]),
        60,
    ),
}


def check(directory: Path, content: str | bytes, most_bytes: int) -> None:
    """That a part is written, small, without private text, and that it fails as the whole does."""
    done, output = report(directory, content)
    assert done.returncode == 0, done.stderr
    assert "which fails in the same way" in done.stderr
    assert "Look at it before you send it" in done.stderr
    text = output.read_bytes()
    assert not [word for word in PRIVATE if word.encode() in text]
    assert len(text) <= most_bytes
    assert f"({len(text):,} bytes)" in done.stderr
    assert error_of(output) == error_of(directory / "trace.json")


@pytest.mark.parametrize("way", WAYS)
def test_a_part_fails_in_the_same_way_and_holds_nothing_private(way: str, tmp_path: Path) -> None:
    make, most_bytes = WAYS[way]
    check(tmp_path, make(), most_bytes)


@pytest.mark.usefixtures("strict")
@pytest.mark.parametrize("way", WAYS_OF_STRICT)
def test_a_part_is_refused_for_the_same_field_and_holds_nothing_private(
    way: str, tmp_path: Path
) -> None:
    make, most_bytes = WAYS_OF_STRICT[way]
    check(tmp_path, make(), most_bytes)


@pytest.mark.usefixtures("strict")
def test_the_smallest_part_is_one_field_of_one_event(tmp_path: Path) -> None:
    _, output = report(tmp_path, recording(of_event(dur="12")))
    assert json.loads(output.read_text()) == {"traceEvents": [{"dur": "11"}]}


def test_what_is_missing_is_shown_by_the_kinds_that_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def analyze(paths: list[Path], *_: object, **__: object) -> None:
        found = json.loads(paths[0].read_text())["traceEvents"]
        if not any(event["cat"] == "kernel" for event in found):
            raise TraceError("an empty recording")

    monkeypatch.setattr(failing, "analyze_files", analyze)
    done, output = report(tmp_path, recording(of_all(cat="future_activity")))
    (event,) = json.loads(output.read_text())["traceEvents"]
    assert (event["ph"], event["cat"]) == ("X", "future_activity")
    assert "one event of each kind" in done.stderr
    assert not [word for word in PRIVATE if word in output.read_text()]


@pytest.mark.usefixtures("strict")
def test_a_packed_recording_is_read(tmp_path: Path) -> None:
    packed = gzip.compress(recording(of_event(dur="12")).encode())
    _, output = report(tmp_path, packed, "trace.json.gz")
    assert json.loads(output.read_text()) == {"traceEvents": [{"dur": "11"}]}


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("trace.json", b"", "nothing"),
        ("trace.json", b"<html>acme secret</html>", "HTML or XML"),
        ("trace.json", b'{"acme": "secret"}', "a JSON object"),
        ("trace.json", b"PK\x03\x04acme", "zip"),
        ("trace.json", b"acme\0secret", "bytes that are no text"),
        ("trace.acme", "acme secret ☃".encode(), "text"),
        ("trace.json.gz", gzip.compress(recording().encode())[:-200], "a JSON object"),
        ("trace.json.gz", b"\x1f\x8bacme", "nothing"),
    ],
)
def test_of_what_cannot_be_shown_there_is_a_description(
    tmp_path: Path, name: str, content: bytes, kind: str
) -> None:
    done, output = report(tmp_path, content, name)
    assert done.returncode == 0, done.stderr
    assert "a description alone" in done.stderr
    description = json.loads(output.read_text())
    assert description["bytes"] == len(content)
    assert description["text_begins_as"] == kind
    assert description["error"].startswith("FILE: ")
    assert not [word for word in PRIVATE if word in output.read_text()]


@pytest.mark.usefixtures("strict")
@pytest.mark.parametrize("name", ["e", "0", "12.json", "rank.trace"])
def test_a_file_of_any_name_fails_as_its_part_does(tmp_path: Path, name: str) -> None:
    done, output = report(tmp_path, recording(of_event(dur="12")), name)
    assert done.returncode == 0, done.stderr
    assert json.loads(output.read_text()) == {"traceEvents": [{"dur": "11"}]}


def test_a_recording_that_unpacks_to_far_too_much_is_described(tmp_path: Path) -> None:
    done, output = report(
        tmp_path, gzip.compress(b'{"traceEvents": [' + b" " * (80 << 20)), "trace.json.gz"
    )
    assert done.returncode == 0, done.stderr
    assert "no part of it fails so" in json.loads(output.read_text())["because"]


def test_a_rank_in_the_name_of_the_file_is_asked_for(tmp_path: Path) -> None:
    content = recording(distributedInfo={"world_size": 4, "backend": "gloo"})
    done, output = report(tmp_path, content, "rank9.json")
    assert "where the rank is in the file's name" in done.stderr
    output.unlink()
    arguments = ("profile", "analyze", "rank9.json", "--report-problem", "rank9-problem.json")
    assert "which fails in the same way" in torchscale(tmp_path, *arguments).stderr


@pytest.mark.usefixtures("strict")
def test_of_several_the_one_that_fails_is_reported(tmp_path: Path) -> None:
    traces = tmp_path / "traces"
    traces.mkdir()
    for rank in range(3):
        change = of_event(dur="x") if rank == 1 else None
        (traces / f"rank{rank}.json").write_text(recording(change, rank=rank, world_size=3))
    arguments = ("profile", "analyze", "traces", "--report-problem", "problem.json")
    done = torchscale(tmp_path, *arguments)
    assert "rank1.json" in done.stderr
    assert json.loads((tmp_path / "problem.json").read_text()) == {
        "traceEvents": [{"dur": "name1"}]
    }


def test_recordings_that_fail_together_alone_are_told(tmp_path: Path) -> None:
    for number in range(2):
        (tmp_path / f"run{number}.json").write_text(recording(backend="gloo"))
    arguments = ("profile", "analyze", ".", "--report-problem", "problem.json")
    done = torchscale(tmp_path, *arguments)
    assert done.returncode == 2
    assert "none of the first 2 recordings fails by itself" in done.stderr
    assert "rank 0 is there more than once" in done.stderr


def test_nothing_to_report(tmp_path: Path) -> None:
    done, output = report(tmp_path, recording())
    assert done.returncode == 1
    assert "nothing to report" in done.stderr
    assert "few whole steps" in done.stderr
    assert not output.exists()


def test_what_is_asked_for_is_analyzed(tmp_path: Path) -> None:
    (tmp_path / "trace.json").write_text(recording(backend="gloo"))
    arguments = ("profile", "analyze", "trace.json", "--report-problem", "problem.json")
    done = torchscale(tmp_path, *arguments, "--steps", "700:800")
    assert done.returncode == 0
    assert "no such step was recorded" in done.stderr


def test_recordings_of_nsys_and_archives_are_refused(tmp_path: Path) -> None:
    export = NsysExport()
    export.kernel(1, "gemm", 0, 10)
    export.write(tmp_path / "run.sqlite")
    with tarfile.open(tmp_path / "runs.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "run.sqlite")
    (tmp_path / "run.nsys-rep").write_bytes(b"")
    for name, told in {
        "run.sqlite": "profile strip",
        "run.nsys-rep": "profile strip",
        "runs.tar.gz": "unpack it",
    }.items():
        arguments = ("profile", "analyze", name, "--report-problem", "problem.json")
        done = torchscale(tmp_path, *arguments)
        assert done.returncode == 2
        assert told in done.stderr
    assert not (tmp_path / "problem.json").exists()


@pytest.mark.parametrize(
    ("options", "code", "told"),
    [
        (("--report-problem", "there.json"), 2, "it exists already"),
        (("--report-problem", "link.json"), 2, "it exists already"),
        (("--report-problem", "problem.txt"), 2, "expected a name that ends in .json"),
        (("--report-problem", "gone/problem.json"), 3, "no such directory"),
        (("--report-problem", "problem.json", "--what-if"), 2, "leave out"),
        (("--report-problem", "problem.json", "--output-dir", "out"), 2, "leave out"),
        (("--report-problem", "problem.json", "--ranks", "x"), 2, "neither a rank nor a range"),
    ],
)
def test_what_cannot_be_written_is_refused_before_anything_is_read(
    tmp_path: Path, options: tuple[str, ...], code: int, told: str
) -> None:
    (tmp_path / "there.json").write_text("mine")
    (tmp_path / "link.json").symlink_to("nowhere")
    (tmp_path / "trace.json").write_text(recording(of_event(dur="x")))
    done = torchscale(tmp_path, "profile", "analyze", "trace.json", *options)
    assert done.returncode == code
    assert told in " ".join(done.stderr.split())
    assert (tmp_path / "there.json").read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "link.json",
        "there.json",
        "trace.json",
    ]


def test_an_interruption_leaves_no_half_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = []

    def analyze(paths: list[Path], *_: object, **__: object) -> None:
        tried.append(paths)
        if len(tried) > 5:
            raise KeyboardInterrupt
        raise TraceError("it fails")

    monkeypatch.setattr(failing, "analyze_files", analyze)
    done, output = report(tmp_path, recording())
    assert done.returncode == 130
    assert not output.exists()
    assert [path.name for path in tmp_path.iterdir()] == ["trace.json"]
    assert not tried[-1][0].exists()


def test_a_fault_of_the_program_is_reported_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def analyze(paths: list[Path], *_: object, **__: object) -> None:
        for event in json.loads(paths[0].read_text())["traceEvents"]:
            if event.get("dur") == 600 and event["name"]:
                raise RuntimeError(f"no such kernel: '{event['name']}' ({len(event)})")

    monkeypatch.setattr(failing, "analyze_files", analyze)
    done, output = report(tmp_path, recording())
    assert done.returncode == 0
    assert "RuntimeError: no such kernel" in done.stderr
    (event,) = json.loads(output.read_text())["traceEvents"]
    assert event == {"name": "name1", "dur": 600}


@pytest.mark.usefixtures("strict")
def test_a_recording_is_looked_at_in_windows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(problem, "_WINDOW_BYTES", 2000)
    found = events()
    found[-3]["dur"] = "12"
    (tmp_path / "trace.json").write_text(kineto(found))
    windows = list(problem._windows(tmp_path / "trace.json"))
    assert len(windows) > 5
    assert [json.loads(one) for window in windows for one in window.events] == found
    done, output = report(tmp_path, kineto(found))
    assert json.loads(output.read_text()) == {"traceEvents": [{"dur": "11"}]}
    assert "1 of 60 events" in done.stderr


def test_windows_end_where_text_has_no_end_of_an_event(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(problem, "_WINDOW_BYTES", 2000)
    monkeypatch.setattr(problem, "_MAX_CARRIED", 4000)
    (tmp_path / "trace.json").write_text(recording().replace('"dur"', '""dur"', 1) * 9)
    windows = list(problem._windows(tmp_path / "trace.json"))
    assert max(len(window.text()) for window in windows) < 8000


@pytest.mark.usefixtures("strict")
def test_as_json(tmp_path: Path) -> None:
    (tmp_path / "trace.json").write_text(recording(of_event(dur="12")))
    arguments = ("profile", "analyze", "trace.json", "--report-problem", "problem.json", "--json")
    told = json.loads(torchscale(tmp_path, *arguments).stdout)
    assert told["path"] == "problem.json"
    assert (told["events"], told["of_events"], told["reached"]) == (1, 60, "smallest")
    assert told["size_bytes"] == (tmp_path / "problem.json").stat().st_size


@pytest.mark.usefixtures("strict")
def test_without_time_for_all_names_nothing_of_the_file_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(problem, "_NAME_TRIES", 0)
    done, output = report(tmp_path, recording(of_event(dur="acme")))
    assert "there was no time to replace all names" in done.stderr
    assert "acme" not in output.read_text()


@pytest.mark.usefixtures("strict")
def test_without_time_to_make_it_small_names_are_replaced_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(problem, "_TRIES", 2)
    done, output = report(tmp_path, recording(of_event(dur="acme")))
    assert "There was no time to make it smaller" in done.stderr
    assert not [word for word in PRIVATE if word in output.read_text()]
    assert len(json.loads(output.read_text())["traceEvents"]) > 1
