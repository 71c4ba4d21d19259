"""The parts of a burn-in on the CPU: exact where nothing is wrong, and one wrong bit is found and
placed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from torchscale.worker.machine import burn_in as module
from torchscale.worker.machine import matrix_products, mismatches
from torchscale.worker.machine.burn_in import (
    PRODUCT_TIMES,
    RankPlace,
    collective_part,
    copy_part,
    make_parts,
    memory_part,
    rounds,
)
from torchscale.worker.machine.matrix_products import matmul_matrices
from torchscale.worker.machine.mismatches import Mismatches, compare

CPU = RankPlace(rank=0, world_size=1, device=torch.device("cpu"))


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small buffers, one rank."""
    monkeypatch.setattr(matrix_products, "_MATRIX", {"cpu": 64})
    monkeypatch.setattr(module, "_MAX_MEMORY", {"cpu": 2**13})
    monkeypatch.setattr(module, "_COPY_BYTES", 2**13)
    monkeypatch.setattr(module, "_COLLECTIVE_ELEMENTS", 1000)
    monkeypatch.setitem(mismatches.CHUNK, "cpu", 100)
    monkeypatch.setattr(dist, "all_reduce", lambda values: values)


def flipped(tensor: torch.Tensor, index: int, bit: int) -> None:
    """Flip one bit of an element."""
    kinds = {2: torch.int16, 4: torch.int32, 8: torch.int64}
    tensor.view(-1).view(kinds[tensor.element_size()])[index] ^= 1 << bit


def test_every_part_is_exact() -> None:
    parts, products = make_parts(CPU)
    results = [part() for part in parts] + [product.run() for product in products]
    assert [result.part for result in results] == [
        "matmul float32",
        "memory",
        "copy",
        "all-reduce",
        "matmul bfloat16",
    ]
    assert [(result.wrong, result.first) for result in results] == [(0, None)] * 5
    assert results[0].work == results[4].work == 2 * 64**3
    assert results[1].work == 2 * 5 * 2**13


def test_products_are_repeated_for_their_share_of_the_time() -> None:
    _, (product,) = make_parts(CPU)
    result = product.run(0.05)
    assert 0.05 <= result.seconds < 5.0  # on a busy machine a tenth of a second takes half of one
    assert result.work > 10 * 2 * 64**3
    assert result.work % (2 * 64**3) == 0


def test_products_take_their_share_of_every_round(tmp_path: Path) -> None:
    found = list(rounds(CPU, 0.1, tmp_path / "stop"))
    for it in found:
        *others, product = it.parts
        assert product.part == "matmul bfloat16"
        assert product.seconds >= PRODUCT_TIMES * sum(part.seconds for part in others)
        assert it.seconds >= sum(part.seconds for part in it.parts)


def test_products_in_a_queue_are_not_more_than_one_wait_allows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(matrix_products, "_MAX_QUEUED", 8)
    reads: list[int] = []
    marks: list[float] = []

    class OneMillisecond:
        """A device on which each product takes a millisecond."""

        def mark(self) -> None:
            marks.append(1e-3 * len(marks))

        def read(self) -> list[float]:
            seen = [mark - marks[0] for mark in marks]
            reads.append(len(seen) // 2)
            marks.clear()
            return seen

    monkeypatch.setattr(matrix_products, "make_clock", lambda device, sync_cuda: OneMillisecond())
    _, (product,) = make_parts(CPU)
    assert product.run(0.02).seconds == pytest.approx(0.02)
    assert reads == [1, 8, 8, 3]
    reads.clear()
    assert product.run(0.005).seconds == pytest.approx(0.005)
    assert reads == [5]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("size", [64, 128])
def test_any_one_bit_of_a_matrix_changes_a_row_or_column(dtype: torch.dtype, size: int) -> None:
    left, right, expected = matmul_matrices(dtype, size, torch.Generator().manual_seed(3))
    assert torch.equal(torch.matmul(left.double(), right.double()), expected.double())
    assert compare(torch.matmul(left, right), expected) == (0, None)
    hidden = (
        6 if dtype == torch.float32 else 0
    )  # partial sums of fp32 are rounded, and its last bits with them
    for bit in range(hidden, 8 * left.element_size()):
        row, column = 5 + bit, 7 + bit
        for matrix, index in ((left, row * size + column), (right, row * size + column)):
            flipped(matrix, index, bit)
            wrong, first = compare(torch.matmul(left, right), expected)
            flipped(matrix, index, bit)
            assert wrong == size, (bit, matrix is left)
            assert first is not None
            place = row * size if matrix is left else column
            assert first.offset_bytes == place * left.element_size()


@pytest.mark.parametrize("bit", [0, 15, 31])
def test_one_wrong_bit_of_a_product_is_placed(bit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    real = torch.matmul

    def corrupted(left: torch.Tensor, right: torch.Tensor, *, out: torch.Tensor) -> None:
        real(left, right, out=out)
        if out.dtype == torch.float32:
            flipped(out, 321, bit)

    (single, *_), (product,) = make_parts(CPU)
    monkeypatch.setattr(torch, "matmul", corrupted)
    results = [single(), product.run()]
    assert [result.wrong for result in results] == [1, 0]
    first = results[0].first
    assert first is not None
    assert first.offset_bytes == 4 * 321
    assert int(first.expected, 16) ^ int(first.seen, 16) == 1 << bit


def test_wrong_bits_between_right_products_are_counted_and_the_first_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = torch.matmul
    calls: list[int] = []

    def corrupted(left: torch.Tensor, right: torch.Tensor, *, out: torch.Tensor) -> None:
        real(left, right, out=out)
        calls.append(len(calls))
        if len(calls) == 3:
            flipped(out, 2345, 5)
            flipped(out, 3456, 6)
        if len(calls) == 4:
            flipped(out, 7, 7)

    _, (product,) = make_parts(CPU)
    monkeypatch.setattr(torch, "matmul", corrupted)
    result = product.run(0.05)
    assert len(calls) > 4
    assert result.wrong == 3
    assert result.first is not None
    assert result.first.offset_bytes == 2 * 2345
    assert int(result.first.expected, 16) ^ int(result.first.seen, 16) == 1 << 5


def test_the_host_reads_once_for_each_pattern_and_once_for_all_products(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reads: list[torch.Tensor] = []
    real = Mismatches.read

    def read(self: Mismatches, buffer: torch.Tensor) -> object:
        reads.append(buffer)
        return real(self, buffer)

    def never(tensor: torch.Tensor) -> None:
        raise AssertionError("a value is read from the device for each piece")

    memory = torch.empty(1000, dtype=torch.int64)
    _, (product,) = make_parts(CPU)
    product.run()
    monkeypatch.setattr(Mismatches, "read", read)
    for name in ("__bool__", "__int__", "__index__", "item", "nonzero"):
        monkeypatch.setattr(torch.Tensor, name, never)
    assert memory_part(CPU, memory).wrong == 0
    assert len(reads) == 5
    reads.clear()
    result = product.run(0.02)
    assert (len(reads), result.wrong) == (1, 0)
    assert result.work > 10 * 2 * 64**3


@pytest.mark.parametrize(("index", "bit"), [(0, 0), (250, 33), (1023, 63)])
def test_a_stuck_bit_of_memory_is_placed(
    index: int, bit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    real: Callable[..., torch.Tensor] = torch.Tensor.fill_

    def stuck(memory: torch.Tensor, value: int) -> torch.Tensor:
        real(memory, value)
        mask = 1 << bit if bit < 63 else -(1 << 63)
        memory[index] |= mask
        return memory

    memory = torch.empty(1024, dtype=torch.int64)
    monkeypatch.setattr(torch.Tensor, "fill_", stuck)
    result = memory_part(CPU, memory)
    assert result.wrong == 2  # of the four patterns, two have this bit off
    assert result.first is not None
    assert (result.first.offset_bytes, result.first.address) == (
        8 * index,
        memory.data_ptr() + 8 * index,
    )
    assert int(result.first.expected, 16) ^ int(result.first.seen, 16) == 1 << bit


def test_elements_stored_in_the_wrong_place_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    real: Callable[..., torch.Tensor] = torch.Tensor.copy_

    def swapped(part: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        real(part, values.flip(0) if part.numel() == 100 else values)
        return part

    monkeypatch.setattr(torch.Tensor, "copy_", swapped)
    result = memory_part(CPU, torch.empty(150, dtype=torch.int64))
    assert result.wrong == 100


def test_a_wrong_bit_of_a_copy_is_placed(monkeypatch: pytest.MonkeyPatch) -> None:
    real: Callable[..., torch.Tensor] = torch.Tensor.copy_
    copies: list[int] = []

    def corrupted(to: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
        real(to, source)
        if not copies:
            to[77] ^= 4
        copies.append(to.numel())
        return to

    monkeypatch.setattr(torch.Tensor, "copy_", corrupted)
    result = copy_part(CPU, torch.arange(1000))
    assert copies == [1000, 1000]  # there and back
    assert result.first is not None
    assert (result.wrong, result.first.offset_bytes, result.first.seen) == (
        1,
        8 * 77,
        f"0x{77 ^ 4:016x}",
    )


def test_a_wrong_sum_is_placed(monkeypatch: pytest.MonkeyPatch) -> None:
    def corrupted(values: torch.Tensor) -> None:
        values[500] += 1

    monkeypatch.setattr(dist, "all_reduce", corrupted)
    result = collective_part(CPU)
    assert result.first is not None
    assert (result.wrong, result.first.offset_bytes) == (1, 2000)


def test_nan_and_negative_zero_are_wrong() -> None:
    expected = torch.zeros(3)
    assert compare(torch.tensor([0.0, float("nan"), -0.0]), expected)[0] == 2


def test_rounds_end_by_time_and_by_the_stop_file(tmp_path: Path) -> None:
    assert [it.number for it in rounds(CPU, 0.0, tmp_path / "stop")] == [0]
    (tmp_path / "stop").touch()
    (only,) = rounds(CPU, 1e6, tmp_path / "stop")
    assert (only.rank, only.device, len(only.parts)) == (0, "cpu", 5)
