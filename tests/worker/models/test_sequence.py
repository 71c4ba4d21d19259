"""Attention, loss and positions of a part of each sequence, against those of the whole."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from torchscale.worker.models.rotary import Rotations, rotations
from torchscale.worker.models.sequence import (
    NO_TARGET,
    CausalAttention,
    NextTokenLoss,
    SequencePart,
    following,
    next_token_loss,
)

LENGTH, SIZE = 24, 8


def parts_of(count: int, length: int = LENGTH, whole: Tensor | None = None) -> list[SequencePart]:
    """All parts of a sequence; what they gather is ``whole``."""

    def gather(x: Tensor) -> Tensor:
        assert whole is not None
        assert x.shape[2] == length // count
        return whole

    return [SequencePart(index, count, length, gather, lambda x: x) for index in range(count)]


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_every_token_is_of_one_part(count: int) -> None:
    positions = torch.cat([part.positions() for part in parts_of(count)])
    assert positions.sort().values.tolist() == list(range(LENGTH))


def test_a_rank_has_one_early_chunk_and_one_late_one() -> None:
    first, second = parts_of(2, length=8)
    assert first.positions().tolist() == [0, 1, 6, 7]
    assert second.positions().tolist() == [2, 3, 4, 5]


@pytest.mark.parametrize("count", [2, 3, 4])
def test_every_rank_attends_to_as_many_tokens(count: int) -> None:
    """A token at position p attends to p + 1 of them."""
    pairs = {int((part.positions() + 1).sum()) for part in parts_of(count)}
    assert pairs == {LENGTH * (LENGTH + 1) // 2 // count}


@pytest.mark.parametrize("count", [2, 3, 4])
def test_every_rank_computes_as_many_operations_of_attention(count: int) -> None:
    """Counted by torch in both passes, where attention consists of plain products: of 2n chunks of
    keys a rank multiplies its early one with r + 1 and its late one with 2n - r."""
    found = set()
    for part in parts_of(count, whole=torch.zeros(1, 2, LENGTH, 2 * SIZE, device="meta")):
        mine = torch.zeros(1, 2, LENGTH // count, SIZE, device="meta", requires_grad=True)
        attention = CausalAttention()
        attention.take_part(part)
        with FlopCounterMode(display=False) as counter:
            attention(mine, mine, mine).sum().backward()
        found.add(counter.get_total_flops())
    chunk = LENGTH // (2 * count)
    forward = 2 * (2 * 2 * SIZE) * chunk * chunk * (2 * count + 1)
    backward = found.pop() - forward
    assert not found
    assert backward in (forward, 2 * forward)  # keys here need no gradient


@pytest.mark.parametrize(("count", "groups"), [(2, 1), (3, 1), (4, 2)])
def test_parts_attend_as_the_whole_does(count: int, groups: int) -> None:
    generator = torch.Generator().manual_seed(0)
    query = torch.randn(2, 4, LENGTH, SIZE, generator=generator)
    key, value = (torch.randn(2, 4 // groups, LENGTH, SIZE, generator=generator) for _ in range(2))
    alone = CausalAttention(groups)(query, key, value)
    keys, values = (x.repeat_interleave(groups, dim=1) for x in (key, value))
    plain = functional.scaled_dot_product_attention(query, keys, values, is_causal=True)
    assert torch.equal(alone, plain)
    for part in parts_of(count, whole=torch.cat((key, value), dim=-1)):
        attention, mine = CausalAttention(groups), part.positions()
        attention.take_part(part)
        found = attention(query[:, :, mine], key[:, :, mine], value[:, :, mine])
        torch.testing.assert_close(found, alone[:, :, mine])


def test_the_loss_is_the_mean_of_its_parts() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(3, LENGTH, 10, generator=generator)
    labels = torch.randint(10, (3, LENGTH), generator=generator)
    whole = next_token_loss(logits, labels)
    assert torch.equal(NextTokenLoss()(logits, labels), whole)
    shares = []
    for part in parts_of(4):
        loss, mine = NextTokenLoss(), part.positions()
        loss.take_part(part)
        shares.append(loss(logits[:, mine], following(labels)[:, mine]))
    assert torch.stack(shares).mean().item() == pytest.approx(whole.item(), rel=1e-6)
    assert len({share.item() for share in shares}) == 4


def test_the_last_token_is_followed_by_none() -> None:
    assert following(torch.tensor([[5, 6, 7]])).tolist() == [[6, 7, NO_TARGET]]


def test_rotations_are_those_of_its_tokens() -> None:
    cosines, sines = rotations(LENGTH, SIZE)
    for part in parts_of(2):
        mine = Rotations(LENGTH, SIZE)
        mine.take_part(part)
        for found, whole in zip(mine(LENGTH), (cosines, sines), strict=True):
            assert torch.equal(found, whole[part.positions()])
        assert torch.equal(mine.cosines, cosines), "equal on all ranks"


def test_rotations_of_tokens_with_positions_of_their_own() -> None:
    """Documents in one sample begin anew; shorter samples take the first positions."""
    cosines, sines = rotations(LENGTH, SIZE)
    both = Rotations(LENGTH, SIZE)
    positions = torch.tensor([[0, 1, 2, 0, 1], [0, 1, 0, 1, 2]])
    for found, whole in zip(both(5, positions), (cosines, sines), strict=True):
        assert found.shape == (2, 1, 5, SIZE)
        assert torch.equal(found[1, 0, 3], whole[1])
    for found, whole in zip(both(5), (cosines, sines), strict=True):
        assert torch.equal(found, whole[:5])
