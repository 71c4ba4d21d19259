"""Reads pickles that hold nothing but plain values: nothing in them is imported or called."""

from __future__ import annotations

import io
import pickle
import pickletools
from typing import Any

from torchscale.errors import TraceError

# fmt: off
_PLAIN_OPCODES = frozenset({
    "APPEND", "APPENDS", "BINFLOAT", "BINGET", "BININT", "BININT1", "BININT2", "BINPUT", "BINSTRING", "BINUNICODE",
    "BINUNICODE8", "DICT", "DUP", "EMPTY_DICT", "EMPTY_LIST", "EMPTY_TUPLE", "FLOAT", "FRAME", "GET", "INT", "LIST",
    "LONG", "LONG1", "LONG4", "LONG_BINGET", "LONG_BINPUT", "MARK", "MEMOIZE", "NEWFALSE", "NEWTRUE", "NONE", "POP",
    "POP_MARK", "PROTO", "PUT", "SETITEM", "SETITEMS", "SHORT_BINSTRING", "SHORT_BINUNICODE", "STOP", "STRING",
    "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "UNICODE",
})
# fmt: on
"""Opcodes that build plain values. All others import, call or load something."""


def plain_pickle(data: bytes) -> object:
    """The content of a pickle that only builds plain values.

    Raises:
        TraceError: it would import or call something, or it is damaged.
    """
    try:
        for opcode, argument, _ in pickletools.genops(data):
            if opcode.name not in _PLAIN_OPCODES:
                raise TraceError(
                    f"a pickle that holds more than plain values ({opcode.name}); it was not loaded"
                )
            # An index beyond the file makes the unpickler reserve memory for all before it.
            if opcode.name.endswith("PUT") and isinstance(argument, int) and argument > len(data):
                raise TraceError("a damaged pickle")
        return _PlainUnpickler(io.BytesIO(data)).load()
    except (
        pickle.UnpicklingError,
        ValueError,
        EOFError,
        RecursionError,
        MemoryError,
        TypeError,
        IndexError,
    ) as error:
        raise TraceError(f"a damaged pickle: {error}") from error
    except (AttributeError, KeyError, OverflowError, AssertionError) as error:
        raise TraceError(f"a damaged pickle: {type(error).__name__}") from error


class _PlainUnpickler(pickle.Unpickler):
    """Finds no class and no function, whatever a pickle asks for."""

    def find_class(self, module_name: str, global_name: str, /) -> Any:  # noqa: ANN401 - as in the base class
        raise pickle.UnpicklingError(f"refers to {module_name}.{global_name}")
