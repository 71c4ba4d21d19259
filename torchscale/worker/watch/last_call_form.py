"""The file in which a rank notes its last collective over gloo."""

from __future__ import annotations

import struct

FILE = "last-call.bin"
FORM = struct.Struct("<qqqq24s24s64s")
"""When it was called (nanoseconds since the epoch, the wall clock), its number in its group, bytes
and elements of the tensors that go in, its name, their type, the name of the group."""
