"""An asyncio loop in a thread of its own: launches are started and watched from the main thread, which must not wait
for the network."""

from __future__ import annotations

import asyncio
import concurrent.futures
import socket
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
Connected = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
"""Handles one connection."""

_END_SECONDS = 5.0
"""For cancelled tasks to end; they only close sockets."""


class LoopThread:
    """Runs coroutines until it is closed."""

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self._servers: list[asyncio.Server] = []
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
        except (concurrent.futures.TimeoutError, asyncio.TimeoutError) as error:  # classes of their own before 3.11
            future.cancel()
            raise TimeoutError(f"not done within {seconds:g} s") from error
        except BaseException:
            future.cancel()
            raise

    def start(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine and do not wait for it."""
        asyncio.run_coroutine_threadsafe(coroutine, self.loop)

    async def serve(self, connected: Connected, server: socket.socket) -> None:
        """Call ``connected`` for every connection to a listening socket, until this thread is closed."""
        self._servers.append(await asyncio.start_server(connected, sock=server))

    def close(self) -> None:
        """Close the servers, cancel what runs and end the thread."""
        self.loop.call_soon_threadsafe(self._cancel_all)
        self._thread.join(_END_SECONDS)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            self.loop.close()

    def _cancel_all(self) -> None:
        for server in self._servers:
            server.close()
        tasks = [task for task in asyncio.all_tasks(self.loop) if not task.done()]
        for task in tasks:
            task.cancel()
        ended = asyncio.gather(*tasks, return_exceptions=True)
        ended.add_done_callback(lambda _: self.loop.stop())
        if not tasks:
            self.loop.stop()
