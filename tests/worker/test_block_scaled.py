"""Which layers multiply in a block-scaled format, and what is said without torchao. The products
themselves are torchao's and need a GPU: a plain product stands in for them."""

from __future__ import annotations

import sys
import types
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from torchscale.worker.block_scaled import BlockScaledLinear, use_block_scaled

LINEAR_OF_MX = "torchao.prototype.moe_training.mxfp8_linear"
CONFIG = "torchao.prototype.mx_formats.config"
KERNELS = "torchao.quantization.quantize_.common.kernel_preference"
LINEAR_OF_NV = "torchao.prototype.moe_training.nvfp4_training.nvfp4_linear"


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[tuple[int, ...], dict[str, Any]]]:
    """Modules of torchao in its place, whose products are plain ones and note what they are given."""
    noted: list[tuple[tuple[int, ...], dict[str, Any]]] = []

    def product(x: Tensor, weight: Tensor, **options: Any) -> Tensor:
        assert x.dtype is weight.dtype is torch.bfloat16
        noted.append((tuple(x.shape), options))
        return functional.linear(x, weight)

    choices = types.SimpleNamespace(AUTO="auto", RCEIL="rceil")
    for name, content in (
        (LINEAR_OF_MX, {"_to_mxfp8_then_scaled_mm": product}),
        (CONFIG, {"ScaleCalculationMode": choices}),
        (KERNELS, {"KernelPreference": choices}),
        (LINEAR_OF_NV, {"nvfp4_linear": product}),
    ):
        module = types.ModuleType(name)
        vars(module).update(content)
        monkeypatch.setitem(sys.modules, name, module)
        parts = name.split(".")
        for end in range(1, len(parts)):
            parent = ".".join(parts[:end])
            monkeypatch.setitem(sys.modules, parent, types.ModuleType(parent))
    return noted


@pytest.mark.parametrize(("precision", "multiple"), [("mxfp8", 32), ("nvfp4", 128)])
def test_layers_whose_sizes_fit_are_converted_and_no_others(
    calls: list[Any], precision: str, multiple: int
) -> None:
    class Own(nn.Linear):
        pass

    model = nn.Sequential(
        nn.Linear(multiple, 2 * multiple),
        nn.Linear(multiple, multiple + 16),
        nn.Linear(multiple // 2, multiple),
        nn.LayerNorm(multiple),
        Own(multiple, multiple),
    )
    weight = model[0].weight
    assert use_block_scaled(model, precision) == 1
    kinds = [type(part) for part in model]
    assert kinds == [BlockScaledLinear, nn.Linear, nn.Linear, nn.LayerNorm, Own]
    assert model[0].weight is weight  # which the optimizer and the strategy know
    assert weight.dtype is torch.float32


@pytest.mark.parametrize(("precision", "multiple"), [("mxfp8", 32), ("nvfp4", 128)])
def test_products_run_in_the_format_where_there_are_enough_rows(
    calls: list[Any], precision: str, multiple: int
) -> None:
    layer = nn.Linear(multiple, 2 * multiple)
    model = nn.Sequential(layer)
    use_block_scaled(model, precision)
    for rows, in_format in ((multiple, True), (multiple + 8, False)):
        calls.clear()
        x = torch.randn(2, rows // 2, multiple)
        out = model(x)
        expected = functional.linear(x, layer.weight, layer.bias)
        assert out.shape == expected.shape
        assert torch.allclose(out.float(), expected, atol=0.05)
        assert len(calls) == in_format
    assert calls == []


def test_torchao_is_asked_for_its_own_kernels_and_given_equal_signs(calls: list[Any]) -> None:
    signs = []
    for precision in ("mxfp8", "nvfp4", "nvfp4"):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(128, 128))
        use_block_scaled(model, precision)
        model(torch.randn(128, 128))
        ((shape, options),) = calls
        calls.clear()
        assert shape == (128, 128)
        signs.append(options.get("sign_vector"))
        if precision == "mxfp8":
            assert options == {"kernel_preference": "auto", "scale_calculation_mode": "rceil"}
    assert signs[1] == signs[2]
    assert signs[1] is not None
    assert set(signs[1]) <= {-1, 1}
    assert len(signs[1]) == 16


def test_a_model_without_such_a_layer_is_refused(calls: list[Any]) -> None:
    with pytest.raises(ValueError, match=r"mxfp8: the model has no torch.nn.Linear whose sizes"):
        use_block_scaled(nn.Sequential(nn.Linear(16, 16)), "mxfp8")


@pytest.mark.parametrize("precision", ["mxfp8", "nvfp4"])
def test_without_torchao_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, precision: str
) -> None:
    monkeypatch.setitem(sys.modules, "torchao", None)
    with pytest.raises(ValueError, match=rf"precision {precision} needs .* pip install 'torchao>="):
        use_block_scaled(nn.Sequential(nn.Linear(128, 128)), precision)
