"""The handshake of two nodes, from which on their channel is authenticated.

Whoever connects is a stranger until both sides have shown that they know the token: a challenge and
its answer, HMAC with SHA-256.

::

    node → first node    nonce C
    first node → node    nonce S
    node → first node    who it is, HMAC(token, "node" C S who)
    first node → node    HMAC(token, "leader" C S), or a refusal
"""

from __future__ import annotations

import asyncio
import hmac
import json
import secrets
from dataclasses import dataclass

from torchscale.features.cluster.nodes.channel import (
    LENGTH,
    MAC_BYTES,
    Channel,
    ChannelError,
    keyed_mac,
)
from torchscale.features.cluster.nodes.unauthenticated import UnauthenticatedConnections
from torchscale.util.text import one_line

HANDSHAKE_SECONDS = 10.0
"""Time limit for a whole handshake: four short messages. A stranger that connects and says nothing
is dropped after it."""
_GREETING = "torchscale nodes 1"
_REFUSAL = b"refused"
_HANDSHAKE_BYTES = 4096
_MOST_NODES = 1 << 20
"""Far beyond what any version allows: a larger number is no number of nodes, and is not shown."""
NONCE_BYTES = 32


@dataclass(frozen=True)
class Introduction:
    """Who a node says it is, in the handshake. Read leniently: it must be understood by every
    version."""

    node_rank: int
    nodes: int
    hostname: str
    version: str


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
        theirs, ours = _nonce(hello.get("nonce")), secrets.token_bytes(NONCE_BYTES)
        await _write_short(writer, {"nonce": ours.hex()})
        answer = await _read_short(reader)
        proof, who = answer[:MAC_BYTES], answer[MAC_BYTES:]
        if not hmac.compare_digest(proof, keyed_mac(token, b"node", theirs, ours, who)):
            await _write_raw(writer, _REFUSAL)
            raise ChannelError("it does not have the token")
        is_known()
    await _write_raw(writer, keyed_mac(token, b"leader", theirs, ours))
    key = keyed_mac(token, b"session", theirs, ours)
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
    ours = secrets.token_bytes(NONCE_BYTES)
    await _write_short(writer, {"greeting": _GREETING, "nonce": ours.hex()})
    theirs = _nonce(_parsed(await _read_short(reader)).get("nonce"))
    who = json.dumps(introduction.__dict__).encode()
    await _write_raw(writer, keyed_mac(token, b"node", ours, theirs, who) + who)
    proof = await _read_short(reader)
    if proof == _REFUSAL:
        raise ChannelError("it refused the token of this node")
    if not hmac.compare_digest(proof, keyed_mac(token, b"leader", ours, theirs)):
        raise ChannelError("it does not have the token")
    return Channel(reader, writer, keyed_mac(token, b"session", ours, theirs), is_leader=False)


async def _read_short(reader: asyncio.StreamReader) -> bytes:
    (size,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
    if size > _HANDSHAKE_BYTES:
        raise ChannelError("it sent no torchscale handshake")
    return await reader.readexactly(size)


async def _write_short(writer: asyncio.StreamWriter, content: dict[str, str]) -> None:
    await _write_raw(writer, json.dumps(content).encode())


async def _write_raw(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(LENGTH.pack(len(data)) + data)
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
    if len(nonce) != NONCE_BYTES:
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
