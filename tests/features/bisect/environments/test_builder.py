"""Environments: built once, below the cache alone, and what cannot be built says why."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.features.bisect.wheels import write_wheel
from tests.integration.faults import can_unshare
from torchscale.errors import OutputError
from torchscale.features.bisect.environment import ProgramEnvironment
from torchscale.features.bisect.environments.builder import Builder
from torchscale.features.bisect.environments.contents import contents_of
from torchscale.features.bisect.environments.installer import Sources
from torchscale.features.bisect.environments.variables import foreign_python, variables_of

ONE = ProgramEnvironment(requirements=("demo==1.0",))


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
    absent = ProgramEnvironment(requirements=("demo==9.9",))
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
    newer = ProgramEnvironment(requirements=("demo==2.0",))
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
        monkeypatch.setattr(
            "torchscale.features.bisect.environments.installer.installed_program", lambda _: None
        )
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
        first.directory(ProgramEnvironment(requirements=("demo==1.1",))),
        Builder(tmp_path, Sources((tmp_path / "other",))).directory(ONE),
        Builder(tmp_path, Sources((tmp_path,), common=("x==1",))).directory(ONE),
    }
    monkeypatch.setattr(
        "torchscale.features.bisect.environments.builder.interpreter", lambda: "/other/python"
    )
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


def packages(environment: Path) -> Path:
    (found,) = environment.glob("lib/python3*/site-packages")
    return found


def edited(environment: Path) -> None:
    """In place: uv shares the file with its cache."""
    (packages(environment) / "demo" / "__init__.py").write_text("NAME = 'another'\n")


def upgraded(environment: Path) -> None:
    shutil.rmtree(packages(environment) / "demo-1.0.dist-info")
    (packages(environment) / "demo-1.1.dist-info").mkdir()


def without_a_package(environment: Path) -> None:
    shutil.rmtree(packages(environment) / "demo")


def without_python(environment: Path) -> None:
    (environment / "bin" / "python").unlink()


def python_that_leads_nowhere(environment: Path) -> None:
    without_python(environment)
    (environment / "bin" / "python").symlink_to("/nowhere/python")


def damaged(environment: Path) -> None:
    (environment / "environment.json").write_text("[" * 10_000)


def of_an_earlier_version(environment: Path) -> None:
    (environment / "environment.json").write_text('{"requirements": [], "python": "", "tool": ""}')


def pipe(environment: Path) -> None:
    (environment / "environment.json").unlink()
    os.mkfifo(environment / "environment.json")


def a_link(environment: Path) -> None:
    environment.rename(environment.with_suffix(".elsewhere"))
    environment.symlink_to(environment.with_suffix(".elsewhere"))


def says(environment: Path) -> str:
    """The name that ``demo`` has in it."""
    return subprocess.run(
        [str(environment / "bin" / "python"), "-c", "import demo; print(demo.NAME)"],
        env=variables_of(environment, ()), capture_output=True, text=True, timeout=60, check=True,
    ).stdout.strip()  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("tool", ["uv", "pip"])
@pytest.mark.parametrize(
    ("change", "why"),
    [
        (edited, "demo is not as it was installed"),
        (upgraded, "demo-1.0.dist-info is not as it was installed"),
        (without_a_package, "demo is not as it was installed"),
        (without_python, "bin/python is not as it was installed"),
        (python_that_leads_nowhere, "bin/python is not as it was installed"),
        (damaged, "its environment.json is of another form"),
        (of_an_earlier_version, "its environment.json is of another form"),
        (pipe, "it cannot be read (not a regular file)"),
        (a_link, "a link is in its place"),
    ],
)
def test_an_environment_that_was_changed_is_built_again(
    tmp_path: Path,
    sources: Sources,
    monkeypatch: pytest.MonkeyPatch,
    tool: str,
    change: Callable[[Path], None],
    why: str,
) -> None:
    if tool == "pip":
        monkeypatch.setattr(
            "torchscale.features.bisect.environments.installer.installed_program", lambda _: None
        )
    builder = Builder(tmp_path / "cache", sources)
    directory = builder.build(ONE).directory
    assert directory is not None
    assert builder.is_built(ONE)
    change(directory)
    assert not builder.is_built(ONE)
    again = builder.build(ONE)
    assert again.note == f"its cached environment is built again, since {why}", again.problem
    assert again.directory == directory
    assert says(directory) == "one"
    assert (builder.is_built(ONE), builder.build(ONE).note) == (True, "")


@pytest.mark.slow
def test_environments_that_changed_places_are_built_again(tmp_path: Path) -> None:
    wheels = tmp_path / "wheels"
    for version in ("1.0", "2.0"):
        write_wheel(wheels, "demo", version, f"NAME = '{version}'")
    builder = Builder(tmp_path / "cache", Sources((wheels,)))
    both = [ProgramEnvironment(requirements=(f"demo=={version}",)) for version in ("1.0", "2.0")]
    first, second = (builder.build(one).directory for one in both)
    assert first is not None
    assert second is not None
    first.rename(tmp_path / "away")
    second.rename(first)
    (tmp_path / "away").rename(second)
    assert [builder.build(one).note.rpartition("since ")[2] for one in both] == [
        "it is that of other packages"
    ] * 2
    assert (says(first), says(second)) == ("1.0", "2.0")


@pytest.mark.slow
def test_a_python_of_another_version_is_noticed(
    tmp_path: Path, sources: Sources, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the Python that an environment is made of was replaced, no file of it changes."""
    builder = Builder(tmp_path / "cache", sources)
    assert builder.build(ONE).note == ""
    monkeypatch.setattr(
        "torchscale.features.bisect.environments.builder._SAY_WHAT", "print('3 99 0')"
    )
    assert "its Python was 3 " in builder.build(ONE).note
    monkeypatch.setattr(
        "torchscale.features.bisect.environments.builder._SAY_WHAT", "raise SystemExit(3)"
    )
    built = builder.build(ONE)
    assert built.directory is None
    assert "exit code 3" in built.problem


@pytest.mark.slow
def test_a_python_that_is_no_program_any_more_is_named(tmp_path: Path, sources: Sources) -> None:
    """As where that which environments are made of was exchanged."""
    builder = Builder(tmp_path / "cache", sources)
    directory = builder.build(ONE).directory
    assert directory is not None
    kept = directory / "bin" / "python"
    target = tmp_path / "python"
    target.write_text("nothing")
    kept.unlink()
    kept.symlink_to(target)
    forged = json.loads((directory / "environment.json").read_text())
    forged["contents"] = contents_of(directory, without="environment.json")
    (directory / "environment.json").write_text(json.dumps(forged))
    assert "its Python does not start: cannot start" in builder.build(ONE).note
    assert says(directory) == "one"


@pytest.mark.slow
def test_launches_that_compile_change_nothing(tmp_path: Path, sources: Sources) -> None:
    builder = Builder(tmp_path / "cache", sources)
    directory = builder.build(ONE).directory
    assert directory is not None
    for path in packages(directory).rglob("__pycache__"):
        shutil.rmtree(path)
    assert says(directory) == "one"
    assert builder.build(ONE).note == ""


HANGS = """
import subprocess, time
def get_requires_for_build_wheel(*_):
    return []
def build_wheel(*_):
    subprocess.Popen(["setsid", "sleep", "600"])
    open({pid!r}, "w").write("x")
    time.sleep(600)
"""


@pytest.mark.slow
@pytest.mark.parametrize("tool", ["uv", "pip"])
def test_a_build_that_hangs_is_ended_and_its_step_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tool: str
) -> None:
    if tool == "pip":
        monkeypatch.setattr(
            "torchscale.features.bisect.environments.installer.installed_program", lambda _: None
        )
    source, wheels, started = tmp_path / "hang-1.0", tmp_path / "wheels", tmp_path / "started"
    source.mkdir()
    wheels.mkdir()
    (source / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: hang\nVersion: 1.0\n")
    (source / "own.py").write_text(HANGS.format(pid=str(started)))
    (source / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "own"\nbackend-path = ["."]\n'
    )
    with tarfile.open(wheels / "hang-1.0.tar.gz", "w:gz") as archive:
        archive.add(source, "hang-1.0")
    builder = Builder(tmp_path / "cache", Sources((wheels,)), timeout_seconds=15)
    environment = ProgramEnvironment(requirements=("hang==1.0",))
    built = builder.build(environment, cancelled=started.exists)  # as soon as it hangs
    assert (built.directory, started.exists()) == (None, True), built.problem
    started.unlink()
    built = Builder(tmp_path / "cache", Sources((wheels,)), timeout_seconds=3).build(environment)
    assert "had not ended when 3 s were over (--build-timeout)" in built.problem
    assert not builder.directory(environment).exists()


@pytest.mark.slow
def test_a_stop_leaves_a_whole_environment_where_it_is(tmp_path: Path, sources: Sources) -> None:
    builder = Builder(tmp_path / "cache", sources)
    directory = builder.build(ONE).directory
    assert builder.build(ONE, cancelled=lambda: True).directory is None
    assert directory is not None
    assert builder.is_built(ONE)


@pytest.mark.slow
def test_no_variable_of_a_repository_reaches_a_build(
    tmp_path: Path, sources: Sources, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A package may ask git for its version."""
    monkeypatch.setenv("GIT_DIR", "/somewhere/.git")
    monkeypatch.setenv("GIT_WORK_TREE", "/somewhere")
    seen = tmp_path / "seen"
    monkeypatch.setattr(
        "torchscale.features.bisect.environments.builder._SAY_WHAT",
        f"import os, sys; open({str(seen)!r}, 'w').write(str(sorted(os.environ))); print(1)",
    )
    assert Builder(tmp_path / "cache", sources).build(ONE).directory is not None
    assert not {"GIT_DIR", "GIT_WORK_TREE"} & set(ast.literal_eval(seen.read_text()))


def test_variables_of_a_repository_stay_where_the_command_runs_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_DIR", "/somewhere/.git")
    assert variables_of(None, ())["GIT_DIR"] == "/somewhere/.git"
    assert "GIT_DIR" not in variables_of(None, (), in_clone=True)
    assert "GIT_DIR" not in variables_of(tmp_path, (), in_clone=True)
    asked = variables_of(None, (("GIT_DIR", "/asked"),), in_clone=True)
    assert asked["GIT_DIR"] == "/asked"


@pytest.mark.slow
def test_what_cannot_be_removed_is_no_part_of_a_new_environment(
    tmp_path: Path, sources: Sources, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = Builder(tmp_path / "cache", sources)
    builder.directory(ONE).mkdir(parents=True)
    monkeypatch.setattr(
        "torchscale.features.bisect.environments.builder.remove_tree", lambda _: None
    )
    with pytest.raises(OutputError, match="cannot remove"):
        builder.build(ONE)


SMALL = """
import sys
from pathlib import Path
from torchscale.features.bisect.environments.builder import Builder
from torchscale.features.bisect.environments.installer import Sources
from torchscale.features.bisect.environment import ProgramEnvironment
from torchscale.errors import OutputError

builder = Builder(Path(sys.argv[1]), Sources((Path(sys.argv[2]),)))
large = ProgramEnvironment(requirements=("demo==1.0",))
try:
    builder.build(large)
except OutputError as error:
    print(error.message, "|", error.hint)
print("left:", builder.is_built(large), builder.directory(large).exists())
"""


@pytest.mark.slow
@pytest.mark.skipif(not can_unshare("-rm"), reason="no file system of our own can be mounted here")
@pytest.mark.parametrize("mebibytes", [2, 10, 28])
def test_a_build_that_fills_a_disk_ends_and_names_it(tmp_path: Path, mebibytes: int) -> None:
    """Where the wheel is unpacked, where it is linked, and where it is compiled, which does not
    fail: on a file system of this size."""
    wheels, small = tmp_path / "wheels", tmp_path / "small"
    small.mkdir()
    write_wheel(wheels, "demo", "1.0", f"TEXT = '{os.urandom(9 << 20).hex()}'")
    script = f'mount -t tmpfs -o size={mebibytes}M tmpfs "$1" && exec "$0" -c "$3" "$1" "$2"'
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", script, sys.executable, str(small), str(wheels), SMALL],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said, left = done.stdout.splitlines()
    assert said.startswith("cannot build demo==1.0: ")
    assert str(small) in said
    assert "--cache DIR" in said
    assert left == "left: False False"
