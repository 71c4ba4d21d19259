"""The models that torchscale knows by name: facts without torch.

Parameter counts are of the module that is trained (with its head), counted on the built module by
``tests/worker/models/test_catalog_facts.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType


class InputKind(str, Enum):
    """What one sample is."""

    IMAGE = "image"
    TOKENS = "tokens"


OptionValue = int | float | bool | str
"""What a model option may be in a config."""


@dataclass(frozen=True)
class ModelFacts:
    """One catalogued model.

    Attributes:
        name: As written in ``models:``.
        title: As people write it.
        family: The file in ``torchscale.worker.models`` that builds it.
        parameters: Trainable parameters with the default options.
        input_kind: What one sample is.
        options: Option name → default; ``image_size`` in pixels, ``sequence_length`` in tokens.
    """

    name: str
    title: str
    family: str
    parameters: int
    input_kind: InputKind
    options: Mapping[str, OptionValue]


def _image(name: str, title: str, parameters: int, *, image_size: int, num_classes: int) -> ModelFacts:
    options = MappingProxyType({"image_size": image_size, "num_classes": num_classes})
    return ModelFacts(name, title, "resnet", parameters, InputKind.IMAGE, options)


def _text(name: str, title: str, family: str, parameters: int, *, sequence_length: int) -> ModelFacts:
    options = MappingProxyType({"sequence_length": sequence_length})
    return ModelFacts(name, title, family, parameters, InputKind.TOKENS, options)


_ALL = (
    _image("resnet18", "ResNet-18", 11_689_512, image_size=224, num_classes=1000),
    _image("resnet50", "ResNet-50", 25_557_032, image_size=224, num_classes=1000),
    _text("bert-base", "BERT-base", "bert", 109_514_298, sequence_length=512),
    _text("bert-large", "BERT-large", "bert", 335_174_458, sequence_length=512),
    _text("gpt2", "GPT-2", "gpt2", 124_439_808, sequence_length=1024),
    _image("tiny-resnet", "tiny ResNet", 310_746, image_size=32, num_classes=10),
    _text("tiny-bert", "tiny BERT", "bert", 1_536_128, sequence_length=64),
    _text("tiny-gpt2", "tiny GPT-2", "gpt2", 1_478_144, sequence_length=64),
)

MODELS: Mapping[str, ModelFacts] = MappingProxyType({facts.name: facts for facts in _ALL})
"""Every catalogued model by name."""


def is_import_path(name: str) -> bool:
    """Whether ``name`` points at a user's own builder (``package.module:function``)."""
    module, colon, function = name.partition(":")
    return bool(colon) and all(part.isidentifier() for part in (*module.split("."), *function.split(".")))


def model_title(name: str) -> str:
    """The catalogued title, else the name itself."""
    facts = MODELS.get(name)
    return facts.title if facts else name
