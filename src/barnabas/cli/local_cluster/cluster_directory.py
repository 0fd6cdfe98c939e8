"""What `barnabas up --brokers` keeps in its data directory, and which address each broker gets.

```
DIR/zookeeper/                   the ZooKeeper server's, unless the cluster uses another one
DIR/broker-N/broker.properties   written at every start; readable by its owner alone, since it has the identity for
                                 ZooKeeper
DIR/broker-N/data/               the broker's log directory
DIR/replicas.properties          how many replicas the topics have by default (`replica_defaults`)
```

A broker keeps its port: it is read from the properties file of the last start. Defaults go by the number of brokers:

| brokers | replicas of new topics and of internal ones | `min.insync.replicas` |
|---|---|---|
| 1 | 1 | 1 |
| 2 | 2 | 1: one broker may die |
| 3 and more | 3 | 2 |
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from barnabas.base.addresses import address_text
from barnabas.base.errors import InvalidSetting
from barnabas.base.filesystem import LocalFileSystem, replace_private_file
from barnabas.base.properties import render_properties
from barnabas.broker.settings import BrokerSettings
from barnabas.cli.broker.given_settings import ALONE, read_properties, texts_of_file
from barnabas.cli.output import plural, remark
from barnabas.cli.ports import free_ports, is_free, parse_listen
from barnabas.cli.remote import DEFAULT_BOOTSTRAP, CommandFailed

logger = logging.getLogger(__name__)

ZOOKEEPER: Final = "zookeeper"
_PROPERTIES: Final = "broker.properties"
_DATA: Final = "data"
_LISTENER: Final = "PLAINTEXT://"
_REPLICAS_MAX: Final = 3
_NOTE: Final = "# Written by `barnabas up --brokers` at every start, from its options; only the port is kept.\n"
_OWN: Final = (
    "node.id",
    "broker.id",
    "listeners",
    "advertised.listeners",
    "log.dirs",
    "log.dir",
    "metrics.listen",
)
"""What differs from broker to broker, so that it cannot be given for all."""


@dataclass(frozen=True, slots=True)
class LocalBroker:
    """One of the brokers: where it is, and where its files are."""

    broker_id: int
    directory: Path
    host: str
    port: int
    metrics_port: int | None = None

    @property
    def name(self) -> str:
        return f"broker-{self.broker_id}"

    @property
    def address(self) -> str:
        return address_text(self.host, self.port)

    @property
    def properties_file(self) -> Path:
        return self.directory / _PROPERTIES

    @property
    def log_directory(self) -> Path:
        return self.directory / _DATA

    def write_properties(self, common: Mapping[str, str]) -> None:
        """Its settings: those of all brokers, and its own."""
        own = {
            "node.id": str(self.broker_id),
            "listeners": f"{_LISTENER}{self.address}",
            "log.dirs": str(self.log_directory),
        }
        if self.metrics_port is not None:
            own["metrics.listen"] = address_text(self.host, self.metrics_port)
        self.directory.mkdir(parents=True, exist_ok=True)
        content = _NOTE + render_properties({**common, **own})
        replace_private_file(LocalFileSystem(), str(self.properties_file), content.encode())


def bootstrap_of(brokers: Sequence[LocalBroker]) -> str:
    """Where clients find the cluster."""
    return ",".join(broker.address for broker in brokers)


def common_texts(
    given: Mapping[str, str], config: Path | None, zookeeper: str | None, *, brokers: int
) -> dict[str, str]:
    """The settings that all brokers share, checked: a mistake is reported before anything starts."""
    for name in _OWN:
        if name in given:
            raise InvalidSetting(f"--set {name} is not allowed with --brokers: it differs from broker to broker")
    texts = {} if config is None else texts_of_file(config)
    for name in _OWN:
        if texts.pop(name, None) is not None:
            logger.warning("%s: %s has no effect with --brokers: it differs from broker to broker", config, name)
    texts = {**_defaults(brokers), **texts, **given} | ({} if zookeeper is None else {"zookeeper.connect": zookeeper})
    BrokerSettings(texts)
    return texts


def _defaults(brokers: int) -> dict[str, str]:
    replicas = str(min(_REPLICAS_MAX, brokers))
    defaults = {**ALONE, "default.replication.factor": replicas, "offsets.topic.replication.factor": replicas}
    if brokers >= _REPLICAS_MAX:
        defaults["min.insync.replicas"] = "2"
    return defaults


def plan_brokers(directory: Path, count: int, listen: str | None, metrics_port: int | None) -> list[LocalBroker]:
    """The brokers 1 to `count`. The first listens where it is told to, the others on free ports of the same host."""
    _say_left_out(directory, count)
    kept = {number: _kept_address(directory, number) for number in range(1, count + 1)}
    host, port = parse_listen(listen or kept[1] or DEFAULT_BOOTSTRAP)
    ports = [port, *(_kept_port(kept[number], host) for number in range(2, count + 1))]
    metrics = [] if metrics_port is None else [metrics_port + index if metrics_port else 0 for index in range(count)]
    free = free_ports([(host, one) for one in (*ports, *metrics)])
    return [
        LocalBroker(
            index + 1, _of(directory, index + 1), host, free[index], None if not metrics else free[count + index]
        )
        for index in range(count)
    ]


def check_single(directory: Path) -> None:
    """Refuses the directory of a cluster to a broker that would be alone in it."""
    count = len(brokers_in(directory))
    if count:
        raise CommandFailed(
            f"{directory} has the data of {plural(count, 'broker')}; give --brokers {count}, or another directory with "
            "--data-dir"
        )


def _say_left_out(directory: Path, count: int) -> None:
    left_out = sorted(number for number in brokers_in(directory) if number > count)
    if left_out:
        names = ", ".join(f"broker-{number}" for number in left_out)
        remark(f"not started, though {directory} has their data: {names}; their partitions are offline")


def brokers_in(directory: Path) -> list[int]:
    """The numbers of the brokers that `up --brokers` has started there."""
    names = (path.parent.name.removeprefix("broker-") for path in directory.glob(f"broker-*/{_PROPERTIES}"))
    return sorted(int(name) for name in names if name.isdecimal())


def properties_in(directory: Path) -> dict[str, str] | None:
    """Those of the first broker that was started there; None before the first start."""
    numbers = brokers_in(directory)
    return read_properties(_of(directory, numbers[0]) / _PROPERTIES) if numbers else None


def log_directory_of(directory: Path, number: int) -> Path:
    return _of(directory, number) / _DATA


def _of(directory: Path, number: int) -> Path:
    return directory / f"broker-{number}"


def _kept_address(directory: Path, number: int) -> str | None:
    """HOST:PORT of the last start; None before the first."""
    path = _of(directory, number) / _PROPERTIES
    if not path.exists():
        return None
    listener = read_properties(path).get("listeners", "")
    return listener.removeprefix(_LISTENER) if listener.startswith(_LISTENER) else None


def _kept_port(address: str | None, host: str) -> int:
    """0 for any, when there was none, or when somebody has taken it meanwhile."""
    if address is None:
        return 0
    kept_host, port = parse_listen(address)
    return port if kept_host == host and is_free(host, port) else 0
