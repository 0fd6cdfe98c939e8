"""Which settings of a configuration file exist here, and what to say about the others. Pure."""

from collections.abc import Mapping
from typing import NamedTuple

from barnabas.base.errors import InvalidSetting
from barnabas.broker.setting_table import SERVER_SETTINGS, missing_feature
from barnabas.storage.setting_tables import TOPIC_SETTINGS


class Recognised(NamedTuple):
    """A configuration file's settings: those to use, and lines about the others."""

    texts: dict[str, str]
    notes: list[str]


def recognise(texts: Mapping[str, str]) -> Recognised:
    """Parts the settings that exist here from those that are Kafka's alone, or nobody's. Values are not checked."""
    known: dict[str, str] = {}
    notes = []
    for name, text in texts.items():
        if name in SERVER_SETTINGS:
            known[name] = text
        elif (feature := missing_feature(name)) is not None:
            notes.append(f"{name} has no effect: Barnabas has no {feature}")
        else:
            notes.append(f"{name} is not a setting and has no effect{_hint(name)}")
    for listener in _controller_listeners(texts):
        notes.append(f"the listener {listener} is ignored: Barnabas needs no connections between controllers")
    return Recognised(known, notes)


def _controller_listeners(texts: Mapping[str, str]) -> list[str]:
    """The listeners of a controller that have an address."""
    addresses = ",".join(texts.get(name, "") for name in ("listeners", "advertised.listeners")).upper().split(",")
    named = {address.strip().partition("://")[0] for address in addresses}
    names = [name.strip().upper() for name in texts.get("controller.listener.names", "").split(",")]
    return [name for name in names if name in named and name]


def _hint(name: str) -> str:
    if name in TOPIC_SETTINGS and TOPIC_SETTINGS[name].synonyms:
        return f"; it is a topic setting, and the default for all topics is {TOPIC_SETTINGS[name].synonyms[0].name}"
    try:
        SERVER_SETTINGS[name]
    except InvalidSetting as error:
        _, separator, hint = str(error).partition(";")
        return separator + hint
    return ""
