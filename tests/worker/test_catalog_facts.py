"""What the catalog says about models, counted on the models themselves (on meta: no memory, no weights)."""

from __future__ import annotations

import importlib

import pytest
import torch

from torchscale.catalog.models import MODELS


@pytest.mark.parametrize("name", MODELS)
def test_parameters(name: str) -> None:
    facts = MODELS[name]
    family = importlib.import_module(f"torchscale.worker.models.{facts.family}")
    with torch.device("meta"):
        workload = family.build(name, facts.options)
    assert sum(parameter.numel() for parameter in workload.module.parameters()) == facts.parameters
    assert all(parameter.requires_grad for parameter in workload.module.parameters())


def test_published_counts() -> None:
    """ResNets: torchvision's model cards; GPT-2 small: 124 M (its README); BERT-large with its head: 335 M."""
    assert MODELS["resnet18"].parameters == 11_689_512
    assert MODELS["resnet50"].parameters == 25_557_032
    assert MODELS["gpt2"].parameters == 124_439_808
    assert MODELS["bert-large"].parameters == pytest.approx(335e6, rel=0.002)
