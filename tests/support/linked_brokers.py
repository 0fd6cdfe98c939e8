"""A small network of this machine's own: brokers in network namespaces, on one bridge, with links that can be cut.

```
10.86.99.1      the bridge, for this process and ZooKeeper
10.86.99.1N     broker N, in a namespace of its own
```

A link that is cut drops all packets between two brokers, in both directions, and says nothing about it, as a switch
does. Everything is made by the test, named after its process, and removed when its block ends. Tests skip where they
may not have it.
"""

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

HOST = "10.86.99.1"
"""Where the namespaces reach this process."""
_MARK = f"bnb{os.getpid()}"


@dataclass(frozen=True, slots=True)
class LinkedBrokers:
    """The places of brokers 1 to `count`."""

    count: int

    def address(self, number: int) -> str:
        return f"{HOST}{number}"

    def inside(self, number: int) -> Sequence[str]:
        """Goes before a command, which it then becomes."""
        return ("ip", "netns", "exec", _namespace(number))

    @contextmanager
    def cut(self, one: int, another: int) -> Iterator[None]:
        """The link between these two, until the block ends."""
        ends = ((one, another), (another, one))
        try:
            for here, there in ends:
                _ip("-n", _namespace(here), "route", "add", "blackhole", self.address(there))
            yield
        finally:
            for here, there in ends:
                _run("-n", _namespace(here), "route", "del", "blackhole", self.address(there))


@contextmanager
def linked_brokers(count: int = 3) -> Iterator[LinkedBrokers]:
    if os.geteuid() != 0:
        pytest.skip("links are cut in network namespaces: only root may")
    try:
        try:
            _connect(count)
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"no network namespaces here: {getattr(error, 'stderr', None) or error}")
        yield LinkedBrokers(count)
    finally:
        for number in range(1, count + 1):
            _run("netns", "del", _namespace(number))
            _run("link", "del", _outer(number))
        _run("link", "del", _MARK)


def _connect(count: int) -> None:
    _ip("link", "add", _MARK, "type", "bridge")
    _ip("address", "add", f"{HOST}/24", "dev", _MARK)
    _ip("link", "set", _MARK, "up")
    for number in range(1, count + 1):
        namespace = _namespace(number)
        _ip("netns", "add", namespace)
        _ip("link", "add", _outer(number), "type", "veth", "peer", "name", "inner", "netns", namespace)
        _ip("link", "set", _outer(number), "master", _MARK, "up")
        _ip("-n", namespace, "address", "add", f"{HOST}{number}/24", "dev", "inner")
        for device in ("lo", "inner"):
            _ip("-n", namespace, "link", "set", device, "up")


def _namespace(number: int) -> str:
    return f"{_MARK}-{number}"


def _outer(number: int) -> str:
    """The end of a broker's cable at the bridge."""
    return f"{_MARK}v{number}"


def _ip(*arguments: str) -> None:
    done = _run(*arguments)
    done.check_returncode()


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
