"""The packages that a release publishes: complete, accepted by twine, and working from what they hold."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.test_core_install import PROJECT
from torchscale.version import __version__

ROOT = Path(__file__).parents[1]
PARTS = ("LICENSE", "README.md", "pyproject.toml", "configs", "docs", "torchscale")
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """sdist, and the wheel that was built from it, of a copy of the checkout."""
    place = tmp_path_factory.mktemp("packages")
    copy = place / "checkout"
    copy.mkdir()
    for part in PARTS:
        source = ROOT / part
        if source.is_dir():
            shutil.copytree(source, copy / part, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(source, copy / part)
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(place / "dist"), str(copy)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return place / "dist"


@pytest.fixture(scope="module")
def unpacked(packages: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What installing the wheel puts into an environment."""
    place = tmp_path_factory.mktemp("site")
    (wheel,) = packages.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(place)  # noqa: S202 - built above
    return place


def shipped() -> set[str]:
    """Every file that an installation needs, as it is named in the wheel."""
    package = ROOT / "torchscale"
    modules = {path.relative_to(ROOT) for path in package.rglob("*.py") if "_docs" not in path.parts}
    data = [package / "py.typed", *(package / "report" / "formats" / "templates").iterdir()]
    pages = [*(package / "_docs").glob("*.md"), *(package / "_configs").glob("*.yaml")]
    return {path.as_posix() for path in {*modules, *(path.relative_to(ROOT) for path in (*data, *pages))}}


@pytest.mark.slow
def test_the_wheel_is_complete(unpacked: Path) -> None:
    held = {path.relative_to(unpacked).as_posix() for path in unpacked.rglob("*") if path.is_file()}
    assert shipped() - held == set()
    assert {
        path for path in held if not path.startswith(("torchscale/", f"torchscale-{__version__}.dist-info/"))
    } == set()


@pytest.mark.slow
def test_the_sdist_is_complete(packages: Path) -> None:
    (sdist,) = packages.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    assert (shipped() | {"LICENSE", "README.md", "pyproject.toml"}) - held == set()


@pytest.mark.slow
def test_twine_accepts_both(packages: Path) -> None:
    files = [str(path) for path in packages.iterdir()]
    command = [sys.executable, "-m", "twine", "check", "--strict", *files]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("PASSED") == len(files) == 2


@pytest.mark.slow
def test_the_metadata_names_extras_versions_of_python_and_types(unpacked: Path) -> None:
    (file,) = unpacked.glob("*.dist-info/METADATA")
    metadata = Parser().parsestr(file.read_text())
    assert metadata["Version"] == __version__
    assert set(metadata.get_all("Provides-Extra") or []) == set(PROJECT["optional-dependencies"])
    classifiers = metadata.get_all("Classifier") or []
    assert "Typing :: Typed" in classifiers
    assert all(f"Programming Language :: Python :: 3.{minor}" in classifiers for minor in range(10, 15))
    core = [one for one in metadata.get_all("Requires-Dist") or [] if "extra ==" not in one]
    assert sorted(core) == sorted(PROJECT["dependencies"])


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [["docs", "stability"], ["init", "--list"]], ids=" ".join)
def test_the_wheel_runs_without_the_checkout(unpacked: Path, tmp_path: Path, arguments: list[str]) -> None:
    program = f"import sys; sys.path.insert(0, {str(unpacked)!r}); from torchscale.__main__ import run; run()"
    command = [sys.executable, "-I", "-c", program, *arguments]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_the_conda_recipe_is_of_this_version_and_its_core() -> None:
    recipe = yaml.safe_load((ROOT / "conda" / "recipe.yaml").read_text())
    assert recipe["context"]["version"] == __version__ == PROJECT["version"]
    needed = {line.replace(" ", "") for line in recipe["requirements"]["run"]}
    assert needed == {*PROJECT["dependencies"], f"python{PROJECT['requires-python']}"}
    (entry,) = recipe["build"]["python"]["entry_points"]
    assert entry.split(" = ") == [*PROJECT["scripts"], *PROJECT["scripts"].values()]


def scripts_of(workflow: dict[str, Any]) -> list[str]:
    """Every shell script of a workflow."""
    return [step["run"] for job in workflow["jobs"].values() for step in job["steps"] if "run" in step]


@pytest.mark.slow
@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_the_scripts_of_workflows_are_shell_and_jobs_end(path: Path) -> None:
    workflow = yaml.safe_load(path.read_text())
    assert all(0 < job["timeout-minutes"] <= 60 for job in workflow["jobs"].values())
    for script in scripts_of(workflow):
        command = ["/bin/bash", "-n"]
        done = subprocess.run(command, input=script, text=True, capture_output=True, check=False, timeout=30)
        assert (done.returncode, done.stderr) == (0, "")


def test_a_release_publishes_nothing_that_was_not_checked_and_tried() -> None:
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())["jobs"]
    assert (jobs["try"]["needs"], jobs["publish"]["needs"]) == ("build", "try")
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert any("twine check --strict" in step.get("run", "") for step in jobs["build"]["steps"])
