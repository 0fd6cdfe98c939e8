"""What kazoo needs of the system: its thread, its connections, and waiting for them.

| kazoo's own | here |
|---|---|
| cannot be stopped while it waits for a server | `abandon` wakes every wait |
| gives a single server the whole session timeout to accept a connection | each has an equal share |
| reads the TLS files at every attempt to connect, and retries when it cannot | reads them once, and says so |
| leaves an answer in TLS's buffer until the next one comes | looks there, too |
"""

import errno
import os
import select
import socket
import ssl
import threading
from collections.abc import Callable, Sequence
from typing import Any

from kazoo.exceptions import ConnectionDropped  # type: ignore[import-untyped]
from kazoo.handlers.threading import SequentialThreadingHandler  # type: ignore[import-untyped]
from kazoo.protocol.states import Callback  # type: ignore[import-untyped]

from barnabas.base.errors import InvalidSetting
from barnabas.metadata.zookeeper.zookeeper_options import TlsFiles, ZooKeeperOptions


class KazooSockets(SequentialThreadingHandler):  # type: ignore[misc]
    """Called by kazoo in its thread, except for `abandon` and `close`; `on_end` is the last to run there."""

    def __init__(self, options: ZooKeeperOptions, on_end: Callable[[], None]) -> None:
        super().__init__()
        self._connect_seconds = options.session_timeout_ms / 1000 / options.host_count
        self._tls = None if options.tls is None else tls_context(options.tls)
        self._on_end = on_end
        self._abandoned, self._abandoning = socket.socketpair()
        self.problem = "no host name can be resolved"

    def start(self) -> None:
        """There are no threads for callbacks."""

    def stop(self) -> None: ...

    def spawn(self, work: Callable[[], None]) -> threading.Thread:
        def run() -> None:
            try:
                work()
            finally:
                self._on_end()

        thread = threading.Thread(target=run, name="barnabas-zookeeper", daemon=True)
        thread.start()
        return thread

    def dispatch_callback(self, callback: Callback) -> None:
        callback.func(*callback.args)

    def abandon(self) -> None:
        self._abandoning.close()  # which wakes the thread that waits for the other end

    def close(self) -> None:
        self._abandoned.close()
        self._abandoning.close()

    def select(
        self, readable: Sequence[Any], writable: Sequence[Any], exceptional: Sequence[Any], timeout: float | None = None
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """What `select.select` returns. Four times for every request: a poll is cheaper than kazoo's epoll."""
        polled = select.poll()
        polled.register(self._abandoned, select.POLLIN)
        for one in readable:
            polled.register(one, select.POLLIN)
        for one in writable:
            polled.register(one, select.POLLOUT)
        decrypted = [one for one in readable if isinstance(one, ssl.SSLSocket) and one.pending()]
        wait_ms = 0 if decrypted else None if timeout is None else max(0, timeout * 1000)
        ready = {number for number, _event in polled.poll(wait_ms)}
        if self._abandoned.fileno() in ready:
            raise ConnectionDropped("the session was abandoned")
        is_ready = [one for one in readable if one.fileno() in ready or one in decrypted]
        return is_ready, [one for one in writable if one.fileno() in ready], []

    def create_connection(self, address: tuple[str, int], hostname: str, **_options: object) -> socket.socket:
        """Raises OSError, as kazoo expects. What kazoo knows of TLS is not used: it is in our context."""
        try:
            connected = self._connect(address)
            if self._tls is not None:
                connected = self._encrypt(self._tls, connected, hostname)
        except OSError as error:
            self.problem = f"{hostname}:{address[1]}: {error.strerror or error}"
            raise
        self.problem = f"{hostname}:{address[1]}: connected, but there is no answer"
        return connected

    def _connect(self, address: tuple[str, int]) -> socket.socket:
        connecting = socket.socket(socket.AF_INET6 if ":" in address[0] else socket.AF_INET, socket.SOCK_STREAM)
        try:
            connecting.setblocking(False)
            connecting.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            status = connecting.connect_ex(address)
            if status == errno.EINPROGRESS:
                if not self.select([], [connecting], [], self._connect_seconds)[1]:
                    raise TimeoutError(errno.ETIMEDOUT, "no answer")
                status = connecting.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if status != 0:
                raise OSError(status, os.strerror(status))
        except BaseException:
            connecting.close()
            raise
        return connecting

    def _encrypt(self, tls: ssl.SSLContext, connected: socket.socket, hostname: str) -> ssl.SSLSocket:
        encrypted = tls.wrap_socket(connected, server_hostname=hostname, do_handshake_on_connect=False)
        try:
            while True:
                try:
                    encrypted.do_handshake()
                except ssl.SSLWantReadError:
                    ready = self.select([encrypted], [], [], self._connect_seconds)[0]
                except ssl.SSLWantWriteError:
                    ready = self.select([], [encrypted], [], self._connect_seconds)[1]
                else:
                    return encrypted
                if not ready:
                    raise TimeoutError(errno.ETIMEDOUT, "no answer to the TLS handshake")
        except BaseException:
            encrypted.close()
            raise


def tls_context(files: TlsFiles) -> ssl.SSLContext:
    """Made once: a file that cannot be read fails the opening, instead of every attempt to connect."""
    try:
        context = ssl.create_default_context(cafile=files.authorities)
        context.check_hostname = files.is_host_name_checked
        if files.certificate is not None:
            context.load_cert_chain(files.certificate, files.key, files.key_password)
    except OSError as error:  # ssl.SSLError is one
        named = ", ".join(path for path in (files.authorities, files.certificate, files.key) if path is not None)
        raise InvalidSetting(f"the TLS files for ZooKeeper ({named}) cannot be used: {error}") from error
    return context
