"""Ends the session of a broker that is dead, with the key that it left in its directory.

The directory's lock is taken first: its owner would be a living broker, whose session is none of our business.
"""

import os

from barnabas.base.filesystem import FileSystem
from barnabas.broker.session_file import SESSION_FILE, read_session_file, remove_session_file
from barnabas.metadata.zookeeper.session_end import end_session
from barnabas.metadata.zookeeper.zookeeper_options import ZooKeeperOptions
from barnabas.storage.directories.meta_properties import LOCK


async def retire_broker(files: FileSystem, options: ZooKeeperOptions, directory: str) -> bool:
    """Whether there was a session to end.

    `DirectoryLocked` when the broker runs, `StoreUnreachable` when no ZooKeeper server answers.
    """
    path = os.path.join(directory, SESSION_FILE)
    if not files.exists(path):
        return False
    lock = files.lock(os.path.join(directory, LOCK))
    try:
        key = read_session_file(files, path)
        was_there = key is not None and await end_session(options, key)
        remove_session_file(files, path)
        return was_there
    finally:
        lock.release()
