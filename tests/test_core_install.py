"""The core without extras: what an installation without extras must be able to do, and what it says
of the rest."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

import pytest

from tests.features.compare.cli.test_compare import measured
from torchscale.util.extras import EXTRA_OF, is_installed
from torchscale.util.installation import install_command

tomllib = (
    pytest.importorskip("tomllib") if sys.version_info >= (3, 11) else pytest.importorskip("tomli")
)

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
BLOCKED = """
import sys
class Absent:
    names = {names!r}
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self.names:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Absent())
import contextlib, io, json
from torchscale.cli.main import main
ended = []
for arguments in json.loads(sys.stdin.read()):
    sys.argv = ["torchscale", *arguments]
    out, err, code = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as end:
            code = int(end.code or 0)
    ended.append((code, out.getvalue(), err.getvalue()))
print(json.dumps(ended))
"""


def normal(requirement: str) -> str:
    """Normalized name of the distribution that a requirement names."""
    (name,) = re.findall(r"^[A-Za-z0-9._-]+", requirement)
    return re.sub(r"[-_.]+", "-", name).lower()


def core_distributions() -> set[str]:
    """The core's requirements, and theirs."""
    pending, known = (
        [normal(one) for one in PROJECT["dependencies"]],
        {PROJECT["name"], "torchscale"},
    )
    while pending:
        name = pending.pop()
        if name in known:
            continue
        known.add(name)
        try:
            needed = requires(name) or []
        except PackageNotFoundError:  # of another platform or Python
            continue
        pending += [normal(one) for one in needed if "extra ==" not in one]
    return known


def absent_modules() -> list[str]:
    """Top-level modules that are installed here and would not be with the core alone."""
    core = core_distributions()
    return sorted(
        module
        for module, owners in packages_distributions().items()
        if not any(normal(owner) in core for owner in owners)
    )


ABSENT = absent_modules()


def core(directory: Path, commands: Sequence[Sequence[str]]) -> list[tuple[int, str, str]]:
    """Exit code, output and errors of each command, in a process in which only the core can be
    imported."""
    done = subprocess.run(
        [sys.executable, "-c", BLOCKED.format(names=set(ABSENT))],
        cwd=directory,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "COLUMNS": "140", "NO_COLOR": "1"},
        input=json.dumps(commands),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return [(code, out, err) for code, out, err in json.loads(done.stdout)]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with two runs."""
    directory = tmp_path_factory.mktemp("core")
    measured(directory / "before")
    measured(directory / "after")
    return directory


def test_the_extras_are_absent_where_the_core_alone_is_installed() -> None:
    assert {library for library in EXTRA_OF if is_installed(library)} <= set(ABSENT)
    assert {"s3fs", "fsspec"} <= set(ABSENT)
    assert {"numpy", "scipy", "pydantic", "typer", "psutil"} & set(ABSENT) == set()


def test_the_table_of_extras_is_that_of_the_package() -> None:
    extras = PROJECT["optional-dependencies"]
    for library, extra in EXTRA_OF.items():
        if library != "markupsafe":  # a requirement of jinja2
            assert library in {normal(one) for one in extras[extra]}
    pending, whole = ["all"], set()
    while pending:
        name = pending.pop()
        whole.add(name)
        inner = [
            part for one in extras[name] for part in re.findall(rf"^{PROJECT['name']}\[(.*)\]", one)
        ]
        pending += ",".join(inner).split(",") if inner else []
    # Two are for who works on torchscale itself. Ray, 285 MB, is for who has a cluster of it, and
    # gcsfs brings half a hundred packages.
    assert whole == set(extras) - {"docs", "dev", "ray", "storage"}


def test_reading_and_comparing_needs_no_extra(results: Path) -> None:
    expected = {
        ("--help",): "benchmark",
        ("compare", "before", "after"): "0.0 %",
        ("compare", "before", "after", "--format", "md", "--output", "-"): "| ",
        ("compare", "before", "after", "--format", "json", "--output", "-"): '"schema_version"',
        ("docs", "names", "models"): "resnet50",
        ("docs", "compare"): "# ",
        ("runs", "."): "before",
        ("report", "before", "--format", "terminal"): "samples/s",
        ("report", "before", "--format", "md,csv,json"): "",
        ("export", "--to", "junit", "before"): "<testsuite",
        ("export", "--to", "openmetrics", "before"): "# EOF",
        ("export", "--to", "github-summary", "before"): "samples/s",
        ("compare", "before", "--save", "main"): "",
        ("compare", "main", "after"): "0.0 %",
        ("history", "."): "newest",
    }
    ended = core(results, list(expected))
    for (arguments, shown), (code, out, err) in zip(expected.items(), ended, strict=True):
        assert code == 0, (arguments, err)
        assert shown in out, arguments


def test_a_missing_extra_is_named_with_the_command_that_installs_it(results: Path) -> None:
    report = "needs {}, which is not installed\nhint: " + install_command("report") + "\n"
    train = (
        f"error: training needs torch, which is not installed\nhint: {install_command('train')}\n"
    )
    expected = {
        ("report", "before"): "error: the format html " + report.format("jinja2"),
        ("report", "before", "-o", "a.pdf"): "error: the format pdf " + report.format("weasyprint"),
        ("report", "serve", "before"): "error: the format html " + report.format("jinja2"),
        ("benchmark", "--model", "tiny-gpt2", "--batch-size", "8", "--gpus", "1"): train,
        ("measure", "collectives"): train,
    }
    ended = core(results, list(expected))
    for (arguments, message), (code, _, err) in zip(expected.items(), ended, strict=True):
        assert (code, err.removeprefix("Config: from the options alone\n")) == (2, message), (
            arguments
        )
