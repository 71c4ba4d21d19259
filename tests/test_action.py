"""The GitHub Action: its steps run as shell scripts, as a runner would run them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.integration.conftest import FAST

ROOT = Path(__file__).parents[1]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
STEPS: list[dict[str, Any]] = ACTION["runs"]["steps"]
EXAMPLES = ROOT / "examples" / "action"


class Runner:
    """What of GitHub's runner the action uses: expressions, conditions on inputs, the files of
    outputs and summary."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.summary, self.output = directory / "summary.md", directory / "outputs"
        program = directory / "bin" / "torchscale"
        program.parent.mkdir()
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m torchscale "$@"\n')
        program.chmod(0o755)
        self.env = {
            **os.environ,
            "PATH": f"{program.parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "GITHUB_STEP_SUMMARY": str(self.summary),
            "GITHUB_OUTPUT": str(self.output),
        }

    def run(self, only: str = "", **given: str) -> dict[str, int]:
        """Exit code of every script whose condition holds, or of ``only`` one; as on a runner,
        after a failed step only of those with always()."""
        inputs = {name: one.get("default", "") for name, one in ACTION["inputs"].items()}
        inputs |= {name.replace("_", "-"): value for name, value in given.items()}
        self.summary.write_text("")
        self.output.write_text("")
        codes: dict[str, int] = {}
        for step in STEPS:
            condition = step.get("if", "")
            wanted = all(
                inputs[name] != "" for name in re.findall(r"inputs\.([\w-]+) != ''", condition)
            )
            failed = any(codes.values()) and "always()" not in condition
            if "run" not in step or not wanted or failed or (only and step["name"] != only):
                continue
            env = {name: self._value(text, inputs) for name, text in step["env"].items()}
            done = subprocess.run(
                ["/bin/bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
                cwd=self.directory,
                env={**self.env, **env},
                capture_output=True,
                text=True,
                check=False,
                timeout=240,
            )
            codes[step["name"]] = done.returncode
            self.last_errors = done.stderr
        return codes

    @staticmethod
    def _value(text: str, inputs: dict[str, str]) -> str:
        (name,) = re.fullmatch(r"\$\{\{ inputs\.([\w-]+) \}\}", text).groups()  # type: ignore[union-attr]
        return inputs[name]


def short_example(directory: Path) -> str:
    """The config of the example, measured for well under a second a launch."""
    content = yaml.safe_load((EXAMPLES / "ci.yaml").read_text())
    content["models"] = ["tiny-decoder"]  # transformers take seconds to import
    content["benchmark"] |= FAST
    (directory / "ci.yaml").write_text(yaml.safe_dump(content))
    return "ci.yaml"


@pytest.mark.slow
def test_a_run_is_measured_summarized_reported_and_compared(tmp_path: Path) -> None:
    runner = Runner(tmp_path)
    config = short_example(tmp_path)
    first = runner.run(config=config, install="")
    assert first == {"Benchmark": 0, "Job summary": 0, "Report": 0}, runner.last_errors
    assert "samples/s" in runner.summary.read_text()
    assert runner.output.read_text() == "results=results/action\n"
    uploaded = (
        STEPS[-1]["with"]["path"].replace("${{ inputs.output-dir }}", "results/action").split()
    )
    assert [path for path in uploaded if not (tmp_path / path).is_file()] == []

    save = ["torchscale", "compare", "results/action", "--save", "main"]
    subprocess.run(save, cwd=tmp_path, env=runner.env, check=True, capture_output=True, timeout=60)
    # Results against themselves: both sides are equal, whatever this machine does meanwhile.
    compare = "Compare with the baseline"
    same = {
        "config": config,
        "install": "",
        "baseline": "main",
        "compare_options": "--accept unclear,flags",
    }
    assert runner.run(compare, **same) == {compare: 0}, runner.last_errors
    assert runner.output.read_text() == "regression=false\n"
    assert "0.0 %" in runner.summary.read_text()

    baseline = tmp_path / "baselines" / "main.json"
    baseline.write_text(json.dumps(faster(json.loads(baseline.read_text()))))
    assert runner.run(compare, **same) == {compare: 1}
    assert "worse" in runner.last_errors
    assert runner.output.read_text() == "regression=true\n"

    absent = {**same, "baseline": "absent"}
    assert runner.run(compare, **absent) == {compare: 2}
    assert "regression" not in runner.output.read_text()


def faster(baseline: dict[str, Any]) -> dict[str, Any]:
    """A baseline whose launches were a hundred times as fast."""
    for cell in baseline["cells"]:
        for launch in cell["launches"]:
            launch["values"]["throughput"] *= 100
    return baseline


@pytest.mark.slow
def test_a_wrong_config_fails_and_later_steps_do_not_hide_it(tmp_path: Path) -> None:
    (tmp_path / "wrong.yaml").write_text("models: [no-such-model]\n")
    codes = Runner(tmp_path).run(config="wrong.yaml", install="")
    assert codes["Benchmark"] == 2


def test_no_input_is_pasted_into_a_script() -> None:
    """An expression within a script would run what its value holds; values go through the
    environment."""
    assert all("${{" not in step.get("run", "") for step in STEPS)
    used = set(re.findall(r"inputs\.([\w-]+)", (ROOT / "action.yml").read_text()))
    assert used == set(ACTION["inputs"])


def test_the_example_names_inputs_that_exist() -> None:
    (job,) = yaml.safe_load((EXAMPLES / "workflow.yml").read_text())["jobs"].values()
    (step,) = (step for step in job["steps"] if "/torchscale@" in step["uses"])
    assert set(step["with"]) <= set(ACTION["inputs"])
    assert {name for name, one in ACTION["inputs"].items() if one.get("required")} <= set(
        step["with"]
    )
