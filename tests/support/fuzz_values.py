"""The values that fuzzed requests are made of: names that the requests share, settings with fitting values, and texts
that nobody expects."""

from typing import Final

from barnabas.base.settings import Dynamic, Setting, SettingType
from barnabas.broker.setting_table import SERVER_SETTINGS
from barnabas.storage.setting_tables import TOPIC_SETTINGS

_TOPICS: Final = ("orders", "payments", "shipments", "returns")
_GROUPS: Final = ("billing", "auditing", "mailing")

ODD_NUMBERS: Final = (*range(-3, 4), 16, 17, 63, 64, 100, 255, 256, 1000, 32_767, 32_768, 65_535, 10**6, 10**12)
ODD_TEXTS: Final = (
    *(b"", b" ", b".", b"..", b"\0", b"\n", b"a\nb", b"%s%n", b"'\"\\", b"/", b"../../x", b"-", b"_"),
    *(b"a" * 127, b"a" * 128, b"a" * 249, b"a" * 250, b"a" * 16_383, b"a" * 32_767),
    *(b"\xff", b"\xff" * 10_922, b"\xff" * 20_000, b"\xff" * 32_767),
    *(b"\xed\xa0\x80", b"\xed\xa0\xbd\xed\xb8\x80", b"\xf4\x90\x80\x80", b"\xc0\x80", b"\xe2\x80\xae"),
    "🦓".encode() * 8191,
    *("ä".encode() * 16_383, "汉".encode() * 10_922, b"a" + "🦓".encode() * 8191, b"\xef\xbf\xbd"),
    *(b"1" * 5000, b"-" + b"9" * 4400, "٣".encode(), b" 1", b"1_0", b"+1", b"01", b"-0", b"-1", b"1e5", b"0x1", b"1.5"),
    *(b"nan", b"inf", b"1e999", b"9223372036854775807", b"9223372036854775808", b"-9223372036854775809", b"2147483648"),
    *(b"," * 30_000, b"0:1," * 8000, b"*", b"true", b"TRUE", b"none", b"null", b"compact,delete", b"a.b", b"a_b"),
    *(b"__consumer_offsets", b"__cluster_metadata", b"__barnabas_group_history", b"__transaction_state"),
)
OVERLONG_TEXTS: Final = (b"a" * 32_768, b"\xff" * 40_000, b"a" * 100_000)
TEXTS: Final[dict[str, tuple[bytes, ...]]] = {
    "topic": tuple(name.encode() for name in (*_TOPICS * 3, "missing", "__consumer_offsets")),
    "group": tuple(name.encode() for name in (*_GROUPS * 3, "missing")),
    "protocol": (b"range", b"roundrobin", b"sticky"),
    "protocol_type": (b"consumer", b"connect"),
    "instance": (b"static-1", b"static-2"),
    "state": (b"Stable", b"Empty", b"classic"),
    "software": (b"librdkafka", b"2.6"),
    "free": (b"", b"text"),
}
LOGGER: Final = b"barnabas.groups.shard"
TOPIC, BROKER, BROKER_LOGGER = 2, 4, 8
_SHUTTING_OUT: Final = ("max.connection", "connections.max", "socket.", "delete.topic.enable", "group.max.size")
"""Settings that would shut the test out, or leave it little to do."""
SETTINGS_OF: Final[dict[int, tuple[Setting, ...]]] = {
    TOPIC: tuple(TOPIC_SETTINGS),
    BROKER: tuple(
        setting
        for setting in SERVER_SETTINGS
        if setting.dynamic is not Dynamic.NO and not setting.name.startswith(_SHUTTING_OUT)
    ),
}
VALUES_OF: Final[dict[SettingType, tuple[bytes, ...]]] = {
    SettingType.BOOLEAN: (b"true", b"false"),
    SettingType.DOUBLE: (b"0.5", b"1", b"0.0"),
    SettingType.LIST: (b"", b"delete", b"compact", b"compact,delete", b"0:1,1:1", b"*"),
}
NUMBERS: Final = (b"1", b"10", b"100", b"1048576", b"604800000", b"-1")
