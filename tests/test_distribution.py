"""The packages that a release publishes: complete, accepted by twine, and working from what they
hold."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from email.parser import Parser
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.test_core_install import PROJECT
from torchscale.version import DISTRIBUTION, __version__

ROOT = Path(__file__).parents[1]
PARTS = (
    "LICENSE",
    "README.md",
    "pyproject.toml",
    "configs",
    "docs",
    "torchscale",
    "torchscale_bench.py",
)
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
            shutil.copytree(
                source, copy / part, symlinks=True, ignore=shutil.ignore_patterns("__pycache__")
            )
        else:
            shutil.copy2(source, copy / part)
    command = [
        sys.executable,
        "-m",
        "build",
        "--no-isolation",
        "--outdir",
        str(place / "dist"),
        str(copy),
    ]
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
    modules = {
        path.relative_to(ROOT) for path in package.rglob("*.py") if "_docs" not in path.parts
    }
    data = [package / "py.typed", *(package / "report" / "formats" / "templates").iterdir()]
    pages = [*(package / "_docs").glob("*.md"), *(package / "_configs").glob("*.yaml")]
    return {
        "torchscale_bench.py",
        *(
            path.as_posix()
            for path in {*modules, *(path.relative_to(ROOT) for path in (*data, *pages))}
        ),
    }


@pytest.mark.slow
def test_the_wheel_is_complete(unpacked: Path) -> None:
    held = {path.relative_to(unpacked).as_posix() for path in unpacked.rglob("*") if path.is_file()}
    assert shipped() - held == set()
    ours = ("torchscale/", "torchscale_bench.py", f"torchscale_bench-{__version__}.dist-info/")
    assert {path for path in held if not path.startswith(ours)} == set()


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
    assert metadata["Name"] == DISTRIBUTION == PROJECT["name"]
    assert metadata["Version"] == __version__
    assert set(metadata.get_all("Provides-Extra") or []) == set(PROJECT["optional-dependencies"])
    classifiers = metadata.get_all("Classifier") or []
    assert "Typing :: Typed" in classifiers
    assert all(
        f"Programming Language :: Python :: 3.{minor}" in classifiers for minor in range(10, 15)
    )
    core = [one for one in metadata.get_all("Requires-Dist") or [] if "extra ==" not in one]
    assert sorted(core) == sorted(PROJECT["dependencies"])


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [["docs", "stability"], ["init", "--list"]], ids=" ".join)
def test_the_wheel_runs_without_the_checkout(
    unpacked: Path, tmp_path: Path, arguments: list[str]
) -> None:
    program = (
        f"import sys; sys.path.insert(0, {str(unpacked)!r}); from torchscale_bench import run; "
        "run()"
    )
    command = [sys.executable, "-I", "-c", program, *arguments]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


@pytest.fixture(scope="module")
def other_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files and metadata as of PyPI's project ``torchscale``."""
    metadata = (
        "Metadata-Version: 2.1\nName: torchscale\nVersion: 0.3.0\nSummary: Transformers at any "
        "scale\n"
    )
    files = {
        "torchscale/__init__.py": "# Another project.\n",
        "torchscale/architecture/__init__.py": "",
        "torchscale-0.3.0.dist-info/METADATA": metadata,
        "torchscale-0.3.0.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: "
        "py3-none-any\n",
        "torchscale-0.3.0.dist-info/top_level.txt": "torchscale\n",
    }
    record = "torchscale-0.3.0.dist-info/RECORD"
    path = tmp_path_factory.mktemp("other") / "torchscale-0.3.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in {
            **files,
            record: "".join(f"{name},,\n" for name in (*files, record)),
        }.items():
            archive.writestr(name, text)
    return path


class Environment:
    """A new environment without pip, which sees the libraries of this one."""

    def __init__(self, directory: Path) -> None:
        venv.create(directory)
        self.python = directory / "bin" / "python"
        (self.site,) = directory.glob("lib/python*/site-packages")
        (self.site / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")

    def pip(self, *arguments: str) -> None:
        """Run this environment's pip on that one."""
        command = [sys.executable, "-m", "pip", "--python", str(self.python), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, done.stderr

    def install(self, *wheels: Path) -> None:
        for wheel in wheels:
            self.pip("install", "--no-index", "--no-deps", str(wheel))

    def repair(self, error: str) -> None:
        """Run the commands of a hint, without asking."""
        for command in error.rpartition("hint: ")[2].split(" && "):
            pip, verb, *arguments = shlex.split(command)
            assert pip == "pip"
            self.pip(verb, *arguments, *(["--yes"] if verb == "uninstall" else ["--no-index"]))

    def torchscale(self, **variables: str) -> tuple[int, str, str]:
        """Exit code, output and errors of ``torchscale --version``."""
        command = [str(self.python.with_name("torchscale")), "--version"]
        environment = {"PATH": "/usr/bin:/bin", "COLUMNS": "1000", **variables}
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False, timeout=60
        )
        return done.returncode, done.stdout, done.stderr

    def namesakes(self) -> str:
        """What :func:`torchscale.util.namesake.namesakes` finds there."""
        program = "from torchscale.util.namesake import namesakes; print(*namesakes())"
        command = [str(self.python), "-I", "-c", program]
        return subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=60
        ).stdout.strip()


RUNS = (0, f"torchscale {__version__}\n", "")
OTHER = "torchscale 0.3.0 (Transformers at any scale)"


@pytest.mark.slow
def test_ours_runs_after_the_other_torchscale_and_sees_it_until_its_removal_breaks_us(
    packages: Path, other_wheel: Path, tmp_path: Path
) -> None:
    (ours,) = packages.glob("*.whl")
    environment = Environment(tmp_path / "venv")
    environment.install(ours)
    assert (environment.torchscale(), environment.namesakes()) == (RUNS, "")
    environment.pip("uninstall", "--yes", "torchscale-bench")
    environment.install(other_wheel, ours)
    assert (environment.torchscale(), environment.namesakes()) == (RUNS, OTHER)
    environment.pip("uninstall", "--yes", "torchscale")
    code, _, error = environment.torchscale()
    assert code == 3
    assert error.startswith(f"error: {environment.site}/torchscale/__init__.py is missing: "), error
    environment.repair(error)
    assert (environment.torchscale(), environment.namesakes()) == (RUNS, "")


@pytest.mark.slow
def test_the_other_torchscale_on_top_of_ours_is_one_error_whose_hint_mends_it(
    packages: Path, other_wheel: Path, tmp_path: Path
) -> None:
    (ours,) = packages.glob("*.whl")
    environment = Environment(tmp_path / "venv")
    environment.install(ours, other_wheel)
    code, _, error = environment.torchscale()
    assert code == 3
    assert (
        f"__init__.py belongs to {OTHER}, whose package has the same name\nhint: pip uninstall "
        "torchscale && " in error
    )
    environment.repair(error)
    assert (environment.torchscale(), environment.namesakes()) == (RUNS, "")


@pytest.mark.slow
def test_the_other_torchscale_that_hides_ours_is_named_with_its_place(
    packages: Path, other_wheel: Path, tmp_path: Path
) -> None:
    (ours,) = packages.glob("*.whl")
    environment = Environment(tmp_path / "venv")
    environment.install(ours)
    with zipfile.ZipFile(other_wheel) as archive:
        archive.extractall(tmp_path / "clone")  # noqa: S202 - built above
    code, out, error = environment.torchscale(PYTHONPATH=str(tmp_path / "clone"))
    assert (code, out) == (3, "")
    place = tmp_path / "clone" / "torchscale"
    assert error.startswith(f"error: the package torchscale of {place} is another project's, "), (
        error
    )
    assert "pip uninstall torchscale, or take it off PYTHONPATH" in error


def test_the_conda_recipe_is_of_this_version_and_its_core() -> None:
    recipe = yaml.safe_load((ROOT / "conda" / "recipe.yaml").read_text())
    assert recipe["context"]["version"] == __version__ == PROJECT["version"]
    assert recipe["package"]["name"] == PROJECT["name"]
    needed = {line.replace(" ", "") for line in recipe["requirements"]["run"]}
    assert needed == {*PROJECT["dependencies"], f"python{PROJECT['requires-python']}"}
    (entry,) = recipe["build"]["python"]["entry_points"]
    assert entry.split(" = ") == [*PROJECT["scripts"], *PROJECT["scripts"].values()]


def scripts_of(workflow: dict[str, Any]) -> list[str]:
    """Every shell script of a workflow."""
    return [
        step["run"] for job in workflow["jobs"].values() for step in job["steps"] if "run" in step
    ]


@pytest.mark.slow
@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_the_scripts_of_workflows_are_shell_and_jobs_end(path: Path) -> None:
    workflow = yaml.safe_load(path.read_text())
    assert all(0 < job["timeout-minutes"] <= 60 for job in workflow["jobs"].values())
    for script in scripts_of(workflow):
        command = ["/bin/bash", "-n"]
        done = subprocess.run(
            command, input=script, text=True, capture_output=True, check=False, timeout=30
        )
        assert (done.returncode, done.stderr) == (0, "")


def test_a_release_publishes_nothing_that_was_not_checked_and_tried() -> None:
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())["jobs"]
    assert (jobs["try"]["needs"], jobs["publish"]["needs"]) == ("build", "try")
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert any("twine check --strict" in step.get("run", "") for step in jobs["build"]["steps"])
