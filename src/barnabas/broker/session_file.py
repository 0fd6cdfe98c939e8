"""The key of a broker's ZooKeeper session, kept in its first log directory while the session lasts.

With it the session of a dead broker is ended, instead of waiting for the timeout: by the broker itself when it starts
again, by `barnabas up --brokers`, and by `barnabas broker retire`. They hold the directory's lock meanwhile, so that
the session is never that of a running broker.

The file is JSON (`{"session_id": 72, "password": "00ff…"}`, the password in hex) that only its owner can read. It is
replaced as a whole, so a crash leaves the old key or the new one; the old one ends a session that is over anyway.
"""

import asyncio
import json
import logging
import os
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from typing import Final, TypeVar

from barnabas.base.filesystem import FileSystem, read_file, replace_private_file
from barnabas.metadata.zookeeper.zookeeper_options import SessionKey

logger = logging.getLogger(__name__)

_Result = TypeVar("_Result")

SESSION_FILE: Final = ".zookeeper_session"
"""Its name in the first log directory."""


def write_session_file(files: FileSystem, path: str, key: SessionKey) -> None:
    """May block: not on the event loop."""
    content = {"session_id": key.session_id, "password": key.password.hex()}
    replace_private_file(files, path, json.dumps(content).encode())


def read_session_file(files: FileSystem, path: str) -> SessionKey | None:
    """None when there is none, or none that can be used: that session then ends by its timeout."""
    if not files.exists(path):
        return None
    try:
        content = json.loads(read_file(files, path))
        return SessionKey(int(content["session_id"]), bytes.fromhex(content["password"]))
    except (ValueError, KeyError, TypeError):
        logger.warning("%s is damaged: the session that it belonged to ends by its timeout", path)
        return None


def remove_session_file(files: FileSystem, path: str) -> None:
    """Once the session has ended."""
    files.remove(path)


class SessionKeeper:
    """The file of one broker, read and written by its worker threads."""

    def __init__(self, files: FileSystem, directory: str, workers: Executor) -> None:
        self._files = files
        self._path = os.path.join(directory, SESSION_FILE)
        self._workers = workers

    async def read(self) -> SessionKey | None:
        return await self._perform(read_session_file, self._files, self._path)

    async def write(self, key: SessionKey) -> None:
        await self._perform(write_session_file, self._files, self._path, key)

    async def remove(self) -> None:
        await self._perform(remove_session_file, self._files, self._path)

    async def _perform(self, work: Callable[..., _Result], *arguments: object) -> _Result:
        return await asyncio.get_running_loop().run_in_executor(self._workers, partial(work, *arguments))
