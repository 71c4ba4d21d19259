"""A feed-forward layer of routed experts.

Shapes: B samples, T tokens of a sample, N = B·T tokens, D hidden size, E experts, K experts of a
token, M = N·K tokens at experts, F inner width of an expert.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from torchscale.worker.dtensors import local_part
from torchscale.worker.models.sequence import SequenceModule

_GROUPED_CAPABILITY = (9, 0)
"""The first CUDA compute capability for which torch has kernels of grouped products; on earlier
ones it multiplies expert by expert and reads the counts on the host."""

Product = Callable[..., Tensor]


class ExpertRouter(SequenceModule):
    """Scores of all experts for each token, in fp32 whatever the precision.

    Attributes:
        skew: 0, or the share of the tokens that go to expert 0, over its even share K ÷ E. Tokens
            that do are spread evenly over the sequence; no other token goes there.
    """

    def __init__(self, hidden: int, experts: int, chosen: int, skew: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(experts, hidden))
        self.experts, self.chosen, self.skew = experts, chosen, skew

    def forward(self, x_BTD: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Probabilities (B, T, E); weights and numbers of the chosen experts, both (B, T, K)."""
        with _without_autocast(x_BTD.device):
            scores = functional.linear(x_BTD.float(), self.weight.float())
            probabilities = scores.softmax(dim=-1)
            preferred = probabilities.detach()
            if self.skew:
                preferred = preferred + self._preference(x_BTD)
            chosen = preferred.topk(self.chosen, dim=-1, sorted=False).indices
            weights = probabilities.gather(-1, chosen)
            weights = weights / weights.sum(dim=-1, keepdim=True)
        return probabilities, weights, chosen

    def _preference(self, x_BTD: Tensor) -> Tensor:
        """(T, E): what makes expert 0 win, or lose, each token. 2, since probabilities lie between
        0 and 1."""
        length, device = x_BTD.shape[1], x_BTD.device
        if self.part is not None:
            length = self.part.length
        share = min(1.0, self.skew * self.chosen / self.experts)
        places = torch.arange(length + 1, device=device, dtype=torch.float64)
        takes = (places * share).floor().diff()
        if self.part is not None:
            takes = self.part.take(takes, 0)
        first = functional.one_hot(torch.zeros((), dtype=torch.long, device=device), self.experts)
        return ((4 * takes - 2).unsqueeze(1) * first).float()


class Experts(nn.Module):
    """The experts that this rank holds: gate, up and down matrices with a SiLU gate.

    Attributes:
        gradient_share: What gradients of the matrices are multiplied with: they are of the tokens
            of all ranks that share the experts, and each rank's loss is the mean of its own.
    """

    def __init__(self, hidden: int, experts: int, inner: int) -> None:
        super().__init__()
        self.gate = nn.Parameter(torch.empty(experts, hidden, inner))
        self.up = nn.Parameter(torch.empty(experts, hidden, inner))
        self.down = nn.Parameter(torch.empty(experts, inner, hidden))
        self.gradient_share = 1.0

    def forward(self, x_MD: Tensor, counts_E: Tensor, host_counts: Sequence[int] | None) -> Tensor:
        """``x`` in the order of experts, ``counts`` of which go to each → (M, D).

        ``host_counts`` are the same on the host, where they are known there.
        """
        weights = [local_part(part).to(x_MD.dtype) for part in (self.gate, self.up, self.down)]
        if self.gradient_share != 1:
            weights = [_share_of_gradient(part, self.gradient_share) for part in weights]
        if x_MD.device.type == "meta":
            return _by_token(x_MD, weights)
        if has_grouped_products(x_MD.device, x_MD.dtype):
            ends = counts_E.cumsum(0, dtype=torch.int32)
            return _gated(x_MD, weights, lambda x, weight: grouped_product()(x, weight, offs=ends))
        if host_counts is None:
            host_counts = read_counts(counts_E, len(x_MD))
        by_expert = zip(*(part.unbind() for part in weights), strict=True)
        outputs = [
            _gated(rows, matrices, torch.matmul)
            for rows, matrices in zip(
                x_MD.split_with_sizes(list(host_counts)), by_expert, strict=True
            )
        ]
        return torch.cat(outputs)


class Dispatch(Protocol):
    """How tokens get to the experts, which may lie on other ranks."""

    def __call__(self, x_MD: Tensor, counts_E: Tensor, experts: Experts) -> tuple[Tensor, int]:
        """The experts' output for ``x``, which lies in the order of experts; and how many tokens
        this rank's experts computed."""
        ...


class PartSums(Protocol):
    """How the outputs of ranks that hold parts of each expert's inner width become one."""

    def enter(self, x: Tensor) -> Tensor:
        """``x``, whose gradient is then that of all parts."""
        ...

    def leave(self, x: Tensor) -> Tensor:
        """The sum of all parts."""
        ...


class ExpertLayer(SequenceModule):
    """Routed experts, and shared ones that every token goes to.

    Attributes:
        dispatch: How tokens get to the experts; ``None`` where this rank holds all of them.
        sums: How parts of experts become whole ones; ``None`` where this rank holds whole ones.
        tokens: Tokens that the last forward pass sent to each expert, (E,), on the device.
        computed: Tokens that this rank's experts computed in the last forward pass.
    """

    def __init__(
        self,
        hidden: int,
        experts: int,
        chosen: int,
        inner: int,
        shared: nn.Module | None,
        *,
        balance: float,
        skew: float,
    ) -> None:
        super().__init__()
        self.router = ExpertRouter(hidden, experts, chosen, skew)
        self.experts = Experts(hidden, experts, inner)
        self.shared = shared
        self.balance = balance
        self.dispatch: Dispatch | None = None
        self.sums: PartSums | None = None
        self.tokens: Tensor | None = None
        self.computed = 0

    def forward(self, x_BTD: Tensor) -> tuple[Tensor, Tensor]:
        """``x`` → (B, T, D), and the loss for load balancing, a scalar."""
        probabilities, weights, chosen = self.router(x_BTD)
        counts_BE = torch.zeros_like(probabilities[:, 0]).scatter_add_(
            1, chosen.flatten(1), torch.ones_like(weights.detach()).flatten(1)
        )
        tokens = counts_BE.detach().sum(dim=0).long()
        self.tokens = tokens
        x_ND, order = _as_computed(x_BTD.flatten(0, 1)), chosen.flatten().argsort(stable=True)
        places = order // self.router.chosen
        if self.sums is not None:
            x_ND, weights = self.sums.enter(x_ND), self.sums.enter(weights)
        x_MD = x_ND.index_select(0, places)
        if self.dispatch is None:
            self.computed = len(x_MD)
            out_MD = self.experts(x_MD, tokens, None)
        else:
            out_MD, self.computed = self.dispatch(x_MD, tokens, self.experts)
        out_MD = out_MD * weights.flatten().index_select(0, order).unsqueeze(1).to(out_MD.dtype)
        out_ND = torch.zeros_like(x_ND).index_add(0, places, out_MD)
        if self.sums is not None:
            out_ND = self.sums.leave(out_ND)
        out_BTD = out_ND.view_as(x_BTD)
        if self.shared is not None:
            out_BTD = out_BTD + self.shared(x_BTD)
        return out_BTD, self._balance_loss(probabilities, counts_BE)

    def _balance_loss(self, probabilities_BTE: Tensor, counts_BE: Tensor) -> Tensor:
        """Σ f·P over experts, mean over samples: f is the share of the sample's tokens that go to
        an expert, over an even share; P its mean probability (DeepSeek-V2, eq. 23 to 25). Of each
        sample by itself, so that it does not depend on how samples are spread over ranks. Of a part
        of each sample, f is that of the whole: the mean over all parts is then the loss."""
        length, counts_BE = probabilities_BTE.shape[1], counts_BE.detach()
        if self.part is not None:
            length, counts_BE = self.part.length, self.part.add_up(counts_BE)
        share = counts_BE * (self.router.experts / (self.router.chosen * length))
        return self.balance * (share * probabilities_BTE.mean(dim=1)).sum(dim=1).mean()


def expert_layers(module: nn.Module) -> list[ExpertLayer]:
    """The expert layers in ``module``, in the order of the forward pass."""
    return [part for part in module.modules() if isinstance(part, ExpertLayer)]


def read_counts(counts: Tensor, total: int) -> list[int]:
    """Counts on the host: waits for the device. Of tensors without values, an even split."""
    if _is_fake(counts):
        each, rest = divmod(total, counts.numel())
        return [each + (place < rest) for place in range(counts.numel())]
    values: list[int] = counts.tolist()
    return values


def has_grouped_products(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether torch multiplies all experts at once on this device, in this type."""
    if device.type != "cuda" or dtype is not torch.bfloat16:
        return False
    has_one = hasattr(functional, "grouped_mm") or hasattr(torch, "_grouped_mm")
    return has_one and torch.cuda.get_device_capability(device) >= _GROUPED_CAPABILITY


def grouped_product() -> Product:
    """``(x (M, D), weight (E, D, F), offs=ends (E,)) → (M, F)``: public from torch 2.10 on."""
    public: Product | None = getattr(functional, "grouped_mm", None)
    if public is not None:
        return public
    private: Product = torch._grouped_mm
    return private


def _is_fake(tensor: Tensor) -> bool:
    module = sys.modules.get("torch._subclasses.fake_tensor")
    return module is not None and isinstance(tensor, module.FakeTensor)


def _as_computed(x: Tensor) -> Tensor:
    """``x`` in the type of matrix products: what is sent to other ranks is then as small."""
    kind = x.device.type
    if torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind):
        return x.to(torch.get_autocast_dtype(kind))
    return x


def _share_of_gradient(x: Tensor, share: float) -> Tensor:
    """``x``, whose gradient is multiplied with ``share``."""
    same = x.view_as(x)
    if same.requires_grad:
        same.register_hook(lambda gradient: gradient * share)  # type: ignore[no-untyped-call]
    return same


def _without_autocast(device: torch.device) -> AbstractContextManager[None]:
    if not torch.amp.is_autocast_available(device.type):
        return contextlib.nullcontext()
    return torch.autocast(device.type, enabled=False)


def _gated(x: Tensor, weights: Sequence[Tensor], product: Product) -> Tensor:
    gate, up, down = weights
    return product(functional.silu(product(x, gate)) * product(x, up), down)


def _by_token(x_MD: Tensor, weights: Sequence[Tensor]) -> Tensor:
    """On the meta device, to count operations: each row times the matrices of one expert. Which
    expert that is does not matter there."""
    rows = torch.zeros(len(x_MD), dtype=torch.long, device=x_MD.device)
    own = [part.index_select(0, rows) for part in weights]
    return _gated(x_MD.unsqueeze(1), own, torch.bmm).squeeze(1)
