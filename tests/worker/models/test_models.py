"""Models beside the catalog's counts: options, other libraries, local configurations, users'
own."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn

from tests.factories import cells, experiment
from torchscale.catalog.model_facts import CONTEXT
from torchscale.catalog.models import find_model, is_import_path
from torchscale.worker.measure.flops import count_flops
from torchscale.worker.models import build_workload
from torchscale.worker.models.interface import Workload

TINY = [
    "tiny-resnet",
    "tiny-vit",
    "tiny-bert",
    "tiny-gpt2",
    "tiny-llama",
    "tiny-t5",
    "tiny-decoder",
    "tiny-moe",
    "encdec",
]


def workload(model: Any) -> Workload:
    torch.manual_seed(0)
    return build_workload(cells(models=model, gpu_counts=1)[0])


def loss(found: Workload, samples: int = 2) -> torch.Tensor:
    batch = found.make_batch(samples, torch.Generator().manual_seed(0))
    return found.loss_of(found.module(**found.inputs(batch)), batch)


@pytest.mark.parametrize("name", TINY)
def test_every_family_gives_a_loss_that_all_its_parameters_share_in(name: str) -> None:
    found = workload(name)
    value = loss(found)
    value.backward()  # type: ignore[no-untyped-call]
    assert torch.isfinite(value)
    for key, parameter in found.module.named_parameters():
        assert parameter.grad is not None, key


@pytest.mark.parametrize("name", ["tiny-decoder", "tiny-gpt2", "tiny-llama"])
def test_a_causal_model_sees_no_later_token(name: str) -> None:
    found = workload(name)
    found.module.eval()
    batch = found.make_batch(1, torch.Generator().manual_seed(0))
    ids = batch["input_ids"]
    changed = ids.clone()
    changed[0, -1] = (changed[0, -1] + 1) % 100
    with torch.no_grad():
        outputs = [found.module(input_ids=each) for each in (ids, changed)]
    one, two = (output if isinstance(output, torch.Tensor) else output.logits for output in outputs)
    assert torch.allclose(one[0, :-1], two[0, :-1], atol=1e-5)
    assert not torch.allclose(one[0, -1], two[0, -1], atol=1e-5)


@pytest.mark.parametrize("name", TINY)
def test_the_catalog_knows_whose_sequences_can_be_split(name: str) -> None:
    found, facts = workload(name), find_model(name)
    assert facts is not None
    assert (found.context is not None) == (CONTEXT in facts.splits)
    if found.context is not None:
        assert found.context.length == found.tokens_per_sample


def test_an_encoder_decoder_learns_to_copy() -> None:
    """What it is for: the target from the source. Random targets that equal the source can be
    learnt only through it."""
    found = workload(
        {
            "name": "encdec",
            "d_model": 32,
            "nhead": 2,
            "vocab_size": 12,
            "seq_len": 6,
            "dim_feedforward": 64,
        }
    )
    optimizer = torch.optim.AdamW(found.module.parameters(), lr=3e-3)
    generator = torch.Generator().manual_seed(0)
    for _ in range(150):
        tokens = found.make_batch(32, generator)["source"]
        value = found.module(source=tokens, target=tokens)
        value.backward()
        optimizer.step()
        optimizer.zero_grad()
    assert value.item() < 0.5 * torch.log(torch.tensor(12.0)).item()


def test_options_of_transformers_reach_them() -> None:
    wide = workload(
        {
            "name": "encdec",
            "d_model": 64,
            "nhead": 8,
            "num_encoder_layers": 1,
            "num_decoder_layers": 2,
        }
    )
    transformer = wide.module.transformer
    assert isinstance(transformer, nn.Transformer)
    assert (transformer.d_model, transformer.nhead) == (64, 8)
    assert (len(transformer.encoder.layers), len(transformer.decoder.layers)) == (1, 2)
    deep = workload({"name": "tiny-decoder", "num_layers": 6, "hidden_size": 64, "seq_len": 16})
    assert deep.tokens_per_sample == 16
    assert deep.pipeline is not None
    assert deep.pipeline.layers == 6


@pytest.mark.parametrize(
    ("model", "told"),
    [
        ({"name": "encdec", "d_model": 100, "nhead": 3}, "d_model 100 does not divide by nhead 3"),
        (
            {"name": "tiny-decoder", "num_heads": 3},
            "hidden_size 128 does not divide by twice the num_heads 3",
        ),
        (
            {"name": "tiny-vit", "image_size": 30},
            "image_size 30 does not divide by the patches of 8 pixels",
        ),
        (
            {"name": "tiny-llama", "sequence_length": 257},
            "sequence_length 257 exceeds the 256 positions",
        ),
    ],
)
def test_options_that_do_not_fit(model: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        workload(model)


def test_names_of_other_libraries_are_no_import_paths() -> None:
    for name in ("torchvision:resnet50", "timm:vit_base_patch16_224", "hf:here/config.json"):
        assert find_model(name) is not None
        assert not is_import_path(name)
    for name in ("hf:gpt2", "timm:", "torchvision"):
        assert find_model(name) is None
    with pytest.raises(ValueError, match="unknown model"):
        experiment(models="hf:gpt2")


def test_a_short_name_of_an_option_is_the_usual_one() -> None:
    one, two = (
        experiment(models={"name": "encdec", key: 64}) for key in ("seq_len", "sequence_length")
    )
    assert one.options_of(one.models[0]) == two.options_of(two.models[0])
    shared = experiment(models="tiny-gpt2", model={"options": {"seq_len": 32}})
    assert shared.options_of(shared.models[0])["sequence_length"] == 32
    with pytest.raises(ValueError, match="no model of this config has the option 'seq_len'"):
        experiment(models={"name": "encdec", "seq_len": 64, "sequence_length": 64})


class Classifier(nn.Module):
    """As those libraries make them: logits from one positional input."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.layer = nn.Linear(3, classes)

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        return self.layer(pictures.mean(dim=(2, 3)))  # type: ignore[no-any-return]


@pytest.mark.parametrize("library", ["torchvision", "timm"])
def test_a_classifier_of_another_library(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither is installed here: a stand-in with the functions that their documentation names."""
    stand_in = ModuleType(library)
    if library == "timm":
        stand_in.list_models = lambda: ["small"]  # type: ignore[attr-defined]
        stand_in.create_model = lambda name, pretrained, num_classes: Classifier(num_classes)  # type: ignore[attr-defined]
    else:
        models = ModuleType("torchvision.models")
        models.list_models = lambda module: ["small"]  # type: ignore[attr-defined]
        models.get_model = lambda name, weights, num_classes: Classifier(num_classes)  # type: ignore[attr-defined]
        stand_in.models = models  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "torchvision.models", models)
    monkeypatch.setitem(sys.modules, library, stand_in)
    monkeypatch.delitem(sys.modules, f"torchscale.worker.models.{library}", raising=False)
    found = workload({"name": f"{library}:small", "image_size": 8, "num_classes": 5})
    assert found.images is not None
    assert found.images.num_classes == 5
    assert torch.isfinite(loss(found))
    with pytest.raises(ValueError, match=f"{library} has no model 'large'"):
        workload(f"{library}:large")
    monkeypatch.delitem(sys.modules, f"torchscale.worker.models.{library}")


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        ({"model_type": "gpt2", "n_embd": 32, "n_layer": 1, "n_head": 2}, "GPT2LMHeadModel"),
        (
            {
                "model_type": "bert",
                "hidden_size": 32,
                "num_hidden_layers": 1,
                "num_attention_heads": 2,
            },
            "BertForMaskedLM",
        ),
        (
            {
                "model_type": "t5",
                "d_model": 32,
                "num_layers": 1,
                "num_heads": 2,
                "decoder_start_token_id": 0,
            },
            "T5ForConditionalGeneration",
        ),
        (
            {
                "model_type": "vit",
                "hidden_size": 32,
                "num_hidden_layers": 1,
                "num_attention_heads": 2,
            },
            "ViTForImageClassification",
        ),
        (
            {
                "model_type": "bert",
                "architectures": ["BertLMHeadModel"],
                "is_decoder": True,
                "hidden_size": 32,
                "num_hidden_layers": 1,
                "num_attention_heads": 2,
            },
            "BertLMHeadModel",
        ),
        (
            {
                "model_type": "llama",
                "hidden_size": 32,
                "num_hidden_layers": 1,
                "num_attention_heads": 2,
                "intermediate_size": 64,
            },
            "LlamaForCausalLM",
        ),
    ],
)
def test_local_configurations_build_the_head_that_is_trained(
    tmp_path: Path, content: dict[str, Any], kind: str
) -> None:
    path = tmp_path / "config.json"
    content = {
        "torch_dtype": "bfloat16",
        "auto_map": {"AutoModel": "evil.Model"},
        **content,
    }  # of published weights
    path.write_text(
        json.dumps({"vocab_size": 100, "bos_token_id": 0, "eos_token_id": 0, **content})
    )
    found = workload(
        {"name": f"hf:{path}", "sequence_length": 16, "image_size": 32, "num_classes": 3}
    )
    assert {parameter.dtype for parameter in found.module.parameters()} == {torch.float32}
    assert type(found.module).__name__ == kind
    assert torch.isfinite(loss(found))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (None, "is not a configuration of a known model: FileNotFoundError"),
        ("{", "is not a configuration of a known model: JSONDecodeError"),
        ("{}", "is not a configuration of a known model: KeyError"),
        ('{"model_type": "no-such-kind"}', "is not a configuration of a known model: ValueError"),
        ('{"model_type": "clip_vision_model"}', "has none of the supported heads"),
    ],
)
def test_configurations_that_cannot_be_trained(tmp_path: Path, text: str | None, told: str) -> None:
    path = tmp_path / "config.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ValueError, match=told):
        workload(f"hf:{path}")


OWN = """
import torch
from torch import nn
from torchscale.worker.models.interface import PipelineSplit, TensorSplit

class Net(nn.Module):
    tokens_per_sample = 4
    flops_per_sample = 123.0
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 2)
    def forward(self, x):
        return self.layer(x)
    def compute_loss(self, output, batch):
        return (output - batch["y"]).square().mean()
    def make_batch(self, batch_size, generator):
        return {"x": torch.randn(batch_size, 4, generator=generator), "y": torch.zeros(batch_size, 2)}
    def tensor_split(self):
        return TensorSplit(2, lambda sequence: {})

class Wrong(Net):
    def pipeline_split(self):
        return "no plan"

def build():
    return Net()

def wrong():
    return Wrong()
"""


def test_code_of_the_user_finds_no_path_of_ours_in_its_arguments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither when it is imported nor later: a program that became a model may delete what its
    arguments name."""
    monkeypatch.setattr(
        sys, "argv", ["/opt/torchscale/worker/__main__.py", "--group", "/results/run"]
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    module = (
        "import sys\nat_import = list(sys.argv)\ndef build():\n    raise ValueError(at_import, "
        "sys.argv)\n"
    )
    (tmp_path / "arguing_net.py").write_text(module)
    with pytest.raises(ValueError, match=re.escape("(['torchscale-model'], ['torchscale-model'])")):
        workload("arguing_net:build")


def test_a_models_own_loss_flops_and_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_net.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    found = workload("own_net:build")
    assert found.forward_keys == frozenset({"x"})
    assert torch.isfinite(loss(found))
    assert found.tokens_per_sample == 4
    assert count_flops(lambda: workload("own_net:build")).forward == 123.0
    assert found.tensor is not None
    assert found.tensor.heads == 2
    assert found.pipeline is None
    with pytest.raises(TypeError, match=r"pipeline_split\(\) must return a PipelineSplit, not str"):
        workload("own_net:wrong")
