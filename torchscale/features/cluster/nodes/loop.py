"""An asyncio loop in a thread of its own: launches are started and watched from the main thread,
which must not wait for the network."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import errno
import socket
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
Connected = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
"""Handles one connection."""

_END_SECONDS = 5.0
"""Time limit for cancelled tasks to end; they only close sockets."""
_AGAIN_SECONDS = 0.05
"""Seconds after which tasks that go on are cancelled again: up to Python 3.11, ``asyncio.wait_for``
drops a cancellation that comes together with the result that it waits for."""
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
"""Errors after which asyncio accepts no connection for a second, of this process and of the
machine."""
_SETTLING_PASSES = 8
"""Passes of the loop in which an accepted connection surely reaches its handler, and an aborted one
its end: asyncio takes four and one."""


class LoopThread:
    """Runs coroutines until it is closed."""

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self._servers: list[asyncio.Server] = []
        self._started: set[concurrent.futures.Future[None]] = set()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def call(self, coroutine: Coroutine[Any, Any, T], seconds: float) -> T:
        """Run a coroutine and wait for its result.

        Raises:
            TimeoutError: it takes longer than ``seconds``; it is cancelled.
        """
        future = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        try:
            return future.result(seconds)
        except (
            concurrent.futures.TimeoutError,
            asyncio.TimeoutError,
        ) as error:  # classes of their own before 3.11
            future.cancel()
            raise TimeoutError(f"not done within {seconds:g} s") from error
        except BaseException:
            future.cancel()
            raise

    def start(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine and do not wait for it."""
        started = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        self._started.add(started)  # else one that waits may be collected as garbage
        started.add_done_callback(self._started.discard)

    async def serve(self, connected: Connected, server: socket.socket) -> None:
        """Call ``connected`` for every connection to a listening socket, until this thread is
        closed."""

        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await connected(reader, writer)
            except (
                asyncio.CancelledError
            ):  # this thread ends; up to Python 3.11 asyncio prints a traceback for it
                writer.transport.abort()

        self._servers.append(await asyncio.start_server(handle, sock=server))

    def close(self) -> None:
        """Close the servers and their connections, cancel what runs and end the thread."""
        self.loop.call_soon_threadsafe(self._begin_to_end)
        self._thread.join(_END_SECONDS)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.set_exception_handler(_handle)
        try:
            self.loop.run_forever()
        finally:
            self.loop.close()

    def _begin_to_end(self) -> None:
        ending = self.loop.create_task(self._end())
        ending.add_done_callback(lambda _: self.loop.stop())

    async def _end(self) -> None:
        # A server that is closed between the accept of a connection and its transport leaves that
        # open.
        for server in self._servers:
            for listening in server.sockets:
                self.loop.remove_reader(listening)
        await _settle()
        for server in self._servers:
            server.close()
        ending = asyncio.current_task()
        deadline = self.loop.time() + _END_SECONDS
        while running := [task for task in asyncio.all_tasks() if task is not ending]:
            for task in running:
                task.cancel()
            # The time limit of a machine that was suspended has passed before a task could run.
            await _settle()
            done, _ = await asyncio.wait(running, timeout=_AGAIN_SECONDS)
            for task in done:
                with contextlib.suppress(asyncio.CancelledError):
                    task.exception()  # else asyncio prints those that nobody has asked for
            if not done and self.loop.time() > deadline:
                return
        await _settle()


def _handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Print nothing where no further connection can be accepted (too many open files): asyncio
    tries again after a second."""
    error = context.get("exception")
    if not isinstance(error, OSError) or error.errno not in _EXHAUSTED:
        loop.default_exception_handler(context)


async def _settle() -> None:
    """Let the loop do what it has to do at once."""
    for _ in range(_SETTLING_PASSES):
        await asyncio.sleep(0)
