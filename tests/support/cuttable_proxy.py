"""A TCP proxy whose connections a test can cut, or make deaf in one direction.

```python
async with CuttableProxy("127.0.0.1", port) as proxy:
    ...                    # connect to proxy.port
    proxy.lose_answers()   # requests still arrive, answers do not
    proxy.stop_reading()   # nothing arrives any more, and piles up at the sender
    proxy.cut()            # all connections are reset, and new ones at once
    proxy.mend()
```
"""

import asyncio
import ssl
from contextlib import suppress
from types import TracebackType
from typing import Self

CHUNK_BYTES = 1 << 16


class CuttableProxy:
    def __init__(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> None:
        """With `tls` clients must speak TLS to it; what is behind it does not."""
        self._target = (host, port)
        self._tls = tls
        self._is_cut = False
        self._loses_answers = False
        self._may_read = asyncio.Event()
        self._may_read.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0
        self.connection_count = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cut()
        self._server.close()
        await self._server.wait_closed()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        self._is_cut = True
        self._may_read.set()
        for writer in self._writers:
            writer.transport.abort()

    def mend(self) -> None:
        self._is_cut = self._loses_answers = False
        self._may_read.set()

    def lose_answers(self) -> None:
        self._loses_answers = True

    def stop_reading(self) -> None:
        self._may_read.clear()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self.connection_count += 1
        if self._is_cut:
            writer.transport.abort()
            return
        there_reader, there_writer = await asyncio.open_connection(*self._target)
        self._writers |= {writer, there_writer}
        try:
            await asyncio.gather(
                self._pump(reader, there_writer, is_answer=False), self._pump(there_reader, writer, is_answer=True)
            )
        finally:
            self._writers -= {writer, there_writer}
            writer.transport.abort()
            there_writer.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_answer: bool) -> None:
        with suppress(OSError):
            while chunk := await reader.read(CHUNK_BYTES):
                await self._may_read.wait()
                if not (is_answer and self._loses_answers):
                    writer.write(chunk)
                    await writer.drain()
        writer.transport.abort()
