"""The verdict on a node: keep, retest, return or undecided, each with its exit code."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from tests.features.validate.acceptance.runs import a_run, baseline_of, eight_gpus, noisy
from tests.features.validate.health.test_disposition import MEMORY, of, validated
from torchscale.errors import ExitCode
from torchscale.features.validate.health.answer import exit_code
from torchscale.features.validate.health.node import validate_facts
from torchscale.features.validate.health.required import Requirements
from torchscale.schema.node.acceptance import Acceptance, AcceptanceRun, Conditions
from torchscale.schema.node.validation import Disposition, Validation

RNG = np.random.default_rng(5)
QUIET, BUSY = Conditions(foreign_share=0.0), Conditions(foreign_share=0.4)


def eight(slow: float = 1.0, conditions: Sequence[Conditions] = (QUIET,) * 8) -> AcceptanceRun:
    return a_run(eight_gpus(RNG, {2: slow}), conditions=conditions)


def accepted(run: AcceptanceRun) -> Validation:
    return validate_facts(of(), Requirements(), None, Acceptance(run=run), policy=MEMORY)


@pytest.mark.parametrize(
    ("run", "disposition", "code", "begins"),
    [
        (eight(), Disposition.KEEP, ExitCode.OK, "Keep: put it into service. Fit for training on"),
        (eight(0.8), Disposition.RETURN, ExitCode.FAILED, "Return GPU 2: memory bandwidth is "),
        (
            eight(0.8, [QUIET] * 7 + [BUSY]),
            Disposition.RETEST,
            ExitCode.FAILED,
            "Retest GPU 2: memory bandwidth is ",
        ),
        (
            eight(1.0, [BUSY] * 8),
            Disposition.UNDECIDED,
            ExitCode.UNDECIDED,
            "Undecided: 0 of 8 rounds undisturbed, keep asks for 5: other processes had 40 %",
        ),
        (
            a_run(eight_gpus(RNG, rounds=4)),
            Disposition.UNDECIDED,
            ExitCode.UNDECIDED,
            "Undecided: 4 rounds, keep asks for 5. Measure for longer (--budget).",
        ),
        (
            a_run({("training", "node"): noisy(RNG, 9.0, 8)}),
            Disposition.UNDECIDED,
            ExitCode.UNDECIDED,
            "Undecided: memory not measured.",
        ),
    ],
    ids=["keep", "return", "retest", "disturbed", "short", "not looked at"],
)
def test_each_verdict_has_its_sentence_and_its_exit_code(
    run: AcceptanceRun, disposition: Disposition, code: ExitCode, begins: str
) -> None:
    found = accepted(run)
    assert found.disposition is disposition
    assert exit_code(found) is code
    assert found.verdict.startswith(begins)


def test_a_figure_that_may_be_slow_leaves_the_node_undecided() -> None:
    key = ("memory bandwidth", "GPU 0")
    rng = np.random.default_rng(17)
    baseline = baseline_of(a_run({key: noisy(rng, 1e9, 8, 0.1)}))
    run = a_run({key: noisy(rng, 0.85e9, 8, 0.1)})
    acceptance = Acceptance(run=run, baseline=baseline)
    found = validate_facts(of(), Requirements(), None, acceptance, policy=MEMORY)
    assert found.disposition is Disposition.UNDECIDED
    assert "seems" in found.verdict


def test_checks_alone_have_the_exit_code_of_the_checks() -> None:
    """Nobody asked for the speeds, so that they are missing fails no health check."""
    sound = validated(of())
    assert (sound.disposition, exit_code(sound)) == (Disposition.UNDECIDED, ExitCode.OK)
    assert sound.verdict == "Fit for training on 4 GPUs."
    assert exit_code(validated(of(remapping_failed=True))) is ExitCode.FAILED
