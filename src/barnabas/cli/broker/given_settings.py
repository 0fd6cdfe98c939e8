"""The settings of a broker that a command line gives.

They come, the later over the earlier, from the defaults of the command, the `--config` file, `--set`, and the options
that stand for a setting: `--listen`, `--data-dir`, `--zookeeper`, `--metrics-listen`. A file may be one of Kafka's:
what it has that Barnabas does not know is said and left out. `--set` is for those who know what they want: an unknown
name is refused.
"""

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from barnabas.base.addresses import address_text
from barnabas.base.errors import InvalidSetting
from barnabas.cli.broker.broker_arguments import DATA_DIRECTORY
from barnabas.cli.ports import parse_listen
from barnabas.cli.remote import DEFAULT_BOOTSTRAP, CommandFailed

if TYPE_CHECKING:
    from barnabas.broker.settings import BrokerSettings

logger = logging.getLogger(__name__)

ALONE: Final = {"offsets.topic.replication.factor": "1", "group.initial.rebalance.delay.ms": "0"}
"""What Kafka's own example configuration for one broker says, too."""


def make_settings(
    listen: str | None,
    data_dir: Path | None,
    given: Mapping[str, str],
    config: Path | None,
    *,
    zookeeper: str | None = None,
    defaults: Mapping[str, str] = ALONE,
) -> "BrokerSettings":
    """All sources put together and checked; what has no effect is said in the log."""
    from barnabas.broker.settings import BrokerSettings

    texts = {"listeners": listener_text(DEFAULT_BOOTSTRAP), **defaults}
    if config is not None:
        texts |= texts_of_file(config)
    texts |= given
    if listen is not None:
        texts["listeners"] = listener_text(listen)
        if "advertised.listeners" not in given and texts.pop("advertised.listeners", None) is not None:
            logger.warning("%s: advertised.listeners has no effect: --listen takes its place", config)
    if data_dir is not None:
        texts.pop("log.dir", None)
        texts["log.dirs"] = str(data_dir.absolute())
    elif "log.dirs" not in texts and "log.dir" not in texts:
        texts["log.dirs"] = os.path.abspath(DATA_DIRECTORY)
    if zookeeper is not None:
        texts["zookeeper.connect"] = zookeeper
    return BrokerSettings(texts)


def with_metrics(settings: "BrokerSettings", metrics_listen: str | None, metrics_port: int | None) -> "BrokerSettings":
    """The settings, with the address that the options give for the metrics."""
    from barnabas.broker.setting_rules import HostAndPort
    from barnabas.broker.settings import BrokerSettings

    if metrics_port is not None:
        if metrics_listen is not None:
            raise InvalidSetting(
                "--metrics-listen and --metrics-port both set the address of the metrics; give one of them"
            )
        metrics_listen = address_text(settings.config.listeners[0].host, metrics_port)
    elif metrics_listen is None:
        return settings
    elif HostAndPort.split(metrics_listen) is None:
        raise InvalidSetting(f"--metrics-listen {metrics_listen} is not allowed; it must be HOST:PORT")
    return BrokerSettings({**settings.texts, "metrics.listen": metrics_listen})


def listener_text(address: str) -> str:
    """The value of `listeners` for the address of `--listen`."""
    return f"PLAINTEXT://{address_text(*parse_listen(address))}"


def texts_of_file(path: Path) -> dict[str, str]:
    """The settings of a `--config` file that exist here."""
    from barnabas.broker.recognised_settings import recognise

    recognised = recognise(read_properties(path))
    for note in recognised.notes:
        logger.warning("%s: %s", path, note)
    return recognised.texts


def read_properties(path: Path) -> dict[str, str]:
    from barnabas.base.properties import InvalidProperties, parse_properties

    try:
        return parse_properties(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CommandFailed(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError:
        raise CommandFailed(f"cannot read {path}: it is not UTF-8 text") from None
    except InvalidProperties as error:
        raise CommandFailed(f"{path}: {error}") from error
