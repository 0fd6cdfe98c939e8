"""Requests of every API and version, drawn from kio's schemas: mostly plausible, with a few values that nobody expects.

Plausible values go together: a member's id with its group's, a setting with a value of its type, a session with its
epoch. So the requests of a run build on each other, and leave topics, groups, offsets and settings behind.

A request is written field by field as bytes, not through an encoder, so that it can hold what no client would write:
text that is not UTF-8, nulls and lengths that the schema forbids, one element ten thousand times. How odd a request is
differs: most have a handful of odd values, so that they get past the first checks and leave something behind.

```python
fuzzer = RequestFuzzer(seed=7)
fuzzed = fuzzer.draw()           # the same ones for the same seed, as long as the broker answers the same
fuzzer.learn(api_key, answer)    # ids that the broker gave, to be used in later requests
```
"""

from collections import deque
from dataclasses import Field, dataclass, fields
from itertools import chain
from random import Random
from struct import pack
from typing import Any, Final
from uuid import UUID

from kio.serial._introspect import (
    EntityField,
    EntityTupleField,
    PrimitiveField,
    classify_field,
    get_field_tag,
    get_schema_field_type,
    is_optional,
)

from barnabas.base.settings import Setting
from barnabas.records.batch import Codec
from barnabas.records.builder import BatchBuilder
from barnabas.wire.apis import APIS, ApiKey
from barnabas.wire.messages import request_schema
from barnabas.wire.primitives import unsigned_varint
from tests.support.fuzz_values import (
    BROKER,
    BROKER_LOGGER,
    LOGGER,
    NUMBERS,
    ODD_NUMBERS,
    ODD_TEXTS,
    OVERLONG_TEXTS,
    SETTINGS_OF,
    TEXTS,
    TOPIC,
    VALUES_OF,
)

_KEPT_IDS: Final = 50
_ODDNESS: Final = (0.0, 0.02, 0.02, 0.1, 0.1, 0.5)
"""How many of a request's values are odd; one of these is drawn for each request."""
_FORMATS: Final = {
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
    "bool": "?",
    "error_code": "h",
    "timedelta_i32": "i",
    "timedelta_i64": "q",
}
_REPETITIONS: Final = (*(1,) * 20, *(10,) * 10, *(300,) * 4, 3000)
_BITS: Final = {"b": 8, "h": 16, "i": 32, "q": 64}
_RARE: Final = (
    *(ApiKey.DELETE_TOPICS, ApiKey.DELETE_GROUPS, ApiKey.API_VERSIONS, ApiKey.DESCRIBE_CLUSTER),
    *(ApiKey.DESCRIBE_ACLS, ApiKey.CREATE_ACLS, ApiKey.DELETE_ACLS, ApiKey.CONSUMER_GROUP_HEARTBEAT),
)
_APIS: Final = tuple(chain.from_iterable([api] * (1 if api.key in _RARE else 4) for api in APIS.values()))


@dataclass(frozen=True)
class FuzzedRequest:
    api_key: int
    version: int
    frame: bytes
    """With its length prefix."""
    is_answered: bool
    """False where the protocol has no answer, whatever the broker thinks of the request (acks=0)."""


class RequestFuzzer:
    def __init__(self, seed: object) -> None:
        self._chance = Random(repr(seed))
        self.count = 0
        """Of the requests that were drawn."""
        self._oddness = 0.0
        self._acks = 1
        self._path: list[str] = []
        self._group = b""
        self._resource_type = TOPIC
        self._setting: Setting | None = None
        self._session_id = 0
        self._topic_ids: deque[bytes] = deque(maxlen=_KEPT_IDS)
        self._members: dict[bytes, deque[bytes]] = {}
        """The last member ids of each group."""
        self._generations: dict[bytes, int] = {}
        self._epochs: dict[int, int] = {}
        """The epoch that each fetch session expects next."""
        self._producer_ids: deque[int] = deque([-1, 0, 1], maxlen=_KEPT_IDS)

    def draw(self) -> FuzzedRequest:
        chance = self._chance
        self.count += 1
        api = chance.choice(_APIS)
        version = chance.randint(api.version_min, api.version_max)
        self._oddness = chance.choice(_ODDNESS)
        self._acks = 1
        self._resource_type = TOPIC
        body = self._message(request_schema(api.key, version))
        header = pack(">hhi", api.key, version, chance.choice((0, 1, -1, 2**31 - 1))) + self._client_id()
        if api.is_flexible(version):
            header += self._tags({})
        content = self._damaged(header + body)
        return FuzzedRequest(api.key, version, pack(">i", len(content)) + content, self._acks != 0)

    def learn(self, api_key: int, answer: Any) -> None:
        """Keeps what an answer tells that a later request can use."""
        match api_key:
            case ApiKey.METADATA:
                self._topic_ids.extend(one.topic_id.bytes for one in answer.topics if getattr(one, "topic_id", None))
            case ApiKey.JOIN_GROUP if answer.member_id:
                members = self._members.setdefault(self._group, deque(maxlen=3))
                members.append(answer.member_id.encode()[:32_767])
                self._generations[self._group] = answer.generation_id
            case ApiKey.FETCH if getattr(answer, "session_id", 0):
                self._epochs[answer.session_id] = self._epochs.get(answer.session_id, 0) + 1
                while len(self._epochs) > _KEPT_IDS:
                    del self._epochs[next(iter(self._epochs))]
            case ApiKey.INIT_PRODUCER_ID:
                self._producer_ids.append(answer.producer_id)

    # -- the frame around the message ----------------------------------------------------------------------------

    def _client_id(self) -> bytes:
        text = self._odd_text(is_legacy=True) if self._is_odd() else b"fuzzer"
        return pack(">h", len(text)) + text

    def _damaged(self, content: bytes) -> bytes:
        """Some frames are cut, lengthened or have a changed byte, behind the header's first fields."""
        chance = self._chance
        if chance.random() >= 0.03:
            return content
        changed = bytearray(content)
        place = chance.randrange(8, len(changed))
        match chance.randrange(4):
            case 0:
                del changed[place:]
            case 1:
                changed[place] = chance.choice((0, 1, 2, 0x7F, 0x80, 0xFF))
            case 2:
                changed[place:place] = chance.randbytes(4)
            case _:
                changed += chance.randbytes(chance.choice((1, 100)))
        return bytes(changed)

    # -- messages ------------------------------------------------------------------------------------------------

    def _message(self, schema: Any) -> bytes:
        is_flexible: bool = schema.__flexible__
        written = b""
        tagged = {}
        for field in fields(schema):
            tag = get_field_tag(field)
            if tag is None:
                written += self._value(field, is_flexible, is_nullable=is_optional(field))
            elif self._chance.random() < 0.3:
                tagged[int(tag)] = self._value(field, True, is_nullable=False)
        return written + self._tags(tagged) if is_flexible else written

    def _tags(self, known: dict[int, bytes]) -> bytes:
        chance = self._chance
        tags = dict(known)
        if self._is_odd():
            tags.update({chance.choice((0, 1, 5, 1000, 2**31 - 1)): chance.randbytes(chance.choice((0, 1, 9)))})
        if self._oddness and chance.random() < 0.002:
            tags.update(dict.fromkeys(range(2000), b""))
        written = unsigned_varint(len(tags))
        for tag in sorted(tags):
            written += unsigned_varint(tag) + unsigned_varint(len(tags[tag])) + tags[tag]
        return written

    def _value(self, field: "Field[Any]", is_flexible: bool, is_nullable: bool) -> bytes:
        self._path.append(field.name)
        try:
            match classify_field(field):
                case EntityField(schema):
                    if is_nullable:
                        return b"\xff" if self._chance.random() < 0.5 else b"\x01" + self._message(schema)
                    return self._message(schema)
                case EntityTupleField(schema):
                    return self._array(lambda: self._message(schema), is_flexible, is_nullable)
                case PrimitiveField():
                    return self._primitive(get_schema_field_type(field), is_flexible, is_nullable)
                case _:
                    kafka_type = get_schema_field_type(field)
                    return self._array(
                        lambda: self._primitive(kafka_type, is_flexible, False), is_flexible, is_nullable
                    )
        finally:
            self._path.pop()

    def _array(self, element: Any, is_flexible: bool, is_nullable: bool) -> bytes:
        chance = self._chance
        is_assignments = self._path[-1] == "assignments" and "topics" in self._path
        is_left_out = chance.random() < (0.8 if is_assignments else 0.2)
        if (is_nullable and is_left_out) or (self._is_odd() and chance.random() < 0.02):
            return _count(-1, is_flexible)
        if is_assignments and is_left_out:
            return _count(0, is_flexible)
        if self._is_odd() and chance.random() < 0.05:
            return _count(chance.choice((-2, 2**31 - 1, 2**31 - 2, 100_000)), is_flexible)
        count = chance.choice((0, 1, 1, 1, 2, 3))
        written = [element() for _ in range(count)]
        if count and self._is_odd():
            times = chance.choice(_REPETITIONS if len(written[0]) < 100 else (1, 3))
            written += [written[0]] * times
        return _count(len(written), is_flexible) + b"".join(written)

    def _primitive(self, kafka_type: str, is_flexible: bool, is_nullable: bool) -> bytes:
        match kafka_type:
            case "string":
                return self._text(is_flexible, is_nullable)
            case "bytes" | "records":
                return self._bytes(kafka_type, is_flexible, is_nullable)
            case "uuid":
                return self._uuid()
            case _:
                return self._number(kafka_type)

    # -- values --------------------------------------------------------------------------------------------------

    def _is_odd(self) -> bool:
        return self._chance.random() < self._oddness

    def _text(self, is_flexible: bool, is_nullable: bool) -> bytes:
        chance = self._chance
        is_left_out = chance.random() < (0.95 if self._path[-1] == "transactional_id" else 0.3)
        if (is_nullable and is_left_out and self._path[-1] != "value") or (self._is_odd() and chance.random() < 0.02):
            return b"\0" if is_flexible else b"\xff\xff"
        text = self._odd_text(is_legacy=not is_flexible) if self._is_odd() else self._plausible_text()
        if self._path[-1] == "group_id":
            self._group = text
        return unsigned_varint(len(text) + 1) + text if is_flexible else pack(">h", len(text)) + text

    def _odd_text(self, *, is_legacy: bool) -> bytes:
        chance = self._chance
        if not is_legacy and chance.random() < 0.05:
            return chance.choice(OVERLONG_TEXTS)
        if chance.random() < 0.1:
            return chance.randbytes(chance.choice((1, 3, 20)))
        return chance.choice(ODD_TEXTS)

    def _plausible_text(self) -> bytes:
        chance = self._chance
        match self._kind_of_text():
            case "member":
                known = self._members.get(self._group)
                return chance.choice(known) if known and chance.random() < 0.7 else b""
            case "resource":
                return b"1" if self._resource_type != TOPIC else chance.choice(TEXTS["topic"])
            case "config":
                return self._config_name()
            case "value":
                return self._config_value()
            case kind:
                return chance.choice(TEXTS[kind])

    def _config_name(self) -> bytes:
        self._setting = None
        if self._resource_type == BROKER_LOGGER:
            return LOGGER
        self._setting = self._chance.choice(SETTINGS_OF.get(self._resource_type, SETTINGS_OF[TOPIC]))
        return self._setting.name.encode()

    def _config_value(self) -> bytes:
        if self._setting is None:
            return self._chance.choice((b"INFO", b"DEBUG"))
        default = self._setting.format(self._setting.default).encode()
        return self._chance.choice((default, *VALUES_OF.get(self._setting.type, NUMBERS)))

    def _kind_of_text(self) -> str:
        name, above = self._path[-1], self._path[:-1]
        if name == "name":
            if above[-1:] == ["configs"]:
                return "config"
            return "protocol" if above[-1:] == ["protocols"] else "topic"
        return {
            **dict.fromkeys(("topic", "topic_name", "topic_names"), "topic"),
            **dict.fromkeys(("group_id", "groups", "groups_names", "key", "coordinator_keys"), "group"),
            **dict.fromkeys(("states_filter", "types_filter"), "state"),
            **dict.fromkeys(("client_software_name", "client_software_version"), "software"),
            "resource_name": "resource",
            "configuration_keys": "config",
            "value": "value",
            "member_id": "member",
            "group_instance_id": "instance",
            "protocol_type": "protocol_type",
            "protocol_name": "protocol",
        }.get(name, "free")

    def _bytes(self, kafka_type: str, is_flexible: bool, is_nullable: bool) -> bytes:
        chance = self._chance
        if is_nullable and chance.random() < 0.1:
            return _count(-1, is_flexible)
        if kafka_type == "records":
            content = self._batch()
        elif self._is_odd():
            content = chance.choice((b"", b"\0", b"\xff" * 7, bytes(70_000), chance.randbytes(40)))
        else:  # a consumer's subscription: version, topics, no user data
            content = pack(">hih6s", 0, 1, 6, b"orders") + b"\xff" * 4
        return _count(len(content), is_flexible) + content

    def _batch(self) -> bytes:
        """Record batches, of which some are wrong within."""
        chance = self._chance
        producer_id = chance.choice(self._producer_ids)
        has_producer = producer_id >= 0
        builder = BatchBuilder(
            codec=chance.choice((Codec.NONE, Codec.NONE, Codec.GZIP, Codec.LZ4, Codec.ZSTD, Codec.SNAPPY)),
            producer_id=producer_id,
            producer_epoch=chance.choice((0, 0, 0, 1)) if has_producer else -1,
            base_sequence=chance.choice((0, 0, 1, 2, 2**31 - 1)) if has_producer else -1,
        )
        timestamp = chance.choice((-1, -2, 0, 1, 2**40, 2**63 - 1, -(2**63))) if self._is_odd() else 1_700_000_000_000
        for _ in range(chance.choice((1, 1, 2, 20))):
            builder.append(timestamp, chance.choice((None, b"", b"key")), chance.choice((None, b"value", bytes(500))))
        content = bytearray(builder.build())
        if self._is_odd():
            place = chance.randrange(len(content))
            content[place : place + 4] = chance.choice((b"\xff" * 4, b"\0" * 4, b"\x7f\xff\xff\xff", b""))
        return bytes(content)

    def _uuid(self) -> bytes:
        if self._is_odd() or not self._topic_ids:
            return self._chance.choice((bytes(16), b"\xff" * 16, UUID(int=77).bytes))
        return self._chance.choice(self._topic_ids)

    def _number(self, kafka_type: str) -> bytes:
        layout = _FORMATS[kafka_type]
        if layout == "?":
            return pack("B", self._chance.choice((0, 1, 1, 2, 255) if self._is_odd() else (0, 1)))
        if layout in "dHI":
            return pack(">" + layout, self._chance.choice((0, 1, 65_535)))
        low, high = -(2 ** (_BITS[layout] - 1)), 2 ** (_BITS[layout] - 1) - 1
        number = self._chance.choice((*ODD_NUMBERS, low, high)) if self._is_odd() else self._plausible_number()
        if self._path[-1] in ("num_partitions", "count") and 6 < number <= 10_000:
            number = 6  # more would only take time
        number = max(low, min(high, number))
        if self._path[-1] == "acks":
            self._acks = number
        elif self._path[-1] == "resource_type":
            self._resource_type = number
        elif self._path[-1] == "session_id":
            self._session_id = number
        return pack(">" + layout, number)

    def _plausible_number(self) -> int:
        chance = self._chance
        match self._path[-1]:
            case "resource_type" | "resource_types":
                return chance.choice((TOPIC, TOPIC, TOPIC, BROKER, BROKER_LOGGER, 16, 32))
            case "config_operation":
                return chance.randrange(4)
            case "key_type":
                return chance.choice((0, 0, 0, 1, 2))
            case "acks":
                return chance.choice((1, -1, -1, 0))
            case "session_timeout":
                return 6000
            case "rebalance_timeout":
                return chance.choice((10, 6000))
            case "timeout":
                return 1000
            case "max_wait":
                return chance.choice((0, 0, 5))
            case "generation_id" | "generation_id_or_member_epoch":
                return self._generations.get(self._group, -1) if chance.random() < 0.7 else -1
            case "session_id":
                return chance.choice((0, *self._epochs))
            case "session_epoch":
                return self._epochs.get(self._session_id, chance.choice((0, -1)))
            case "replica_id" | "last_fetched_epoch" | "endpoint_type":
                return 1 if self._path[-1] == "endpoint_type" else -1
            case "current_leader_epoch" | "committed_leader_epoch":
                return chance.choice((-1, -1, -1, 0))
            case "isolation_level":
                return chance.choice((0, 1))
            case "retention_time":
                return chance.choice((-1, 0, 86_400_000))
            case "timestamp":
                return chance.choice((-1, -2, -3, 0, 1_700_000_000_000))
            case "max_bytes" | "partition_max_bytes" | "response_partition_limit":
                return chance.choice((1, 1000, 1 << 20))
            case "num_partitions" | "replication_factor":
                return chance.choice((-1, 1))
            case "count":
                return chance.choice((1, 2, 3))
            case "broker_ids":
                return 1
            case "producer_id":
                return chance.choice(self._producer_ids)
            case _:
                return chance.choice((0, 0, 0, 0, 0, 1, 2, -1))


def _count(count: int, is_flexible: bool) -> bytes:
    """Of an array or bytes; negative for null."""
    if is_flexible:
        return unsigned_varint(count + 1 & 0xFFFFFFFF)
    return pack(">i", count)
