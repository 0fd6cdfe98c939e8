"""How settings are shown to clients: each with its value, where that comes from, and what else it could have come from.

| source | where it was set |
|---|---|
| TOPIC | the topic's own |
| DYNAMIC_BROKER | changed for this broker while it ran |
| DYNAMIC_DEFAULT_BROKER | changed for all brokers |
| STATIC_BROKER | the configuration file or the command line |
| DEFAULT | Kafka's default |

Everything is derived from the tables of settings. Pure: no I/O.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import dropwhile
from typing import Final, NamedTuple

from barnabas.base.errors import InvalidSetting
from barnabas.base.settings import Dynamic, Setting, SettingValue
from barnabas.broker.setting_table import SERVER_SETTINGS
from barnabas.broker.settings import BrokerSettings
from barnabas.metadata.image import ClusterImage
from barnabas.storage.setting_tables import TOPIC_SETTINGS


class ConfigSource(IntEnum):
    """By the numbers that DescribeConfigs uses for them."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    LOGGER = 6


class ConfigSynonym(NamedTuple):
    """One place that gives, or would give, a setting its value."""

    name: str
    value: str
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    setting: Setting
    value: str | None
    """None when it is not set and has no default."""
    source: ConfigSource
    synonyms: tuple[ConfigSynonym, ...]
    is_read_only: bool = False

    @property
    def name(self) -> str:
        return self.setting.name

    @property
    def shown_value(self) -> str | None:
        return None if self.setting.is_sensitive else self.value


_SYNONYMS_OF: Final = {
    setting.synonyms[0].name: tuple(synonym.name for synonym in setting.synonyms)
    for setting in TOPIC_SETTINGS
    if setting.synonyms
}
"""For a broker's setting, itself and those that are asked when it is not set."""


_NAMES_OF_ID: Final = ("node.id", "broker.id")
"""Two names for one number, whichever was set."""


def topic_entries(
    settings: BrokerSettings, image: ClusterImage, broker_id: int, configs: Mapping[str, str]
) -> list[ConfigEntry]:
    """Every setting of a topic that has these of its own."""
    layers = _Layers(settings, image, broker_id)
    entries = []
    for setting in TOPIC_SETTINGS:
        if setting.is_internal and setting.name not in configs:
            continue
        synonyms = layers.synonyms(_synonym_names(setting))
        if setting.name in configs:
            text = _own_text(setting, configs[setting.name])
            synonyms = (ConfigSynonym(setting.name, text, ConfigSource.TOPIC), *synonyms)
        else:
            text = setting.format(_topic_default(setting, layers.texts))
        source = synonyms[0].source if synonyms else ConfigSource.DEFAULT
        entries.append(ConfigEntry(setting, text, source, synonyms))
    return entries


def _own_text(setting: Setting, text: str) -> str:
    """As it is used; or as it is, when another broker wrote it and it cannot be used here."""
    try:
        return setting.format(setting.parse(text))
    except InvalidSetting:
        return text


def _synonym_names(setting: Setting) -> tuple[str, ...]:
    return tuple(synonym.name for synonym in setting.synonyms)


def _topic_default(setting: Setting, texts: Mapping[str, str]) -> SettingValue:
    for synonym in setting.synonyms:
        if synonym.name in texts:
            value = SERVER_SETTINGS[synonym.name].parse(texts[synonym.name])
            return value * synonym.factor if isinstance(value, int) and synonym.factor != 1 else value
    return setting.default


def broker_entries(settings: BrokerSettings, image: ClusterImage, broker_id: int) -> list[ConfigEntry]:
    """Every setting of this broker."""
    layers = _Layers(settings, image, broker_id)
    entries = []
    for setting in SERVER_SETTINGS:
        synonyms = layers.synonyms(_SYNONYMS_OF.get(setting.name, (setting.name,)))
        own = next((one for one in synonyms if one.name == setting.name), None)
        value = own.value if own else None
        source = own.source if own else ConfigSource.DEFAULT
        entries.append(ConfigEntry(setting, value, source, synonyms, setting.dynamic is Dynamic.NO))
    return entries


def default_broker_entries(image: ClusterImage) -> list[ConfigEntry]:
    """Those that were changed for all brokers, and only these."""
    entries = []
    for name, text in sorted(image.configs_of_broker(None).items()):
        if name in SERVER_SETTINGS:
            synonym = ConfigSynonym(name, text, ConfigSource.DYNAMIC_DEFAULT_BROKER)
            entries.append(ConfigEntry(SERVER_SETTINGS[name], text, synonym.source, (synonym,)))
    return entries


class _Layers:
    """The places where a broker's settings come from, the strongest first."""

    def __init__(self, settings: BrokerSettings, image: ClusterImage, broker_id: int) -> None:
        self.texts = settings.current(image, broker_id)
        self._places: Sequence[tuple[ConfigSource, Mapping[str, str]]] = (
            (ConfigSource.DYNAMIC_BROKER, image.configs_of_broker(broker_id)),
            (ConfigSource.DYNAMIC_DEFAULT_BROKER, image.configs_of_broker(None)),
            (ConfigSource.STATIC_BROKER, {**settings.texts, **dict.fromkeys(_NAMES_OF_ID, str(broker_id))}),
        )

    def synonyms(self, names: Sequence[str]) -> tuple[ConfigSynonym, ...]:
        """What these names are set to, by place; as in Kafka, from the first that bears the first of the names."""
        return tuple(dropwhile(lambda one: one.name != names[0], self._found(names)))

    def _found(self, names: Sequence[str]) -> Iterator[ConfigSynonym]:
        for source, texts in self._places:
            for name in names:
                if name in texts:
                    yield ConfigSynonym(name, texts[name].strip(), source)
        for name in names:
            setting = SERVER_SETTINGS[name]
            if setting.default is not None:
                yield ConfigSynonym(name, setting.format(setting.default), ConfigSource.DEFAULT)
