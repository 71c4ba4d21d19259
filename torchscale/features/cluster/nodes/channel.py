"""The channel between two nodes: authenticated, bounded frames over TCP.

Whoever connects is a stranger until both sides have shown that they know the token (a challenge and
its answer, HMAC with SHA-256). From then on every frame carries a MAC over its direction and number
under a key of this connection, so that nobody in between can add, change, repeat or reorder frames.
Nothing is encrypted.

::

    node → first node    nonce C
    first node → node    nonce S
    node → first node    who it is, HMAC(token, "node" C S who)
    first node → node    HMAC(token, "leader" C S), or a refusal
    then frames:         length, kind, MAC(key, direction, number, kind, payload), payload
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import json
import secrets
import struct
import time
from dataclasses import dataclass
from enum import IntEnum

from pydantic import BaseModel

from torchscale.features.cluster.nodes.unauthenticated import UnauthenticatedConnections
from torchscale.util.text import one_line

HANDSHAKE_SECONDS = 10.0
"""Time limit for a whole handshake: four short messages. A stranger that connects and says nothing
is dropped after it."""
MAX_MESSAGE_BYTES = 1 << 20
"""Maximum size of a JSON frame: a node's description with a config of a thousand keys takes a
tenth."""
DATA_BYTES = 256 << 10
"""Size of a data frame: large enough that its MAC and header cost nothing, small enough that others
get their turn."""

_RETRY_SECONDS = 0.2
"""Seconds between two attempts at connections that the other node closes."""
_CLOSED = (
    asyncio.IncompleteReadError,
    BrokenPipeError,
    ConnectionAbortedError,
    ConnectionResetError,
)
"""The other side has closed a connection. One that it refuses is not among them: nobody listens
there."""
_GREETING = "torchscale nodes 1"
_REFUSAL = b"refused"
_HANDSHAKE_BYTES = 4096
_MOST_NODES = 1 << 20
"""Far beyond what any version allows: a larger number is no number of nodes, and is not shown."""
_NONCE_BYTES = 32
_MAC_BYTES = 32
_LENGTH = struct.Struct(">I")
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


@dataclass(frozen=True)
class Introduction:
    """Who a node says it is, in the handshake. Read leniently: it must be understood by every
    version."""

    node_rank: int
    nodes: int
    hostname: str
    version: str


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
        mac = await self._reader.readexactly(_MAC_BYTES)
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
        return _mac(self._key, direction, _NUMBER.pack(number, kind), payload)


async def accept(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    token: bytes,
    unauthenticated: UnauthenticatedConnections,
) -> tuple[Channel, Introduction]:
    """The first node's side of the handshake. Call it with a time limit.

    Args:
        reader, writer: The connection.
        token: Of the sweep.
        unauthenticated: Counts the connection until the other side has shown the token.

    Raises:
        ChannelError: the other side does not speak this protocol, or does not have the token.
        OSError, asyncio.IncompleteReadError: the connection is gone.
    """
    with unauthenticated.holding(writer) as is_known:
        hello = _parsed(await _read_short(reader))
        if hello.get("greeting") != _GREETING:
            raise ChannelError("it sent no torchscale handshake")
        theirs, ours = _nonce(hello.get("nonce")), secrets.token_bytes(_NONCE_BYTES)
        await _write_short(writer, {"nonce": ours.hex()})
        answer = await _read_short(reader)
        proof, who = answer[:_MAC_BYTES], answer[_MAC_BYTES:]
        if not hmac.compare_digest(proof, _mac(token, b"node", theirs, ours, who)):
            await _write_raw(writer, _REFUSAL)
            raise ChannelError("it does not have the token")
        is_known()
    await _write_raw(writer, _mac(token, b"leader", theirs, ours))
    key = _mac(token, b"session", theirs, ours)
    return Channel(reader, writer, key, is_leader=True), _introduction(_parsed(who))


async def introduce(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    token: bytes,
    introduction: Introduction,
) -> Channel:
    """The other nodes' side of the handshake. Call it with a time limit.

    Raises:
        ChannelError: the other side does not speak this protocol, or does not have the token.
        OSError, asyncio.IncompleteReadError: the connection is gone. It can be tried again: where
            too many connect, any of them is closed.
    """
    ours = secrets.token_bytes(_NONCE_BYTES)
    await _write_short(writer, {"greeting": _GREETING, "nonce": ours.hex()})
    theirs = _nonce(_parsed(await _read_short(reader)).get("nonce"))
    who = json.dumps(introduction.__dict__).encode()
    await _write_raw(writer, _mac(token, b"node", ours, theirs, who) + who)
    proof = await _read_short(reader)
    if proof == _REFUSAL:
        raise ChannelError("it refused the token of this node")
    if not hmac.compare_digest(proof, _mac(token, b"leader", ours, theirs)):
        raise ChannelError("it does not have the token")
    return Channel(reader, writer, _mac(token, b"session", ours, theirs), is_leader=False)


async def answer_pair(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    token: bytes,
    unauthenticated: UnauthenticatedConnections,
) -> None:
    """The listening side of :func:`reach_pair`: shows that it has the token, and closes. Whoever
    does not show it first gets no answer, from which the token could be guessed."""
    try:
        with unauthenticated.holding(writer):
            question = await asyncio.wait_for(
                reader.readexactly(_NONCE_BYTES + _MAC_BYTES), HANDSHAKE_SECONDS
            )
            challenge, proof = question[:_NONCE_BYTES], question[_NONCE_BYTES:]
            if hmac.compare_digest(proof, _mac(token, b"pair asked", challenge)):
                writer.write(_mac(token, b"pair", challenge))
                await asyncio.wait_for(writer.drain(), HANDSHAKE_SECONDS)
    except (OSError, asyncio.IncompleteReadError, asyncio.TimeoutError):
        pass
    finally:
        writer.close()


async def reach_pair(address: str, port: int, token: bytes, seconds: float) -> str:
    """Connect to the listener of another node. Where that closes the connection, ask again for as
    long as ``seconds`` last: where too many connect, any of them is closed. Returns why that
    failed; empty where it did not."""
    closed = 0
    deadline = time.monotonic() + seconds
    while True:
        try:
            left = deadline - time.monotonic()
            return await asyncio.wait_for(_ask(address, port, token), left)
        except _CLOSED:
            closed += 1
        except asyncio.TimeoutError:
            if closed:
                return f"the connection was closed {closed} times within {seconds:g} s"
            return f"no answer within {seconds:g} s"
        except OSError as error:
            return error.strerror or str(error)
        await asyncio.sleep(_RETRY_SECONDS)


async def _ask(address: str, port: int, token: bytes) -> str:
    reader, writer = await asyncio.open_connection(address, port)
    try:
        challenge = secrets.token_bytes(_NONCE_BYTES)
        writer.write(challenge + _mac(token, b"pair asked", challenge))
        await writer.drain()
        answer = await reader.readexactly(_MAC_BYTES)
    finally:
        writer.transport.abort()
    same = hmac.compare_digest(answer, _mac(token, b"pair", challenge))
    return "" if same else "something else answers there"


def _mac(key: bytes, *parts: bytes) -> bytes:
    """HMAC-SHA-256 over the parts, each after its length, so that no two lists of parts are the
    same bytes."""
    mac = hmac.new(key, digestmod=hashlib.sha256)
    for part in parts:
        mac.update(_LENGTH.pack(len(part)))
        mac.update(part)
    return mac.digest()


async def _read_short(reader: asyncio.StreamReader) -> bytes:
    (size,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    if size > _HANDSHAKE_BYTES:
        raise ChannelError("it sent no torchscale handshake")
    return await reader.readexactly(size)


async def _write_short(writer: asyncio.StreamWriter, content: dict[str, str]) -> None:
    await _write_raw(writer, json.dumps(content).encode())


async def _write_raw(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(_LENGTH.pack(len(data)) + data)
    await writer.drain()


def _parsed(data: bytes) -> dict[str, object]:
    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ChannelError("it sent no torchscale handshake") from error
    if not isinstance(content, dict):
        raise ChannelError("it sent no torchscale handshake")
    return content


def _nonce(text: object) -> bytes:
    try:
        nonce = bytes.fromhex(text) if isinstance(text, str) else b""
    except ValueError:
        nonce = b""
    if len(nonce) != _NONCE_BYTES:
        raise ChannelError("it sent no torchscale handshake")
    return nonce


def _introduction(content: dict[str, object]) -> Introduction:
    """
    Raises:
        ChannelError: it says of no node which one it is.
    """
    texts = [one_line(str(content.get(key)))[:length] for key, length in _NAMES]
    return Introduction(_count(content.get("node_rank")), _count(content.get("nodes")), *texts)


_NAMES = (("hostname", 255), ("version", 100))
"""What a node calls itself: shown in messages, so in one line and not longer than such names
are."""


def _count(value: object) -> int:
    """
    Raises:
        ChannelError: it is no whole number, or is far beyond what any version allows.
    """
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) > _MOST_NODES:
        raise ChannelError("it did not say which node it is")
    return value
