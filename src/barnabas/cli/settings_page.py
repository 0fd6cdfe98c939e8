"""Writes `docs/settings.md` from the tables: `python -m barnabas.cli.settings_page > docs/settings.md`.

A test compares the file with what this module writes, so the page cannot fall behind the tables.
"""

import sys
from collections.abc import Iterable

from barnabas.base.settings import Setting, SettingTable, SettingType, with_unit
from barnabas.broker.setting_table import BROKER_SETTINGS, UNSUPPORTED
from barnabas.storage.setting_tables import LOG_SETTINGS, TIERED, TOPIC_SETTINGS

_OPENING = """\
# Settings

This page is written by `python -m barnabas.cli.settings_page` from the tables in the code; do not edit it.

Names and defaults are Apache Kafka 4.3's, and for a cluster on ZooKeeper, which 4.0 dropped, 3.9.1's. A setting has one
text form wherever it is given: in a properties file, after `--set` on a command line (`--set retention.ms=3600000`), or
through a client. A wrong value is refused with the allowed values, a wrong name with the nearest right one. "At run
time" says whether a setting can be changed without a restart: yes, no, or only for each broker by itself.
"""

_TOPIC_OPENING = """\
Each topic can have its own value. If it has none, the broker setting named under "default from" is used; if there
are several, the first that is set.
"""

_LOG_OPENING = """\
These apply to a whole broker: its directories, its background work, and the defaults of its topics.
"""

_BROKER_OPENING = """\
These apply to a whole broker: its identity, where it listens, and what it allows.
"""

_UNSUPPORTED_OPENING = """\
Kafka has these, and Barnabas does not: giving one logs a warning and has no effect. A name that ends in a dot stands
for all names that begin with it.
"""

_GROUP_NOTES = {
    TIERED: "Barnabas has no tiered storage. These names are known so that a configuration which leaves"
    " them at their defaults is accepted; any other value is refused.",
}


def settings_page() -> str:
    """The text of `docs/settings.md`."""
    return "\n".join(
        [
            _OPENING,
            "## Topic settings\n",
            _TOPIC_OPENING,
            *_groups(TOPIC_SETTINGS, with_synonyms=True),
            "## Broker settings for logs\n",
            _LOG_OPENING,
            *_groups(LOG_SETTINGS, with_synonyms=False),
            "## Broker settings\n",
            _BROKER_OPENING,
            *_groups(BROKER_SETTINGS, with_synonyms=False),
            "## Kafka's other settings\n",
            _UNSUPPORTED_OPENING,
            *_unsupported(),
        ]
    )


def _groups(table: SettingTable, *, with_synonyms: bool) -> Iterable[str]:
    shown = [setting for setting in table if not setting.is_internal]
    for group in dict.fromkeys(setting.group for setting in shown):
        yield f"### {group}\n"
        if group in _GROUP_NOTES:
            yield _GROUP_NOTES[group] + "\n"
        columns = ["name", "type", "default", "allowed", "at run time", "meaning"]
        if with_synonyms:
            columns.insert(3, "default from")
        yield table_row(columns)
        yield "|---" * len(columns) + "|"
        for setting in shown:
            if setting.group == group:
                yield table_row(_cells(setting, with_synonyms=with_synonyms))
        yield ""


def _unsupported() -> Iterable[str]:
    yield table_row(["name", "what Barnabas does not have"])
    yield "|---|---|"
    for beginning, feature in UNSUPPORTED.items():
        yield table_row([f"`{beginning}`", feature])
    yield ""


def _cells(setting: Setting, *, with_synonyms: bool) -> list[str]:
    cells = [
        f"`{setting.name}`",
        setting.type.name.lower(),
        _default(setting),
        setting.allowed,
        setting.dynamic.value,
        setting.doc,
    ]
    if with_synonyms:
        cells.insert(3, ", ".join(f"`{synonym.name}`" for synonym in setting.synonyms) or "none")
    return cells


def _default(setting: Setting) -> str:
    value = setting.default
    if value is None:
        return "not set"
    if isinstance(value, int | float) and setting.type is not SettingType.BOOLEAN:
        return with_unit(value, setting.unit)
    return f"`{setting.format(value)}`" if value not in ((), "") else "empty"


def table_row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


if __name__ == "__main__":
    sys.stdout.write(settings_page())
