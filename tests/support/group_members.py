"""Consumers of a group in processes of their own, from the side of the test: starting, ending, and what they did.

```python
with GroupMembers(bootstrap, "orders", "group", "confluent", partitions=6) as members:
    klamm = members.start("klamm")
    members.wait_settled("klamm")                 # it owns all partitions, and nobody else any
    members.wait_records({"a", "b"})              # all of these were processed
    klamm.kill()
assert members.overlaps() == []
```

A partition is owned from the moment a consumer's callback names it until its callback takes it back, or until the
consumer closes, is killed or is stopped: a stopped process knows nothing, and nothing that it does later counts.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.support.kafka import PROJECT_DIRECTORY

TIMEOUT_SECONDS = 180.0


@dataclass(frozen=True, slots=True)
class Owned:
    """One partition in one consumer's hands."""

    partition: int
    member: str
    since: float
    until: float


class Member:
    """One process. Its events are read by a thread, which wakes whoever waits for them."""

    def __init__(self, name: str, command: Sequence[str], changed: threading.Condition, log_file: Path) -> None:
        self.name = name
        self.events: list[dict[str, Any]] = []
        self._changed = changed
        self._log_file = log_file
        with open(log_file, "ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=PROJECT_DIRECTORY,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.endswith(b"\n"):  # a process that was killed may leave half of its last line
                self._note(json.loads(line))

    def _note(self, event: dict[str, Any]) -> None:
        with self._changed:
            self.events.append(event)
            self._changed.notify_all()

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def said(self) -> str:
        return self._log_file.read_text(errors="replace")[-2000:]

    # -- what happens to it ------------------------------------------------------------------------------------

    def close(self) -> None:
        """It leaves the group, unless it is a static member."""
        if self.is_running:
            self._process.send_signal(signal.SIGTERM)
        self._end()

    def kill(self) -> None:
        if self.is_running:
            self._process.kill()
        self._end()
        self._note({"event": "gone", "at": time.monotonic()})

    def pause(self) -> None:
        """SIGSTOP: it holds its connections and says nothing."""
        self._process.send_signal(signal.SIGSTOP)
        self._note({"event": "gone", "at": time.monotonic()})

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def _end(self) -> None:
        try:
            self._process.wait(TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise AssertionError(f"{self.name} did not end: {self.said()}") from None
        finally:
            self._reader.join(TIMEOUT_SECONDS)
            if self._process.stdout is not None:
                self._process.stdout.close()

    # -- what it did -------------------------------------------------------------------------------------------

    def values(self) -> list[str]:
        return [event["value"] for event in self.events if event["event"] == "record"]

    def ownership(self) -> list[Owned]:
        """What it owned; what it still owns has no end."""
        held: dict[int, float] = {}
        past: list[Owned] = []
        for event in list(self.events):
            match event["event"]:
                case "assigned":
                    held.update(dict.fromkeys(event["partitions"], event["at"]))
                case "revoked":
                    ended = event["partitions"]
                case "closed" | "gone":
                    ended = list(held)
            if event["event"] in ("revoked", "closed", "gone"):
                past += [Owned(one, self.name, held.pop(one), event["at"]) for one in ended if one in held]
        return past + [Owned(partition, self.name, since, float("inf")) for partition, since in held.items()]

    def owned(self) -> set[int]:
        return {one.partition for one in self.ownership() if one.until == float("inf")}


class GroupMembers:
    """All consumers that a test starts for one group."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        group: str,
        library: str,
        *,
        partitions: int,
        directory: Path,
        **options: str,
    ) -> None:
        self.members: dict[str, Member] = {}
        self.partitions = set(range(partitions))
        self._where = ("--bootstrap", bootstrap, "--topic", topic, "--group", group)
        self._library = library
        self._options = options
        self._directory = directory
        self._changed = threading.Condition()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for member in self.members.values():
            if error is not None and member.is_running:
                member.kill()
        for member in self.members.values():
            if member.is_running:
                member.close()

    def start(self, name: str, library: str = "", **options: str) -> Member:
        """`options` are those of the worker, with underscores."""
        command = [sys.executable, "-m", "tests.support.group_worker", library or self._library, *self._where]
        for option, value in {**self._options, "client_id": name, **options}.items():
            command += [f"--{option.replace('_', '-')}", value]
        return self.start_command(name, command)

    def start_command(self, name: str, command: Sequence[str]) -> Member:
        assert name not in self.members, f"{name} was here before"
        self.members[name] = Member(name, command, self._changed, self._directory / f"{name}.log")
        return self.members[name]

    # -- waiting -----------------------------------------------------------------------------------------------

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        with self._changed:
            is_so = self._changed.wait_for(condition, TIMEOUT_SECONDS)
        if not is_so:
            owned = {name: sorted(member.owned()) for name, member in self.members.items()}
            said = {name: member.said() for name, member in self.members.items()}
            raise AssertionError(f"{what}: not after {TIMEOUT_SECONDS} s; owned: {owned}; they said: {said}")

    def wait_settled(self, *names: str, idle: int = 0) -> None:
        """These own all partitions, as evenly as they can, with so many of them idle."""

        def is_settled() -> bool:
            owned = [self.members[name].owned() for name in names]
            counts = sorted(len(one) for one in owned)
            busy = counts[idle:]
            return (
                set().union(*owned) == self.partitions
                and sum(counts) == len(self.partitions)
                and not any(counts[:idle])
                and max(busy) - min(busy) <= 1
            )

        self.wait(is_settled, f"{', '.join(names)} own all partitions")

    def wait_records(self, values: Collection[str]) -> None:
        self.wait(lambda: set(values) <= set(self.counts()), f"{len(values)} records are processed")

    def wait_committed(self, name: str) -> None:
        """What this one processed last is committed."""
        events = self.members[name].events
        self.wait(lambda: bool(events) and events[-1]["event"] == "committed", f"{name} committed")

    # -- what they did -----------------------------------------------------------------------------------------

    def counts(self) -> Counter[str]:
        """How often each record was processed, by all of them together."""
        return Counter(value for member in list(self.members.values()) for value in member.values())

    def overlaps(self) -> list[tuple[Owned, Owned]]:
        """Where two owned a partition at one time."""
        owned = sorted(
            (one for member in self.members.values() for one in member.ownership()),
            key=lambda one: (one.partition, one.since),
        )
        return [
            (one, other)
            for index, one in enumerate(owned)
            for other in owned[index + 1 :]
            if one.partition == other.partition and one.member != other.member and other.since < one.until
        ]
