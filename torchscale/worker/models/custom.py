"""A user's own model by import path, ``package.module:function``.

The contract, in full::

    class Net(torch.nn.Module):
        def forward(self, x, y):                      # returns the loss (or an object with .loss)
            return torch.nn.functional.mse_loss(self.layer(x), y)

        def make_batch(self, batch_size, generator):  # keyword arguments of forward, on CPU
            x = torch.randn(batch_size, 64, generator=generator)
            return {"x": x, "y": x}

    def build(**options):                             # options come from the config
        return Net()

Optional on the module:

- ``compute_loss(output, batch)``: the loss, where ``forward`` returns something else; ``forward``
  is then given those items of the batch that it names.
- ``tokens_per_sample``: with it, tokens per second are reported.
- ``flops_per_sample``: of a forward pass, where counting it would be wrong.
- ``tensor_split()`` and ``pipeline_split()``: a
  :class:`~torchscale.worker.models.interface.TensorSplit` and a
  :class:`~torchscale.worker.models.interface.PipelineSplit`, for the strategies that split layers.
- ``context_split()``: a :class:`~torchscale.worker.models.interface.ContextSplit`, for the one that
  splits sequences.

Layers of :class:`~torchscale.worker.models.experts.ExpertLayer` in it can be spread over ranks.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from torch import nn

from torchscale.catalog.model_facts import OptionValue
from torchscale.worker.models.experts import expert_layers
from torchscale.worker.models.interface import ContextSplit, PipelineSplit, TensorSplit, Workload

ARGUMENT_ZERO = "torchscale-model"
"""All that user code finds in ``sys.argv``, and no path of ours: code that was a program of its own
may read, write or delete what its arguments name."""

S = TypeVar("S", TensorSplit, PipelineSplit, ContextSplit)


def build(path: str, options: Mapping[str, OptionValue]) -> Workload:
    """Call the user's builder.

    Raises:
        ImportError: the module cannot be imported or has no such function.
        TypeError: what it returns does not fulfil the contract.
    """
    module = resolve(path)(**options)
    if not isinstance(module, nn.Module):
        raise TypeError(f"{path} must return a torch.nn.Module, not {type(module).__name__}")
    make_batch = getattr(module, "make_batch", None)
    if not callable(make_batch):
        raise TypeError(
            f"the module that {path} returned needs a method make_batch(batch_size, generator)"
        )
    tokens, flops = (
        getattr(module, "tokens_per_sample", None),
        getattr(module, "flops_per_sample", None),
    )
    layers = expert_layers(module)
    loss, forward_keys = getattr(module, "compute_loss", None), None
    if callable(loss):
        forward_keys = _parameters_of(module.forward)
    else:
        loss = None
    return Workload(
        module,
        make_batch,
        int(tokens) if isinstance(tokens, int) else None,
        loss=loss,
        forward_keys=forward_keys,
        flops_per_sample=float(flops) if isinstance(flops, int | float) else None,
        tensor=_split(module, "tensor_split", TensorSplit),
        pipeline=_split(module, "pipeline_split", PipelineSplit),
        context=_split(module, "context_split", ContextSplit),
        experts=layers[0].router.experts if layers else None,
    )


def resolve(path: str) -> Callable[..., object]:
    """The function that ``path`` names; modules in the working directory can be imported, as with
    ``python -m``. From then on ``sys.argv`` holds :data:`ARGUMENT_ZERO` alone.

    Raises:
        ImportError: the module cannot be imported or has no such attribute.
        TypeError: the attribute is not callable.
    """
    sys.argv = [ARGUMENT_ZERO]
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    module_name, _, function_name = path.partition(":")
    target: object = importlib.import_module(module_name)
    for part in function_name.split("."):
        if not hasattr(target, part):
            raise ImportError(f"{module_name} has no {function_name!r}")
        target = getattr(target, part)
    if not callable(target):
        raise TypeError(f"{path} is a {type(target).__name__}, not a function")
    return target


def _parameters_of(forward: Callable[..., object]) -> frozenset[str] | None:
    """Names that ``forward`` takes; ``None`` if it takes any."""
    parameters = inspect.signature(forward).parameters.values()
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters):
        return None
    return frozenset(parameter.name for parameter in parameters)


def _split(module: nn.Module, name: str, kind: type[S]) -> S | None:
    method = getattr(module, name, None)
    if not callable(method):
        return None
    described = method()
    if not isinstance(described, kind):
        raise TypeError(f"{name}() must return a {kind.__name__}, not {type(described).__name__}")
    return described
