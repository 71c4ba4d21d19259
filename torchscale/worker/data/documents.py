"""Samples of language: documents of different lengths, padded or packed.

The documents of all steps are one stream. It is drawn from the seed alone, so that every rank knows
the lengths of all samples, and a loss is the mean over the tokens of all ranks without asking them.

Shapes: B samples, T tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from torchscale.schema.cells.training import WIDTH_MULTIPLE, SampleLengths
from torchscale.schema.launch.documents import DocumentStep
from torchscale.util.length_file import LEAST, MAX_LENGTH, parse_lengths
from torchscale.worker.data.interface import SampleShare
from torchscale.worker.models.interface import BatchOfTensors
from torchscale.worker.secrets import reveal

POOL_STEPS = 10
"""Steps whose samples are drawn, and then come again. As many as a batch of steps has by default:
batches then hold the same samples, and differ by what disturbs them alone."""
IGNORED = -100
"""Label of a token that no loss counts (``ignore_index`` of torch's cross entropy)."""

Sample = tuple[int, ...]
"""Tokens of each document, or part of one, in a sample."""


def draw_samples(settings: SampleLengths, *, seed: int, length: int, count: int) -> list[Sample]:
    """The first ``count`` samples of the stream, of at most ``length`` tokens.

    Padded, each is one document, cut to ``length``. Packed, the documents lie one after the other
    and are cut every ``length`` tokens, as is usual in pre-training: one that does not fit goes on
    in the next sample, which does not see its beginning.

    Raises:
        ValueError: the file of lengths cannot be read, or is none.
    """
    generator = np.random.default_rng(seed)
    if settings.packing == "padded":
        drawn = np.minimum(_draw(settings, generator, count), length)
        return [(int(tokens),) for tokens in drawn]
    ends = np.zeros(1, dtype=np.int64)
    while ends[-1] < count * length:
        further = _draw(settings, generator, count)
        ends = np.concatenate([ends, ends[-1] + np.cumsum(further)])
    edges = np.union1d(ends, np.arange(count + 1) * length)
    edges = edges[edges <= count * length]
    parts, rows = np.diff(edges), edges[:-1] // length
    borders = np.searchsorted(rows, np.arange(1, count))
    return [tuple(row.tolist()) for row in np.split(parts, borders)]


def _draw(settings: SampleLengths, generator: np.random.Generator, count: int) -> NDArray[np.int64]:
    if settings.file is None:
        assert settings.median is not None and settings.sigma is not None  # noqa: S101 - the config asks for both
        drawn = generator.lognormal(np.log(settings.median), settings.sigma, count)
        return np.clip(np.rint(drawn), LEAST, MAX_LENGTH).astype(np.int64)
    counts = read_lengths(settings.file)
    lengths = np.array(list(counts), dtype=np.int64)
    weights = np.array(list(counts.values()), dtype=np.float64)
    return generator.choice(lengths, size=count, p=weights / weights.sum())


def read_lengths(file: str) -> dict[int, int]:
    """Length → how often it occurs.

    Raises:
        ValueError: the file cannot be read, or does not list lengths.
    """
    try:
        return parse_lengths(Path(str(reveal(file))).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"data.lengths.file: {file}: {error}") from error


@dataclass(frozen=True)
class Pass:
    """A forward and backward pass over some samples of a step.

    Attributes:
        samples: Its samples.
        width: Tokens that each of them is filled up to.
        weight: What its loss counts: the tokens that it predicts, over the mean of all passes of
            all copies in the step.
    """

    samples: tuple[Sample, ...]
    width: int
    weight: float


@dataclass(frozen=True)
class StepDocuments:
    """The samples of one copy in a step, by passes."""

    passes: tuple[Pass, ...]

    @cached_property
    def counted(self) -> DocumentStep:
        """Tokens of the step, and their pairs."""
        documents = [tokens for one in self.passes for sample in one.samples for tokens in sample]
        widths = [one.width for one in self.passes for _ in one.samples]
        return DocumentStep(
            real_tokens_per_rank=sum(documents),
            document_pairs_per_rank=sum(tokens**2 for tokens in documents),
            computed_tokens_per_rank=sum(widths),
            computed_pairs_per_rank=sum(width**2 for width in widths),
        )


def plan_steps(
    settings: SampleLengths, *, seed: int, length: int, share: SampleShare, passes: int
) -> list[StepDocuments]:
    """The steps of one copy, :data:`POOL_STEPS` of them.

    Args:
        settings: Lengths of documents.
        seed: The cell's.
        length: Tokens that a sample has at most.
        share: The copy's samples.
        passes: Passes that a step's samples are spread over, in equal parts.
    """
    drawn = draw_samples(settings, seed=seed, length=length, count=POOL_STEPS * share.all_samples)
    return [_step(drawn, step, length, share, passes) for step in range(POOL_STEPS)]


def _step(
    drawn: Sequence[Sample], step: int, length: int, share: SampleShare, passes: int
) -> StepDocuments:
    begin = step * share.all_samples
    everyone = drawn[begin : begin + share.all_samples]
    even = sum(map(_predicted, everyone)) / (share.copies * passes)
    mine, each = share.of_step(step), share.samples // passes
    planned = []
    for first in range(mine.start, mine.stop, each):
        samples = tuple(drawn[first : first + each])
        longest = max(map(sum, samples))
        width = min(length, -(-longest // WIDTH_MULTIPLE) * WIDTH_MULTIPLE)
        planned.append(Pass(samples, width, sum(map(_predicted, samples)) / even))
    return StepDocuments(tuple(planned))


def _predicted(sample: Sample) -> int:
    """Tokens of a sample that are predicted: all but the first of each document."""
    return sum(sample) - len(sample)


def fill(batch: BatchOfTensors, step: StepDocuments, *, packed: bool) -> BatchOfTensors:
    """A step's batch of ``input_ids`` and ``labels``, both (B, T), with the documents' borders.

    Padded, it is cut to the widest pass, and what is beyond a document is filled with token 0, which
    no loss counts. Packed, ``positions`` and ``documents`` say where in its document, and in which
    document of its sample, each token is, both (B, T); no document's first token is predicted.
    """
    samples = [sample for one in step.passes for sample in one.samples]
    if not packed:
        width = max(one.width for one in step.passes)
        tokens = torch.tensor([sum(sample) for sample in samples])
        beyond = torch.arange(width) >= tokens[:, None]
        return {
            "input_ids": batch["input_ids"][:, :width].masked_fill(beyond, 0),
            "labels": batch["labels"][:, :width].masked_fill(beyond, IGNORED),
        }
    documents = torch.stack(
        [torch.arange(len(one)).repeat_interleave(torch.tensor(one)) for one in samples]
    )
    positions = torch.stack(
        [torch.cat([torch.arange(tokens) for tokens in sample]) for sample in samples]
    )
    labels = batch["labels"].masked_fill(positions == 0, IGNORED)
    return {**batch, "labels": labels, "positions": positions, "documents": documents}


class DocumentMeter:
    """The documents of the steps that a rank takes, one after the other."""

    def __init__(self, steps: Sequence[StepDocuments]) -> None:
        self._steps, self._taken = steps, 0
        self._noted: list[DocumentStep] = []

    def begin_step(self) -> StepDocuments:
        """The documents of the next batch of the source."""
        step = self._steps[self._taken % len(self._steps)]
        self._taken += 1
        self._noted.append(step.counted)
        return step

    def read(self) -> tuple[DocumentStep, ...]:
        """The steps since the last call or :meth:`clear`."""
        noted, self._noted = self._noted, []
        return tuple(noted)

    def clear(self) -> None:
        """Drop what was noted."""
        self._noted = []
