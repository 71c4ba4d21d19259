"""What the catalog says about models, counted on the models themselves (on meta: no memory, no
weights)."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.campaign import cases
from torchscale.catalog.model_facts import OptionValue
from torchscale.catalog.models import MODELS
from torchscale.worker.measure.flops import count_flops
from torchscale.worker.models import module_of
from torchscale.worker.models.interface import Workload


def build(name: str, **options: OptionValue) -> Workload:
    facts = MODELS[name]
    given: Mapping[str, OptionValue] = {**facts.options, **options}
    workload = module_of(facts).build(name, given)
    assert isinstance(workload, Workload)
    return workload


LARGE = {
    "bert-large",
    "decoder-large",
    "decoder-medium",
    "deepseek-v2-lite",
    "deepseek-v3",
    "encdec-2.9b",
    "encdec-220m",
    "encdec-60m",
    "gpt2-large",
    "gpt2-medium",
    "gpt2-xl",
    "llama-1b",
    "llama-8b",
    "mixtral-8x7b",
    "moe-small",
    "qwen3-30b-a3b",
    "resnet152",
    "t5-base",
    "t5-large",
    "vit-l",
}
"""A second or more each, and built by the code of the smaller ones of their family. Their figures
are held against published ones below."""


@pytest.mark.parametrize(
    "name", cases([name for name in MODELS if name not in LARGE], sorted(LARGE))
)
def test_parameters_and_flops(name: str) -> None:
    facts = MODELS[name]
    built: list[Workload] = []

    def build_once() -> Workload:
        built.append(build(name))
        return built[0]

    assert count_flops(build_once).forward == facts.forward_flops
    (workload,) = built
    assert sum(parameter.numel() for parameter in workload.module.parameters()) == facts.parameters
    assert all(parameter.requires_grad for parameter in workload.module.parameters())


@pytest.mark.parametrize(
    ("name", "parameters", "giga_macs"),
    [
        # torchvision's model cards: parameters, and multiply-adds of one image of 224 pixels.
        ("resnet18", 11_689_512, 1.814),
        ("resnet50", 25_557_032, 4.089),
        ("resnet152", 60_192_808, 11.514),
        ("vit-b", 86_567_656, 17.564),
        ("vit-l", 304_326_632, 61.555),
    ],
)
def test_published_figures_of_image_models(name: str, parameters: int, giga_macs: float) -> None:
    assert MODELS[name].parameters == parameters
    assert MODELS[name].forward_flops == pytest.approx(2e9 * giga_macs, rel=0.002)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        # Papers and model cards: BERT (with its head), GPT-2, Llama 3, T5.
        ("bert-base", 110e6),
        ("bert-large", 335e6),
        ("gpt2", 124e6),
        ("gpt2-medium", 355e6),
        ("gpt2-large", 774e6),
        ("gpt2-xl", 1.558e9),
        ("llama-1b", 1.236e9),
        ("llama-8b", 8.03e9),
        ("t5-small", 60.5e6),
        ("t5-base", 223e6),
        ("t5-large", 738e6),
        # The sizes that the documentation promises.
        ("encdec", 3.5e6),
        ("encdec-60m", 60.9e6),
        ("encdec-220m", 223.6e6),
        ("encdec-2.9b", 2.89e9),
        ("decoder-large", 1.34e9),
    ],
)
def test_published_sizes(name: str, parameters: float) -> None:
    assert MODELS[name].parameters == pytest.approx(parameters, rel=0.005)


@pytest.mark.parametrize("name", ["encdec-60m", "encdec-220m", "encdec-2.9b"])
def test_heads_of_encoder_decoders_are_as_wide_as_published(name: str) -> None:
    """T5 small, base, and 1.1 XL: ``d_kv`` is 64 in all of them."""
    options = MODELS[name].options
    assert int(options["d_model"]) / int(options["nhead"]) == 64


def test_published_flops_of_bert() -> None:
    """MobileBERT's table 1 (Sun et al., 2020): 22.5 GFLOP for BERT-base without its head at 128
    tokens."""
    with_head = count_flops(lambda: build("bert-base", sequence_length=128)).forward
    head = 2 * 128 * (768 * 768 + 768 * 30522)
    assert with_head - head == pytest.approx(22.5e9, rel=0.02)


@pytest.mark.parametrize(
    ("name", "layers", "width", "embedded"),
    [
        (
            "gpt2",
            12,
            768,
            1024 * 768,
        ),  # positions are looked up; tokens too, but their matrix is the head's as well
        ("gpt2-xl", 48, 1600, 1024 * 1600),
        ("bert-large", 24, 1024, (512 + 2) * 1024),
        ("llama-1b", 16, 2048, 0),
        ("llama-8b", 32, 4096, 128256 * 4096),
        ("decoder-large", 24, 2048, 32000 * 2048),
    ],
)
def test_flops_of_transformers_by_the_usual_formula(
    name: str, layers: int, width: int, embedded: int
) -> None:
    """2·N·T + 4·L·d·T² of a forward pass (PaLM, appendix B): N parameters in matrix products, T
    tokens."""
    facts = MODELS[name]
    assert facts.parameters is not None
    length = int(facts.options["sequence_length"])
    expected = 2 * (facts.parameters - embedded) * length + 4 * layers * width * length**2
    assert facts.forward_flops == pytest.approx(expected, rel=0.02)
