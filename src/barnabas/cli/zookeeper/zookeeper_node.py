"""One ZooKeeper server as a process of this machine: its configuration, its start, its end.

It does not outlive the process that started it.
"""

import fcntl
import os
import re
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from barnabas.base.addresses import address_text
from barnabas.base.errors import DirectoryLocked
from barnabas.base.properties import render_properties
from barnabas.cli.death_watch import DeathWatch
from barnabas.cli.zookeeper.zookeeper_jars import ZooKeeperProgram

_MAIN_CLASS: Final = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
_JVM_OPTIONS: Final = (
    "-Xms16m",
    "-Xmx512m",  # tens of thousands of partitions; a small cluster needs a tenth of it
    "-Dzookeeper.commitLogCount=50",  # of the last transactions, kept in memory: 500 large ones take 300 MB
    "-Xss256k",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Dlog4j2.level=WARN",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)
_SETTINGS: Final = {
    "tickTime": "500",  # sessions expire at a tick
    "initLimit": "40",
    "syncLimit": "10",
    "minSessionTimeout": "1000",
    "maxSessionTimeout": "60000",
    "maxClientCnxns": "0",
    "admin.enableServer": "false",
    "autopurge.snapRetainCount": "3",
    "autopurge.purgeInterval": "1",
    "4lw.commands.whitelist": "ruok,srvr",
}
_NOT_ASCII: Final = re.compile(r"[^\x00-\x7f]")
_WILDCARDS: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}
_STOP_SECONDS_MAX: Final = 10.0
_ANSWER_SECONDS_MAX: Final = 1.0


@dataclass(frozen=True, slots=True)
class NodeAddress:
    """Where node `number` listens: for clients, for followers when it leads, for elections."""

    number: int
    host: str
    client_port: int
    quorum_port: int
    election_port: int

    @property
    def client_address(self) -> str:
        return address_text(reachable(self.host), self.client_port)

    @property
    def inner_address(self) -> str:
        """For the other nodes."""
        return f"{address_text(reachable(self.host), self.quorum_port)}:{self.election_port}"


class ZooKeeperNode:
    """One server process."""

    def __init__(
        self, program: ZooKeeperProgram, directory: Path, address: NodeAddress, members: Sequence[NodeAddress]
    ) -> None:
        self._program = program
        self._directory = directory
        self._members = members
        self._process: subprocess.Popen[bytes] | None = None
        self._death_watch: DeathWatch | None = None
        self.address = address
        self.log_file = directory / "server.log"

    @property
    def is_running(self) -> bool:
        if self._process is not None and self._process.poll() is None:
            return True
        self._end_death_watch()
        return False

    @property
    def pid(self) -> int:
        assert self._process is not None, "it was started"
        return self._process.pid

    @property
    def is_ready(self) -> bool:
        """Whether it serves clients: on its own, or with a majority of its ensemble."""
        return b"\nMode: " in self.ask(b"srvr")

    @property
    def last_words(self) -> str:
        """Why it ended, as far as its log says."""
        lines = [line.strip() for line in self.log_file.read_text(errors="replace").splitlines() if line.strip()]
        causes = [line for line in lines if "Exception:" in line or "Error:" in line] or lines
        return f"{causes[-1] if causes else 'it does not say why'} (its log is {self.log_file})"

    def start(self) -> None:
        """Returns before it is ready. `DirectoryLocked` when a server uses the directory already."""
        self._end_death_watch()
        data = self._directory / "data"
        data.mkdir(parents=True, exist_ok=True)
        class_path = os.pathsep.join(map(str, self._program.jars))
        configuration = self._directory / "zoo.cfg"
        with self._locked() as lock, open(self.log_file, "wb") as log:
            (data / "myid").write_text(f"{self.address.number}\n")
            configuration.write_text(self._configuration(data))
            self._process = subprocess.Popen(
                [self._program.java, *_JVM_OPTIONS, "-cp", class_path, _MAIN_CLASS, str(configuration)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the command, which then stops its servers
                pass_fds=[lock],
            )
            self._death_watch = DeathWatch(self._process.pid)

    def ask(self, word: bytes) -> bytes:
        """The answer to one of ZooKeeper's four-letter words; nothing, if there is none."""
        answer = b""
        with suppress(OSError):
            where = (reachable(self.address.host), self.address.client_port)
            with socket.create_connection(where, _ANSWER_SECONDS_MAX) as connection:
                connection.sendall(word)
                while chunk := connection.recv(4096):
                    answer += chunk
        return answer

    def ask_to_stop(self) -> None:
        if self._process is not None:
            self._process.terminate()

    def wait_stopped(self) -> None:
        if self._process is not None:
            try:
                self._process.wait(_STOP_SECONDS_MAX)
                self._end_death_watch()
            except subprocess.TimeoutExpired:
                self.kill()

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._end_death_watch()

    def _end_death_watch(self) -> None:
        if self._death_watch is not None:
            self._death_watch.end()
            self._death_watch = None

    @contextmanager
    def _locked(self) -> Iterator[int]:
        """The descriptor of a lock that lasts as long as a process holds it.

        ZooKeeper itself has none, and would let two servers write to the same data.
        """
        with open(self._directory / ".lock", "wb") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise DirectoryLocked(
                    f"{self._directory} is in use by another ZooKeeper server; stop that process first, or choose "
                    "another directory with --data-dir"
                ) from None
            yield lock.fileno()

    def _configuration(self, data: Path) -> str:
        settings = _SETTINGS | {
            "dataDir": str(data.absolute()),
            "clientPortAddress": self.address.host,
            "clientPort": str(self.address.client_port),
        }
        if len(self._members) > 1:
            settings |= {f"server.{member.number}": member.inner_address for member in self._members}
        return _NOT_ASCII.sub(_java_escape, render_properties(settings))


def reachable(host: str) -> str:
    """Where to connect to a server that listens there."""
    return _WILDCARDS.get(host, host)


def _java_escape(character: re.Match[str]) -> str:
    """Java reads properties as Latin-1."""
    units = character[0].encode("utf-16-be").hex()
    return "".join(f"\\u{units[start : start + 4]}" for start in range(0, len(units), 4))
