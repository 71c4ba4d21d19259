"""Figures of documents of different lengths, worked by hand."""

from __future__ import annotations

from typing import Any

import pytest

from tests.factories import cells, launch_record, rank_record
from torchscale.analysis.training.documents import document_figures
from torchscale.schema.cells.training import TrainingCell
from torchscale.schema.exports.training import DocumentFigures
from torchscale.schema.launch.documents import DocumentUse
from torchscale.schema.launch.rank import FlopCount
from torchscale.schema.launch.record import payload
from torchscale.schema.launch.training import TrainingResult

TEXT = {"data": {"lengths": {"median": 40, "sigma": 1.0}}}


def cell(strategy: Any = "ddp", **content: Any) -> TrainingCell:
    (found,) = cells(
        models={"name": "tiny-decoder", "seq_len": 64},
        batch_sizes=2,
        gpu_counts=2,
        parallel={"strategy": strategy},
        **content,
    )
    return found


def result(asked: TrainingCell, uses: list[DocumentUse | None]) -> TrainingResult:
    ranks = [rank_record(asked, rank, documents=use) for rank, use in enumerate(uses)]
    return payload(launch_record(asked, ranks=ranks), TrainingResult)


def use(real: float, computed: float, pairs: float) -> DocumentUse:
    return DocumentUse(
        real_tokens_per_step=real, computed_tokens_per_step=computed, document_pairs_per_step=pairs
    )


def test_tokens_of_all_ranks_are_added_up_and_launches_averaged() -> None:
    asked = cell(**TEXT)
    first = result(asked, [use(60, 80, 2000), use(30, 48, 500)])
    second = result(asked, [use(70, 80, 2600), use(40, 48, 900)])
    figures = document_figures(asked, [first, second])
    assert figures == DocumentFigures(100, 128, 3000)
    assert figures.padding_share == pytest.approx(28 / 128)


def test_ranks_that_share_samples_count_them_once() -> None:
    asked = cell("tensor", **TEXT)
    one = use(120, 128, 7000)
    assert document_figures(asked, [result(asked, [one, one])]) == DocumentFigures(120, 128, 7000)


def test_samples_of_one_length_have_no_documents() -> None:
    asked = cell()
    assert document_figures(asked, [result(asked, [None, None])]) is None


def test_work_is_that_of_the_documents_alone() -> None:
    """Of 4 samples of 64 tokens, a fifth of whose operations are attention: two documents of 64 and
    two of 32 need 4/5 × (192 ÷ 256) + 1/5 × (10,240 ÷ 16,384) of the operations."""
    asked = cell(**TEXT)
    figures = DocumentFigures(64 * 2 + 32 * 2, 256, 2 * 64**2 + 2 * 32**2)
    counted = FlopCount(forward=10.0, backward=20.0, attention_share=0.2)
    assert figures.work_share(asked, counted) == pytest.approx(0.8 * 0.75 + 0.2 * 0.625)
    assert figures.work_share(asked, FlopCount(forward=10.0, backward=20.0)) is None
