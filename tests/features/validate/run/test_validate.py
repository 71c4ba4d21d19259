"""What is planned before a node is examined, and what is not measured then."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.factories import machine as a_machine
from tests.features.validate.acceptance.runs import a_run, baseline_of
from tests.features.validate.health.test_node import node as facts
from torchscale.errors import MachineError, UsageError
from torchscale.features.validate.run import validate as run
from torchscale.features.validate.run.acceptance import AcceptanceOptions
from torchscale.launch import machine
from torchscale.schema.node.machine import Machine
from torchscale.schema.node.probe import CollectiveFacts
from torchscale.schema.node.validation import Disposition, Validation

SOUND = CollectiveFacts(backend="gloo", world_size=2, seconds=0.001, wrong_elements=0)


@pytest.fixture
def examined(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """The answer on a node with these GPUs, of which nothing is measured."""

    def validated(
        options: AcceptanceOptions, gpus: int = 8, detected: Callable[[], Machine] = a_machine
    ) -> Validation:
        monkeypatch.setattr(machine, "detect_machine", detected)
        monkeypatch.setattr(run, "probe_node", lambda *_, **__: facts(gpus))
        monkeypatch.setattr(run, "check_collective", lambda *_, **__: SOUND)
        return run.validate(output_dir=tmp_path / "out", acceptance=options).validation

    return validated


def test_a_torch_that_cannot_be_used_leaves_the_checks(examined: Any) -> None:
    def broken(*_: object, **__: object) -> None:
        raise MachineError("torch cannot be imported")

    found = examined(AcceptanceOptions(), detected=broken)
    assert found.checks
    assert found.acceptance is None
    assert found.disposition is not Disposition.KEEP
    assert found.policy is not None


def test_gpus_that_torch_has_lost_leave_the_checks_and_another_kind_is_refused(
    examined: Any,
) -> None:
    baseline = baseline_of(a_run({("training", "node"): (9.0, 9.0, 9.0)}))
    options = AcceptanceOptions(baseline=baseline)
    assert examined(options).acceptance is None
    with pytest.raises(UsageError, match="it was measured on cuda"):
        examined(options, gpus=0)


def test_the_place_of_results_is_checked_where_it_cannot_be_made(
    examined: Any, tmp_path: Path
) -> None:
    (tmp_path / "out").write_text("a file")
    assert examined(AcceptanceOptions()).acceptance is None
