"""What a check of a model before the sweep found."""

from __future__ import annotations

from torchscale.schema.base import (
    Count,
    Frozen,
)


class ModelCheck(Frozen):
    """A line of ``torchscale.worker.check_models``.

    Attributes:
        problem: Why no launch can build it; empty where none is known.
        built: Whether it was built, so that the following is known.
        heads: Attention heads that tensor parallelism splits; ``None`` where its layers cannot be
            split.
        takes_sequence: Whether the rest of its layers can be split along the sequence.
        layers: Number of layers that can be cut into pipeline stages; ``None`` where it cannot be
            cut.
        experts: Experts of a layer that can be spread over devices; ``None`` where there are none.
        sequence_length: Tokens of a sequence that can be split over devices; ``None`` where it
            cannot.
    """

    problem: str = ""
    built: bool = False
    heads: Count | None = None
    takes_sequence: bool = False
    layers: Count | None = None
    experts: Count | None = None
    sequence_length: Count | None = None
