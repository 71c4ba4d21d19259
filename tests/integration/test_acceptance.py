"""``validate --acceptance`` as a user runs it."""

from __future__ import annotations

import json

import pytest

from tests.integration.conftest import Program
from torchscale.errors import ExitCode

pytestmark = pytest.mark.integration


def test_a_budget_below_three_rounds_is_no_pass_and_the_bundle_has_what_was_measured(
    program: Program,
) -> None:
    arguments = ["validate", "--acceptance", "--budget", "1s", "--bundle", "node.zip", "--json"]
    done = program.here(*arguments)
    assert done.returncode == ExitCode.FAILED
    found = json.loads(done.stdout)
    check = next(each for each in found["checks"] if each["id"] == "speed_rounds")
    assert check["status"] == "fail"
    series = {each["figure"] for each in found["acceptance"]["run"]["series"]}
    assert {"compute fp32", "memory bandwidth", "disk write", "training"} <= series
    assert len(found["acceptance"]["run"]["rounds"]) == 1
    verified = program.here("validate", "--verify", "node.zip")
    assert verified.returncode == ExitCode.OK, verified.stdout
    (folder,) = (program.directory / "results").glob("acceptance-*")
    history = program.here("history", "--json")
    assert {trend["metric"] for trend in json.loads(history.stdout)["trends"]} >= {
        "compute",
        "copy",
    }
    assert (folder / "acceptance.json").is_file()


@pytest.mark.parametrize("option", [["--budget", "1m"], ["--baseline", "node.zip"]])
def test_options_of_an_acceptance_need_it(program: Program, option: list[str]) -> None:
    done = program.here("validate", *option)
    assert done.returncode == ExitCode.USAGE
    assert "add --acceptance" in done.stderr


def test_a_file_without_an_acceptance_is_no_baseline(program: Program) -> None:
    (program.directory / "a.json").write_text("{}")
    done = program.here("validate", "--acceptance", "--baseline", "a.json")
    assert done.returncode == ExitCode.USAGE
    assert "holds no acceptance" in done.stderr
