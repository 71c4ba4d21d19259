"""The channel between two nodes: authenticated, bounded frames over TCP.

After the handshake (:mod:`~torchscale.features.cluster.nodes.handshake`) every frame carries a MAC
over its direction and number under a key of this connection, so that nobody in between can add,
change, repeat or reorder frames. Nothing is encrypted.

::

    length, kind, MAC(key, direction, number, kind, payload), payload
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import struct
import time
from enum import IntEnum

from pydantic import BaseModel, ValidationError

MAX_MESSAGE_BYTES = 1 << 20
"""Maximum size of a JSON frame: a node's description with a config of a thousand keys takes a
tenth."""
DATA_BYTES = 256 << 10
"""Size of a data frame: large enough that its MAC and header cost nothing, small enough that others
get their turn."""
MAC_BYTES = 32
LENGTH = struct.Struct(">I")
_HEADER = struct.Struct(">IB")
_NUMBER = struct.Struct(">QB")


class FrameKind(IntEnum):
    """What a frame holds."""

    MESSAGE = 0
    """JSON."""
    DATA = 1
    """Bytes of the file that was announced last."""


class ChannelError(Exception):
    """The other side is not who it should be, or sent what it should not have. The text says
    what."""


class Channel:
    """Frames in both directions on a connection whose handshake is done."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        key: bytes,
        *,
        is_leader: bool,
    ) -> None:
        self._reader, self._writer, self._key = reader, writer, key
        self._out, self._in = (b"leader", b"node") if is_leader else (b"node", b"leader")
        self._sent = self._received = 0
        self._writing = asyncio.Lock()
        self.heard_at = time.monotonic()

    @property
    def local_address(self) -> str:
        """This side's."""
        return str(self._writer.get_extra_info("sockname")[0])

    async def send(self, message: BaseModel) -> None:
        """Send a message.

        Raises:
            OSError: the connection is gone.
        """
        await self._write(FrameKind.MESSAGE, message.model_dump_json().encode())

    async def send_data(self, data: bytes) -> None:
        """Send at most :data:`DATA_BYTES` of a file."""
        await self._write(FrameKind.DATA, data)

    async def receive(self) -> tuple[FrameKind, bytes]:
        """The next frame.

        Raises:
            ChannelError: it is too long, of an unknown kind, or its MAC is wrong.
            OSError, asyncio.IncompleteReadError: the connection is gone.
        """
        size, kind = _HEADER.unpack(await self._reader.readexactly(_HEADER.size))
        limit = MAX_MESSAGE_BYTES if kind == FrameKind.MESSAGE else DATA_BYTES
        if kind not in tuple(FrameKind) or size > limit:
            raise ChannelError(
                f"it sent a frame of {size:,} bytes and kind {kind}; at most {limit:,} are allowed"
            )
        mac = await self._reader.readexactly(MAC_BYTES)
        payload = await self._reader.readexactly(size)
        if not hmac.compare_digest(mac, self._mac(self._in, self._received, kind, payload)):
            raise ChannelError("it sent a frame with a wrong MAC")
        self._received += 1
        self.heard_at = time.monotonic()
        return FrameKind(kind), payload

    def abort(self) -> None:
        """Close at once; what was not sent yet is dropped."""
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._writer.transport.abort()

    async def close(self, seconds: float) -> None:
        """Close once everything was sent, or after ``seconds``."""
        with contextlib.suppress(OSError, asyncio.TimeoutError):
            self._writer.close()
            await asyncio.wait_for(self._writer.wait_closed(), seconds)
        self.abort()

    async def _write(self, kind: FrameKind, payload: bytes) -> None:
        async with self._writing:
            mac = self._mac(self._out, self._sent, kind, payload)
            self._sent += 1
            self._writer.write(_HEADER.pack(len(payload), kind) + mac + payload)
            await self._writer.drain()

    def _mac(self, direction: bytes, number: int, kind: int, payload: bytes) -> bytes:
        return keyed_mac(self._key, direction, _NUMBER.pack(number, kind), payload)


def keyed_mac(key: bytes, *parts: bytes) -> bytes:
    """HMAC-SHA-256 over the parts, each after its length, so that no two lists of parts are the
    same bytes."""
    mac = hmac.new(key, digestmod=hashlib.sha256)
    for part in parts:
        mac.update(LENGTH.pack(len(part)))
        mac.update(part)
    return mac.digest()


CONNECTION_ERRORS = (
    ChannelError,
    ValidationError,
    OSError,
    asyncio.IncompleteReadError,
    asyncio.TimeoutError,
)
"""What ends a conversation with another node; :func:`connection_ending` says why."""


def connection_ending(error: BaseException, seconds: float) -> str:
    """Why a connection ended, in words."""
    if isinstance(error, asyncio.TimeoutError):
        return f"silent for {seconds:g} s"
    if isinstance(error, asyncio.IncompleteReadError):
        return "the connection was closed"
    if isinstance(error, ValidationError):
        return "it sent a message that this version does not understand"
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return str(error)
