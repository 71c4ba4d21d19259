"""Whether one node reaches the listener of another: both show that they have the token."""

from __future__ import annotations

import asyncio
import hmac
import secrets
import time

from torchscale.features.cluster.nodes.channel import MAC_BYTES, keyed_mac
from torchscale.features.cluster.nodes.handshake import HANDSHAKE_SECONDS, NONCE_BYTES
from torchscale.features.cluster.nodes.unauthenticated import UnauthenticatedConnections

REACH_SECONDS = 10.0
"""Time limit for one connection between two nodes: it takes two round trips, and a lost SYN is sent
again after 1 and 3 s."""

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
                reader.readexactly(NONCE_BYTES + MAC_BYTES), HANDSHAKE_SECONDS
            )
            challenge, proof = question[:NONCE_BYTES], question[NONCE_BYTES:]
            if hmac.compare_digest(proof, keyed_mac(token, b"pair asked", challenge)):
                writer.write(keyed_mac(token, b"pair", challenge))
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
        challenge = secrets.token_bytes(NONCE_BYTES)
        writer.write(challenge + keyed_mac(token, b"pair asked", challenge))
        await writer.drain()
        answer = await reader.readexactly(MAC_BYTES)
    finally:
        writer.transport.abort()
    same = hmac.compare_digest(answer, keyed_mac(token, b"pair", challenge))
    return "" if same else "something else answers there"
