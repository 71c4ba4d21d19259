"""``torchscale bisect``: what it refuses, and what a dry run shows."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.cli.program import torchscale
from tests.features.bisect.wheels import write_versions


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    write_versions(tmp_path / "wheels", versions=4, first_slow=2, extra=0.3, loops=1000)
    return tmp_path


def test_a_dry_run_shows_environments_and_builds_nothing(wheels: Path) -> None:
    done = torchscale(
        wheels, "bisect", "demo==1.0", "demo==1.3", "--wheels", "wheels", "--cache", "cache",
        "--dry-run", "--", "python", "job.py",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "demo 1.2 (to be built" in done.stdout
    assert "assumed" in done.stdout
    assert not (wheels / "cache").exists()
    assert not (wheels / "results").exists()


def test_a_dry_run_as_json(wheels: Path) -> None:
    done = torchscale(
        wheels, "bisect", "--versions", "demo=1.0,1.3", "--dry-run", "--json", "--", "python", "x"
    )
    plan = json.loads(done.stdout)
    assert plan["environments"] == ["demo 1.0", "demo 1.3"]
    assert [one["cost"] for one in plan["expected"]] == [0.05, 0.1, 0.3]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["a==1", "--", "x"], "takes GOOD and BAD before --, and there are 1"),
        (["a==1", "a==2"], "nothing follows --"),
        (["a==1", "a==2", "--"], "nothing follows --"),
        (["a==1", "a==2", "--bogus", "1", "--", "x"], "no such option: --bogus"),
        (["a==1", "a==2", "--", "x"], "nothing says where packages come from"),
        (["a==1", "a==2", "--wheels", "none", "--", "x"], "--wheels none: no such directory"),
        (["a==1", "--versions", "a=1,2", "--", "x"], "a==1 is one too many"),
        (["a==1", "a==2", "--metric", "speed", "--", "x"], "expected one of step, wall, cpu, loss"),
        (
            ["a==1", "a==2", "--metric", "loss", "--changed", "much", "--", "x"],
            "auto, exactly, mean",
        ),
        (["a==1", "a==2", "--metric", "loss", "--at-least", "1%", "--", "x"], "--tolerance"),
        (["a==1", "a==2", "--metric", "loss", "--higher-is-better", "--", "x"], "no better side"),
        (["a==1", "a==2", "--tolerance", "1e-6", "--", "x"], "name it: --metric loss"),
        (["a==1", "a==2", "--metric-key", "k", "--metric-regex", "(.)", "--", "x"], "one place"),
        (["a==1", "a==2", "--higher-is-better", "--", "x"], "--metric-regex"),
        (["a==1", "a==2", "--at-least", "0", "--", "x"], "expected a share above 0"),
        (["a==1", "a==2", "--error", "many", "--", "x"], "expected a share"),
        (["a==1", "a==2", "--", "torchscale", "validate"], "torchscale validate is no cell"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, arguments: list[str], said: str) -> None:
    done = torchscale(tmp_path, "bisect", *arguments)
    assert done.returncode == 2
    assert said in done.stderr
    assert not (tmp_path / "results").exists()


@pytest.mark.slow
def test_the_example_of_the_page(tmp_path: Path) -> None:
    page = (Path(__file__).parents[4] / "docs" / "bisect.md").read_text()
    example = page.partition("## Try it")[2].partition("\n## ")[0]
    code, line = re.findall(r"```(?:python)?\n(.*?)```", example, re.DOTALL)[:2]
    (tmp_path / "job.py").write_text(code)
    program, *arguments = line.split()
    assert program == "torchscale"
    done = torchscale(tmp_path, *arguments)
    assert done.returncode == 0, done.stderr
    shown = " ".join(done.stdout.split())
    if "do not count" in shown:  # other programs disturbed an environment: the answer is one of two
        assert "or slower only with all of CHUNK=large → small, COPIES=1 → 2 together" in shown
        assert "No environment whose launches count tells apart" in shown
    else:
        assert shown.startswith("Slower only with all of CHUNK=large → small, COPIES=1 → 2")


def test_a_dry_run_of_a_loss(wheels: Path) -> None:
    done = torchscale(
        wheels, "bisect", "demo==1.0", "demo==1.3", "--wheels", "wheels", "--metric", "loss",
        "--dry-run", "--", "python", "job.py",
    )  # fmt: skip
    assert "Where launches repeat their number: about " in done.stdout
    assert "Noise" not in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--metric", "loss"), "The loss changed with ORDER=1 → 2: 2.31 → 2.3100000000000005 ("),
        (("--metric", "loss", "--tolerance", "1e-9"), "The loss did not change by more than the"),
        (("--metric-key", "eval.loss"), "eval.loss changed with ORDER=1 → 2: 1.0 → 2.0 (+1)."),
        (
            ("--metric-file", "out/log.jsonl"),
            "loss did not change: ORDER=1 and ORDER=2 both print 7",
        ),
        (("--metric-regex", "epoch (.+)", "--changed", "auto"), "The number did not change: "),
    ],
)
def test_whether_a_number_changed(tmp_path: Path, options: tuple[str, ...], told: str) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "job.py").write_text(
        "import json, math, os\n"
        "order = int(os.environ['ORDER'])\n"
        "print('epoch 3')\n"
        "print(json.dumps({'eval': {'loss': float(order)}}))\n"
        "print({'loss': math.nextafter(2.31, 3) if order == 2 else 2.31})\n"
        "open('out/log.jsonl', 'w').write('{\"loss\": 8}\\n{\"loss\": 7}\\n')\n"
    )
    done = torchscale(
        tmp_path, "bisect", "env:ORDER=1", "env:ORDER=2", *options, "--", "python3", "job.py"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(told)


@pytest.mark.slow
def test_variables_need_no_packages(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(
        "import os\nprint('rate', 100 if os.environ.get('MODE') == 'fast' else 80)\n"
    )
    done = torchscale(
        tmp_path, "bisect", "env:MODE=fast", "env:MODE=slow", "--metric-regex", "rate (.+)",
        "--higher-is-better", "-o", "folder", "--", "python3", "job.py",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Slower with MODE=fast → slow: +25.0 % (")
    assert "Again: torchscale bisect env:MODE=fast env:MODE=slow" in done.stdout
    assert "-- python3 job.py" in done.stdout
