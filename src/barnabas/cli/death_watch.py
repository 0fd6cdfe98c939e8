"""Has a process stop when the command that started it dies, also by SIGKILL.

A shell reads from a pipe whose other end only the command has. When that ends it sends SIGTERM, as the command would
have done. Nothing is asked of the process, which may be a JVM. The shell has a session of its own: Ctrl-C is for the
command.
"""

import subprocess
from typing import Final

_SCRIPT: Final = 'read -r _; kill "$0"'


class DeathWatch:
    """Of the process with this id."""

    def __init__(self, pid: int) -> None:
        self._shell = subprocess.Popen(
            ["/bin/sh", "-c", _SCRIPT, str(pid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def end(self) -> None:
        """When the process is over: its id may become that of another one."""
        self._shell.kill()
        self._shell.communicate()
