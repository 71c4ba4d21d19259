"""Tokens at routed experts: of a step on a rank, and of a launch."""

from __future__ import annotations

from pydantic import model_validator

from torchscale.schema.base import Count, Frozen, NotNegative, PositiveCount, Seconds


class ExpertStep(Frozen):
    """The experts of one step on one rank.

    Attributes:
        tokens_per_rank: Tokens that the experts on this rank computed, all layers together; a token
            counts once for each expert that it goes to.
        seconds: What these experts took in both passes, without sending tokens to them.
        forward_seconds: The part of it in the forward pass.
        peak: Tokens of the expert with most, of any layer, over an even share; of this rank's
            samples.
    """

    tokens_per_rank: Count
    seconds: Seconds
    forward_seconds: Seconds
    peak: NotNegative


class ExpertUse(Frozen):
    """Tokens of each expert over a measurement, of all ranks together: rank 0's record has it.

    Attributes:
        experts: Routed experts of a layer.
        chosen: Experts that a token goes to.
        degree: Ranks over which the experts of a layer are spread, in equal consecutive parts.
        steps: Measured steps.
        layers: Expert layers that ``tokens_per_expert`` has, counted from 0: all of them, unless
            these have very many experts together; then those with the most uneven split.
        layer_count: Expert layers of the model.
        tokens_per_expert: Of each such layer.
    """

    experts: PositiveCount
    chosen: PositiveCount
    degree: PositiveCount
    steps: PositiveCount
    layers: tuple[Count, ...]
    layer_count: PositiveCount
    tokens_per_expert: tuple[tuple[Count, ...], ...]

    @model_validator(mode="after")
    def _rows_are_of_its_layers(self) -> ExpertUse:
        if len(self.tokens_per_expert) != len(self.layers) or self.experts % self.degree:
            raise ValueError(
                f"tokens of {len(self.tokens_per_expert)} layers for {len(self.layers)}, {self.experts} "
                f"experts over {self.degree} ranks"
            )
        if any(len(row) != self.experts for row in self.tokens_per_expert):
            raise ValueError(f"a layer whose tokens are not of {self.experts} experts")
        return self
