"""The folder of an acceptance as a report."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.features.validate.acceptance.runs import a_run, eight_gpus
from tests.features.validate.test_bundle import SLOW
from torchscale.errors import StoreError
from torchscale.features.validate.fleet.fleet import judge_fleet
from torchscale.features.validate.report import AcceptanceReport, acceptance_report, fleet_report
from torchscale.report.formats.markdown import render_markdown
from torchscale.schema.node.acceptance import Acceptance
from torchscale.schema.node.fleet import FleetNode
from torchscale.schema.node.policy import Policy
from torchscale.schema.node.validation import Disposition


def test_a_folder_whose_verdict_was_not_kept_is_judged_from_its_rounds(tmp_path: Path) -> None:
    """As of a command that was killed behind the last round."""
    run = a_run(eight_gpus(np.random.default_rng(1), {2: 0.8}))
    (tmp_path / "acceptance.json").write_text(Acceptance(run=run).model_dump_json())
    found = acceptance_report(tmp_path)
    assert isinstance(found, AcceptanceReport)
    assert found.figures.disposition is Disposition.RETURN
    assert found.figures.unseen[0] == "the checks of the node"
    assert "memory bandwidth" in found.figures.verdict


def test_a_sound_folder_without_checks_is_never_kept(tmp_path: Path) -> None:
    run = a_run(eight_gpus(np.random.default_rng(1), {}))
    (tmp_path / "acceptance.json").write_text(Acceptance(run=run).model_dump_json())
    found = acceptance_report(tmp_path)
    assert isinstance(found, AcceptanceReport)
    assert found.figures.disposition is Disposition.UNDECIDED
    assert found.figures.verdict.startswith("Undecided: ")


def test_an_answer_that_contradicts_itself_is_damaged(tmp_path: Path) -> None:
    fleet = judge_fleet([FleetNode(node_rank=0, hostname="n0", address="")], None)
    content = json.loads(fleet.model_dump_json())
    content["differences"] = [{"title": "driver", "values": ["1", "2"]}]
    (tmp_path / "fleet.json").write_text(json.dumps(content))
    with pytest.raises(StoreError, match="damaged"):
        fleet_report(tmp_path)


@pytest.mark.parametrize("name", ["acceptance.json", "validation.json"])
def test_a_damaged_file_is_an_error_that_names_it(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("{")
    with pytest.raises(StoreError, match=name):
        acceptance_report(tmp_path)


def test_node_0_has_the_rounds_of_every_node(tmp_path: Path) -> None:
    nodes = [
        FleetNode(node_rank=rank, hostname=f"n{rank}", address="10.0.0.1", validation=SLOW)
        for rank in range(3)
    ]
    fleet = judge_fleet(nodes, None, policy=Policy())
    (tmp_path / "fleet.json").write_text(fleet.model_dump_json())
    document = fleet_report(tmp_path).document()  # type: ignore[attr-defined]
    assert document.overview.headline.text.startswith("Return: node 0 (n0): failed memory")
    titles = [section.title for section in document.sections]
    assert titles == [
        "Nodes",
        "What keep asks for",
        *(f"Rounds of {it} (n{it})" for it in range(3)),
    ]
    names = [chart.name for chart in document.charts]
    assert len(set(names)) == len(names) == 3
    anchors = [section.anchor for section in document.sections]
    assert len(set(anchors)) == len(anchors)
    assert "# Acceptance of 3 nodes" in render_markdown(document)
