"""One line of the log for each change that a client makes to the cluster: what was changed, by whom, from where.

    created topic 'orders' with 1 partition  topic=orders partitions=1 principal=User:ANONYMOUS client_id=x host=::1

A handler calls `log_change` once the change is written, in the words that the commands use. What a client says of
itself is cut to a bounded length; the formatters of `barnabas.base.logs` keep it from looking like another line.
"""

import logging
from collections.abc import Mapping
from typing import Final

from barnabas.base.logs import fields
from barnabas.base.settings import SettingTable
from barnabas.broker.request import Request

logger = logging.getLogger(__name__)

TEXT_LENGTH_MAX: Final = 200


def who(request: Request) -> dict[str, object]:
    """The fields that say who sent a request."""
    caller = request.caller
    return {
        "principal": caller.principal,
        "client_id": caller.client_id[:TEXT_LENGTH_MAX],
        "host": caller.host,
    }


def log_change(request: Request, message: str, *arguments: object, level: int = logging.INFO, **ids: object) -> None:
    """Logs a change, with `ids` as fields before those of the client."""
    logger.log(level, message, *arguments, extra=fields(**ids, **who(request)))


def partitions_text(count: int) -> str:
    return "1 partition" if count == 1 else f"{count} partitions"


def settings_text(before: Mapping[str, str], after: Mapping[str, str], table: SettingTable) -> str:
    """What became of the settings of a resource: `retention.ms=5000, cleanup.policy unset`; empty for no change."""
    parts = [f"{name}={_shown(name, text, table)}" for name, text in sorted(after.items()) if before.get(name) != text]
    parts += [f"{name[:TEXT_LENGTH_MAX]} unset" for name in sorted(before.keys() - after.keys())]
    return ", ".join(parts)


def _shown(name: str, text: str, table: SettingTable) -> str:
    if name in table and table[name].is_sensitive:
        return "(hidden)"
    return text if len(text) <= TEXT_LENGTH_MAX else f"{text[:TEXT_LENGTH_MAX]}..."
