"""Environments: built once, below the cache alone, and what cannot be built says why."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.bisect.wheels import write_wheel
from torchscale.bisect.builder import Builder, Sources, foreign_python, variables_of
from torchscale.bisect.environment import Environment

ONE = Environment(requirements=("demo==1.0",))


@pytest.fixture
def sources(tmp_path: Path) -> Sources:
    wheels = tmp_path / "wheels"
    write_wheel(wheels, "demo", "1.0", "NAME = 'one'")
    write_wheel(wheels, "common", "3.0", "NAME = 'common'")
    return Sources((wheels,), common=("common==3.0",))


def test_without_an_index_no_network_is_asked(tmp_path: Path) -> None:
    options = Sources((tmp_path,)).options
    assert options == ["--no-index", f"--find-links={tmp_path}"]
    assert Sources((), "https://example.org/simple").options == [
        "--index-url=https://example.org/simple"
    ]
    assert Sources((), "default").options == []


@pytest.mark.slow
def test_built_once_with_its_packages_alone(tmp_path: Path, sources: Sources) -> None:
    builder = Builder(tmp_path / "cache", sources)
    assert not builder.is_built(ONE)
    built = builder.build(ONE)
    assert (built.problem, built.seconds > 0) == ("", True)
    assert builder.build(ONE).seconds == 0
    assert built.directory is not None
    done = subprocess.run(
        ["python", "-c", "import demo, common; print(demo.NAME, common.__file__)"],
        env=variables_of(built.directory, (("A", "1"),)),
        executable=str(built.directory / "bin" / "python"),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.startswith("one ")
    assert str(built.directory) in done.stdout
    missing = subprocess.run(
        [str(built.directory / "bin" / "python"), "-c", "import numpy"],
        env=variables_of(built.directory, ()),
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert missing.returncode != 0


@pytest.mark.slow
def test_a_build_that_was_killed_is_begun_again(tmp_path: Path, sources: Sources) -> None:
    builder = Builder(tmp_path / "cache", sources)
    torn = builder.directory(ONE)
    (torn / "bin").mkdir(parents=True)
    (torn / "left-over").touch()
    assert not builder.is_built(ONE)
    assert builder.build(ONE).directory == torn
    assert not (torn / "left-over").exists()


@pytest.mark.slow
def test_what_cannot_be_built_says_why_and_leaves_nothing(tmp_path: Path, sources: Sources) -> None:
    builder = Builder(tmp_path / "cache", sources)
    absent = Environment(requirements=("demo==9.9",))
    built = builder.build(absent)
    assert built.directory is None
    assert "demo==9.9" in built.problem
    assert not builder.directory(absent).exists()


@pytest.mark.slow
@pytest.mark.parametrize("how", ["variable", "file"])
def test_only_the_named_directories_are_searched(
    tmp_path: Path, sources: Sources, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Whatever pip is set up for on this machine."""
    other = tmp_path / "other"
    write_wheel(other, "demo", "2.0", "")
    if how == "variable":
        monkeypatch.setenv("PIP_FIND_LINKS", str(other))
    else:
        config = tmp_path / "pip.conf"
        config.write_text(f"[global]\nfind-links = {other}\n")
        monkeypatch.setenv("PIP_CONFIG_FILE", str(config))
    newer = Environment(requirements=("demo==2.0",))
    assert Builder(tmp_path / "cache", sources).build(newer).directory is None


@pytest.mark.slow
def test_a_build_has_a_time_limit(tmp_path: Path, sources: Sources) -> None:
    built = Builder(tmp_path / "cache", sources, timeout_seconds=0.01).build(ONE)
    assert "--build-timeout" in built.problem


@pytest.mark.slow
@pytest.mark.parametrize("tool", ["uv", "pip"])
def test_by_either_tool(
    tmp_path: Path, sources: Sources, monkeypatch: pytest.MonkeyPatch, tool: str
) -> None:
    if tool == "pip":
        monkeypatch.setattr("torchscale.bisect.builder.installed_program", lambda _: None)
    built = Builder(tmp_path / "cache", sources).build(ONE)
    assert built.directory is not None, built.problem
    assert f'"{tool}"' in (built.directory / "environment.json").read_text()
    assert list(built.directory.glob("lib/python3.*/site-packages/demo*"))
    assert (tmp_path / "cache" / "uv").exists() is (tool == "uv")


def test_a_program_of_another_python_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, other = tmp_path / "environment", tmp_path / "other"
    for path, text in (
        (own / "bin" / "python", ""),
        (other / "bin" / "python", ""),
        (other / "bin" / "torchrun", "#!/other/bin/python3\n"),
        (other / "bin" / "job", "#!/bin/sh\n"),
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
    monkeypatch.setenv("PATH", str(other / "bin"))
    assert foreign_python("python", own) == ""
    assert foreign_python("job", own) == ""
    assert foreign_python("absent", own) == ""
    assert "runs in another Python" in foreign_python("torchrun", own)
    assert "write python" in foreign_python(str(other / "bin" / "python"), own)


def test_other_packages_another_origin_or_another_python_is_another_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Builder(tmp_path, Sources((tmp_path,)))
    places = {
        first.directory(ONE),
        first.directory(Environment(requirements=("demo==1.1",))),
        Builder(tmp_path, Sources((tmp_path / "other",))).directory(ONE),
        Builder(tmp_path, Sources((tmp_path,), common=("x==1",))).directory(ONE),
    }
    monkeypatch.setattr("torchscale.bisect.builder.interpreter", lambda: "/other/python")
    assert len(places | {first.directory(ONE)}) == 5


def test_variables_lead_to_the_environment_and_to_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    monkeypatch.setenv("PATH", "/usr/bin")
    found = variables_of(tmp_path, (("NCCL_ALGO", "Ring"),))
    assert found["PATH"] == f"{tmp_path}/bin:/usr/bin"
    assert found["VIRTUAL_ENV"] == str(tmp_path)
    assert found["NCCL_ALGO"] == "Ring"
    assert "PYTHONPATH" not in found
    assert variables_of(None, ())["PYTHONPATH"] == "/somewhere"
    assert shutil.which("sh", path=found["PATH"]) is not None
