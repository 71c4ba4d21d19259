"""What a bisection reads back from its folder: bounded, or refused by name."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from torchscale.errors import StoreError
from torchscale.features.bisect.state import FILE, BisectState, LaunchEntry, read_state

LAUNCH = {
    "environment": 0,
    "state": "ok",
    "value": 1.5,
    "reason": "",
    "seconds": 2.0,
    "started_at": "2026-01-02T03:04:05+00:00",
    "is_warmup": False,
}
STATE = {
    "schema_version": 2,
    "question": "abc",
    "command": ["python", "x"],
    "environments": ["old", "new"],
    "launches": [LAUNCH],
}


def launch(**changed: object) -> str:
    return json.dumps({**STATE, "launches": [LAUNCH, {**LAUNCH, **changed}]})


def state(**changed: object) -> str:
    return json.dumps({**STATE, **changed})


def test_what_was_written_is_read(tmp_path: Path) -> None:
    entry = LaunchEntry(
        environment=1, state="ok", value=1e20, seconds=0.0, started_at="2026-01-02T03:04:05+00:00"
    )
    before = BisectState(question="abc", command=("a",), environments=("x", "y")).with_launch(entry)
    before.write(tmp_path)
    assert read_state(tmp_path, "abc", 2) == before
    assert read_state(tmp_path / "new", "abc", 2) is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (launch(value=1e308), "value.*1e[+]308"),
        (launch(value=5e-324), "value.*5e-324"),
        (launch(value=-1.0), "value.*-1.0"),
        (launch(value=0), "value"),
        (launch(value=float("nan")), "value.*finite"),
        (launch(value=float("inf")), "value.*finite"),
        (launch(value="1.5"), "value.*number"),
        (launch(value=True), "value.*true"),
        (launch(value=None), "a launch that is ok has no value"),
        (launch(state="failed"), "a launch that is failed has a value"),
        (launch(state="fine"), "state"),
        (launch(seconds=1e308), "seconds"),
        (launch(seconds=-1), "seconds"),
        (launch(environment=2), "environment 2, of 2"),
        (launch(environment=-1), "environment"),
        (launch(environment=1.5), "environment"),
        (launch(environment=10**400), "environment"),
        (launch(reason="x" * 100_000), "reason"),
        (launch(started_at="x" * 100_000), "started_at"),
        (launch(more=1), "more"),
        (state(environments=[]), "environment 0, of 0"),
        (state(environments=["a"]), "has 1 environments; expected 2"),
        (state(environments=["a", "b", "c"]), "has 3 environments; expected 2"),
        (state(environments=["a", "b" * (2 << 20)]), "environments.1"),
        (state(launches=[LAUNCH] * 1001), "1,001 launches that count; expected 1,000"),
        (state(launches=[{**LAUNCH, "is_warmup": True}] * 10_001), "launches"),
        (state(launches={}), "launches"),
        (state(question="x" * 1000), "question"),
        (state(question="abd"), "another command"),
        (state(schema_version=99), "version 99"),
        ("[" * 100_000, "recursion"),
        ('{"launches":' * 100_000, "recursion"),
        ("[]", "object"),
        ("null", "object"),
        ("", "EOF"),
        ("\0", "JSON"),
    ],
    ids=lambda value: value[-60:] if len(value) > 60 else value,
)
def test_a_damaged_file_is_refused_with_what_is_wrong(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / FILE).write_text(text)
    with pytest.raises(StoreError, match=said) as raised:
        read_state(tmp_path, "abc", 2)
    assert len(raised.value.message) < 1000


def pipe(path: Path) -> None:
    os.mkfifo(path)


def directory(path: Path) -> None:
    path.mkdir()


def loop(path: Path) -> None:
    path.symlink_to(path.name)


def link_to_nothing(path: Path) -> None:
    path.symlink_to("nothing")


def link_out(path: Path) -> None:
    path.parent.with_suffix(".other").write_text(json.dumps(STATE))
    path.symlink_to(path.parent.with_suffix(".other"))


def large(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


@pytest.mark.parametrize("make", [pipe, directory, loop, link_to_nothing, link_out, large])
def test_something_else_in_its_place_is_refused(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    make(folder / FILE)
    with pytest.raises(StoreError, match=FILE):
        read_state(folder, "abc", 2)
