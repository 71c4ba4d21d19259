"""``validate --acceptance`` as a user runs it."""

from __future__ import annotations

import json

import pytest

from tests.integration.conftest import Program
from torchscale.errors import ExitCode

pytestmark = pytest.mark.integration


def test_too_few_rounds_are_undecided_and_bundle_and_folder_have_what_was_measured(
    program: Program,
) -> None:
    (program.directory / "policy.yaml").write_text("rounds: 100\n")
    arguments = ["validate", "--acceptance", "--budget", "22s", "--policy", "policy.yaml"]
    done = program.here(*arguments, "--bundle", "node.zip", "--json")
    assert done.returncode == ExitCode.UNDECIDED
    found = json.loads(done.stdout)
    assert found["disposition"] == "undecided"
    assert found["policy"]["rounds"] == 100
    check = next(each for each in found["checks"] if each["id"] == "speed_rounds")
    assert check["status"] == "warn"
    series = {each["figure"] for each in found["acceptance"]["run"]["series"]}
    assert {"compute fp32", "memory bandwidth", "disk write", "training"} <= series
    assert found["acceptance"]["run"]["rounds"]
    verified = program.here("validate", "--verify", "node.zip")
    assert verified.returncode == ExitCode.OK, verified.stdout
    (folder,) = (program.directory / "results").glob("acceptance-*")
    history = program.here("history", "--json")
    assert {trend["metric"] for trend in json.loads(history.stdout)["trends"]} >= {
        "compute",
        "copy",
    }
    assert (folder / "acceptance.json").is_file()
    reported = program.here("report", str(folder), "--json")
    assert json.loads(reported.stdout)["verdict"] == found["verdict"]
    page = program.here("report", str(folder), "--format", "md", "--output", "-")
    assert f"**{found['verdict'][:40]}" in page.stdout
    assert program.here("report", str(folder), "--format", "csv").returncode == ExitCode.OK


def test_a_budget_below_a_round_is_refused_at_once(program: Program) -> None:
    done = program.here("validate", "--acceptance", "--budget", "1s")
    assert done.returncode == ExitCode.USAGE
    assert "--budget 1 s: a round takes about " in done.stderr
    assert "keep asks for 5 of them" in done.stderr
    assert "hint: give it at least " in done.stderr
    assert not list((program.directory / "results").glob("acceptance-*"))


@pytest.mark.parametrize(
    "option", [["--budget", "1m"], ["--baseline", "node.zip"], ["--policy", "policy.yaml"]]
)
def test_options_of_an_acceptance_need_it(program: Program, option: list[str]) -> None:
    done = program.here("validate", *option)
    assert done.returncode == ExitCode.USAGE
    assert "add --acceptance" in done.stderr


def test_a_file_without_an_acceptance_is_no_baseline(program: Program) -> None:
    (program.directory / "a.json").write_text("{}")
    done = program.here("validate", "--acceptance", "--baseline", "a.json")
    assert done.returncode == ExitCode.USAGE
    assert "holds no acceptance" in done.stderr
