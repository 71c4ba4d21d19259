"""What is known of a model: what it reads, its options, its size, the ways to split it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType


class InputKind(str, Enum):
    """What one sample is."""

    IMAGE = "image"
    TOKENS = "tokens"


OptionValue = bool | int | float | str
"""Types of a model option in a config. ``bool`` first: a union writes a value as its first type
that fits, and a bool is an ``int``."""

OPTION_ALIASES: Mapping[str, str] = MappingProxyType({"seq_len": "sequence_length"})
"""Other names of options, as users may write them."""

TENSOR, SEQUENCE, PIPELINE, EXPERT = "tensor", "sequence", "pipeline", "expert"
CONTEXT = "context"
"""Ways in which a model can be split."""


@dataclass(frozen=True)
class ModelFacts:
    """One model.

    Attributes:
        name: Name in ``models:`` of a config.
        title: Common name.
        family: What it is a size of; ``torchscale.worker.models`` builds each in one file.
        parameters: Trainable parameters with the default options; ``None`` where it is known only
            once built.
        forward_flops: FLOPs of one sample with the default options; ``None`` where it is known only
            once built.
        input_kind: What one sample is; ``None`` where it is known only once built.
        options: Option name → default; ``image_size`` in pixels, ``sequence_length`` in tokens.
        splits: Ways in which it can be split.
        heads: Number of heads that tensor parallelism splits, where no option sets it.
    """

    name: str
    title: str
    family: str
    parameters: int | None
    forward_flops: int | None
    input_kind: InputKind | None
    options: Mapping[str, OptionValue]
    splits: frozenset[str] = frozenset()
    heads: int | None = None
