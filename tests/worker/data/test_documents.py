"""Documents of different lengths: the stream that all ranks know, and that neither padding nor packing
changes what is learned from one."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from torchscale.catalog.models import MODELS
from torchscale.schema.cells.training import SampleLengths
from torchscale.worker.data.documents import (
    IGNORED,
    POOL_STEPS,
    DocumentMeter,
    Pass,
    StepDocuments,
    draw_samples,
    fill,
    plan_steps,
)
from torchscale.worker.data.interface import SampleShare
from torchscale.worker.models import decoder, moe
from torchscale.worker.models.interface import BatchOfTensors, Workload

LATENT = {"kv_rank": 24, "query_rank": 40, "rope_size": 16, "dense_layers": 1, "dense_size": 200}


def lognormal(packing: Any = "padded", median: int = 100, sigma: float = 1.0) -> SampleLengths:
    return SampleLengths(packing=packing, median=median, sigma=sigma)


def drawn(settings: SampleLengths, count: int, length: int = 512) -> list[tuple[int, ...]]:
    return draw_samples(settings, seed=3, length=length, count=count)


def test_padded_samples_are_documents_of_the_distribution_cut_to_the_length() -> None:
    found = [tokens for (tokens,) in drawn(lognormal(), 20_000)]
    assert np.median(found) == pytest.approx(100, rel=0.03)
    assert np.mean(np.array(found) < 100 / math.e) == pytest.approx(0.159, abs=0.01)  # one sigma
    cut = np.mean(np.array(found) == 512)
    assert cut == pytest.approx(0.051, abs=0.005)  # ln(5.12) = 1.63 sigma
    assert max(found) == 512
    assert min(found) >= 2


def test_packed_samples_are_full_and_their_parts_are_the_same_stream_of_documents() -> None:
    rows = drawn(lognormal("packed", median=40), 200, length=64)
    assert [sum(row) for row in rows] == [64] * 200
    ends = set(itertools.accumulate(tokens for row in rows for tokens in row))
    documents = [tokens for (tokens,) in drawn(lognormal(median=40), 500, length=10**6)]
    borders = {end for end in itertools.accumulate(documents) if end <= 200 * 64}
    assert borders == ends & borders
    assert ends - borders <= set(range(64, 200 * 64 + 1, 64))  # where a sample is full


def test_a_seed_decides_the_stream_and_the_number_of_samples_does_not() -> None:
    for packing in ("padded", "packed"):
        many = drawn(lognormal(packing), 50)
        assert drawn(lognormal(packing), 20) == many[:20]
        assert draw_samples(lognormal(packing), seed=4, length=512, count=50) != many


def test_lengths_of_a_file_are_drawn_as_often_as_it_says(tmp_path: Path) -> None:
    file = tmp_path / "lengths.txt"
    file.write_text("10 3\n20\n")
    found = [tokens for (tokens,) in drawn(SampleLengths(packing="padded", file=str(file)), 10_000)]
    assert set(found) == {10, 20}
    assert found.count(10) / 10_000 == pytest.approx(0.75, abs=0.02)


@pytest.mark.parametrize("content", [None, "ten"])
def test_a_file_that_cannot_be_used_is_named(tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "lengths.txt"
    if content is not None:
        file.write_text(content)
    with pytest.raises(ValueError, match=r"^data\.lengths\.file: .*lengths\.txt: "):
        drawn(SampleLengths(packing="padded", file=str(file)), 10)


@pytest.mark.parametrize("packing", ["padded", "packed"])
@pytest.mark.parametrize("passes", [1, 2])
def test_copies_share_one_stream_and_their_losses_count_by_tokens(
    packing: Any, passes: int
) -> None:
    """Of 4 copies with 2 samples each, and of one with 8: the same samples in the same order. The
    weights of all passes of a step make a mean over its tokens."""

    def steps(index: int, copies: int) -> list[StepDocuments]:
        share = SampleShare(8 // copies, index, copies)
        return plan_steps(lognormal(packing), seed=1, length=256, share=share, passes=passes)

    def samples(step: StepDocuments) -> list[tuple[int, ...]]:
        return [sample for one in step.passes for sample in one.samples]

    alone = steps(0, 1)
    several = [steps(index, 4) for index in range(4)]
    assert len(alone) == POOL_STEPS
    for number, step in enumerate(alone):
        parts = [copy[number] for copy in several]
        assert samples(step) == [sample for part in parts for sample in samples(part)]
        passes_of_all = [one for part in parts for one in part.passes]
        targets = [sum(sum(row) - len(row) for row in one.samples) for one in passes_of_all]
        expected = [count / np.mean(targets) for count in targets]
        assert [one.weight for one in passes_of_all] == pytest.approx(expected)


def test_a_pass_is_as_wide_as_its_longest_document_in_steps_of_eight() -> None:
    share = SampleShare(4, 0, 1)
    for step in plan_steps(lognormal(), seed=1, length=250, share=share, passes=2):
        for one in step.passes:
            longest = max(tokens for (tokens,) in one.samples)
            assert longest <= one.width <= min(250, longest + 7)
            assert one.width % 8 == 0 or one.width == 250


def test_tokens_are_counted_with_and_without_padding() -> None:
    step = StepDocuments((Pass(((3,), (8,)), 8, 1.0), Pass(((10,), (12,)), 16, 1.0)))
    counted = step.counted
    assert counted.real_tokens_per_rank == 3 + 8 + 10 + 12
    assert counted.document_pairs_per_rank == 9 + 64 + 100 + 144
    assert counted.computed_tokens_per_rank == 2 * 8 + 2 * 16
    assert counted.computed_pairs_per_rank == 2 * 64 + 2 * 256


def test_a_meter_gives_the_steps_that_were_taken_in_turn() -> None:
    one, two = (StepDocuments((Pass(((n,),), 8, 1.0),)) for n in (3, 5))
    meter = DocumentMeter([one, two])
    assert [meter.begin_step() for _ in range(3)] == [one, two, one]
    assert [step.real_tokens_per_rank for step in meter.read()] == [3, 5, 3]
    assert meter.begin_step() is two
    meter.clear()
    assert meter.read() == ()


def build(model: str, length: int, **options: int) -> Workload:
    torch.manual_seed(0)
    kind = moe if "moe" in model else decoder
    given = {**MODELS[model].options, **options, "sequence_length": length}
    if kind is moe:
        given["balance"] = 0.0  # which is of samples, and not of documents
    workload: Workload = kind.build(model, given)
    return workload


def loss_of(workload: Workload, batch: BatchOfTensors) -> Tensor:
    workload.module.zero_grad()
    loss = workload.loss_of(workload.module(**batch), batch)
    loss.backward()  # type: ignore[no-untyped-call]
    return loss.detach()


def gradients(workload: Workload) -> Tensor:
    return torch.cat(
        [one.grad.flatten() for one in workload.module.parameters() if one.grad is not None]
    )


def separately(
    workload: Workload, batch: BatchOfTensors, samples: list[tuple[int, ...]]
) -> tuple[Tensor, Tensor]:
    """Loss and gradients of each document by itself, as one mean over the tokens predicted."""
    losses, parts, counts = [], [], []
    for row, sample in enumerate(samples):
        begin = 0
        for tokens in sample:
            own = {name: batch[name][row : row + 1, begin : begin + tokens] for name in KEYS}
            begin += tokens
            if tokens < 2:
                continue
            losses.append(loss_of(workload, own))
            parts.append(gradients(workload))
            counts.append(tokens - 1)
    weights = torch.tensor(counts, dtype=torch.float64) / sum(counts)
    loss = (torch.stack(losses).double() * weights).sum()
    return loss, (torch.stack(parts).double() * weights[:, None]).sum(dim=0)


KEYS = ("input_ids", "labels")
PACKED = [(5, 9, 1, 17), (32,), (2, 30)]


@pytest.mark.parametrize(
    ("model", "options"),
    [("tiny-decoder", {}), ("tiny-moe", {}), ("tiny-moe", LATENT)],
    ids=["decoder", "experts", "latent attention"],
)
def test_packed_documents_are_learned_as_each_by_itself(
    model: str, options: dict[str, int]
) -> None:
    workload = build(model, 32, **options)
    batch = workload.make_batch(3, torch.Generator().manual_seed(1))
    step = StepDocuments((Pass(tuple(PACKED), 32, 1.0),))
    packed = fill(batch, step, packed=True)
    loss = loss_of(workload, packed)
    found = gradients(workload)
    expected, expected_gradients = separately(workload, batch, PACKED)
    assert loss.item() == pytest.approx(expected.item(), abs=1e-6)
    assert torch.allclose(found.double(), expected_gradients, atol=2e-6)
    whole = loss_of(workload, batch)  # as if each sample were one document
    assert abs(whole.item() - loss.item()) > 1e-3


def test_padded_documents_are_learned_as_without_padding() -> None:
    samples: list[tuple[int, ...]] = [(5,), (17,), (2,)]
    workload = build("tiny-decoder", 32)
    batch = workload.make_batch(3, torch.Generator().manual_seed(1))
    padded = fill(batch, StepDocuments((Pass(tuple(samples), 24, 1.0),)), packed=False)
    assert padded["input_ids"].shape == (3, 24)
    assert (padded["labels"] == IGNORED).sum() == 3 * 24 - (5 + 17 + 2)
    loss = loss_of(workload, padded)
    found = gradients(workload)
    expected, expected_gradients = separately(workload, batch, samples)
    assert loss.item() == pytest.approx(expected.item(), abs=1e-6)
    assert torch.allclose(found.double(), expected_gradients, atol=2e-6)
