"""Pickles of plain values, and those that are not loaded."""

from __future__ import annotations

import os
import pickle
import struct
import tracemalloc
from typing import Any

import pytest

from torchscale.errors import TraceError
from torchscale.features.watch.hang.recorder_dump.plain_pickle import plain_pickle


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_plain_values_are_read_from_all_protocols(protocol: int) -> None:
    shared = ["a" * 300, 2**70, -1, 1.5]
    content: Any = {"a": shared, "b": (shared, None, True, ()), "c": {"d": [(1, 2, 3, 4)]}}
    assert plain_pickle(pickle.dumps(content, protocol=protocol)) == content


@pytest.mark.parametrize(
    ("data", "opcode"),
    [
        (pickle.dumps(os.mkdir), "STACK_GLOBAL"),
        (pickle.dumps(os.mkdir, protocol=0), "GLOBAL"),
        (b"\x80\x02]q\x00Q.", "BINPERSID"),
    ],
)
def test_more_than_plain_values_is_not_loaded(data: bytes, opcode: str) -> None:
    with pytest.raises(TraceError, match=rf"more than plain values \({opcode}\); it was not"):
        plain_pickle(data)


def test_an_index_is_no_higher_than_the_file_is_long() -> None:
    """Of a file of 9 bytes."""
    assert plain_pickle(b"\x80\x02}r" + struct.pack("<I", 9) + b".") == {}
    with pytest.raises(TraceError, match=r"^a damaged pickle$"):
        plain_pickle(b"\x80\x02}r" + struct.pack("<I", 10) + b".")
    with pytest.raises(TraceError, match=r"^a damaged pickle$"):
        plain_pickle(b"\x80\x02}q\x07.")
    with pytest.raises(TraceError, match=r"^a damaged pickle$"):
        plain_pickle(b"}p7\n.")


def test_a_number_is_no_index() -> None:
    assert plain_pickle(pickle.dumps([2**31 - 1])) == [2**31 - 1]


def test_a_pickle_with_a_huge_index_takes_no_memory() -> None:
    data = b"\x80\x02}r\xff\xff\xff\x7f."  # LONG_BINPUT 2**31 - 1
    tracemalloc.start()
    try:
        with pytest.raises(TraceError, match="damaged"):
            plain_pickle(data)
        assert tracemalloc.get_traced_memory()[1] < 10 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("data", [b"", b".", b"\x80", b"\x80\x04.", b"\x80\x02a.", b"h\x05."])
def test_a_damaged_pickle_is_refused(data: bytes) -> None:
    with pytest.raises(TraceError, match=r"^a damaged pickle"):
        plain_pickle(data)
