"""What a history will do, decided by its seed before it begins: settings, operations of the actors, faults.

A plan is data. A shorter one (operations or faults left out) can be run as well, which is how a failure is reduced to
what is needed for it: each entry brings everything it needs, and no entry counts on another.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Final

REPLICAS_MAX: Final = 3
PLAIN: Final = "plain"
FLUSHED: Final = "flushed"
COMPACTED: Final = "compacted"
EXPIRING: Final = "expiring"

_KINDS: Final = {
    PLAIN: {},
    FLUSHED: {"flush.messages": "1"},
    COMPACTED: {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.1",
        "internal.segment.bytes": "2048",
        "delete.retention.ms": "2000",
    },
    EXPIRING: {"retention.ms": "3000", "internal.segment.bytes": "1500", "file.delete.delay.ms": "500"},
}


@dataclass(frozen=True, slots=True)
class PlannedTopic:
    name: str
    kind: str
    partitions: int
    configs: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Operation:
    """Something that an actor does: `pause` seconds after its last operation ended."""

    actor: str
    action: str
    arguments: dict[str, object] = field(hash=False)
    pause: float = 0.0

    def __str__(self) -> str:
        details = ", ".join(f"{name}={value}" for name, value in self.arguments.items())
        return f"{self.actor} {self.action}({details})"


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that happens to the world, `at` seconds after its start."""

    at: float
    kind: str
    arguments: dict[str, object] = field(hash=False, default_factory=dict)

    def __str__(self) -> str:
        details = ", ".join(f"{name}={value}" for name, value in self.arguments.items())
        return f"{self.at:7.3f} s: {self.kind}({details})"


@dataclass(frozen=True, slots=True)
class Actor:
    """A client with a process of its own."""

    name: str
    options: "ProducerOptions | ReaderOptions | MemberOptions | AdminOptions"
    """Of which kind they are says what the actor is."""


@dataclass(frozen=True, slots=True)
class ProducerOptions:
    acks: int
    is_idempotent: bool
    linger_seconds: float
    batch_bytes: int
    codec: int


@dataclass(frozen=True, slots=True)
class ReaderOptions:
    wait_ms: int
    partition_bytes: int
    bytes_min: int = 1
    """A fetch that finds less waits on."""


@dataclass(frozen=True, slots=True)
class MemberOptions:
    group: str
    topics: tuple[str, ...]
    assignors: tuple[str, ...]
    instance_id: str | None
    session_timeout_ms: int
    auto_commit_ms: int | None


@dataclass(frozen=True, slots=True)
class AdminOptions:
    """It has none."""


@dataclass(frozen=True, slots=True)
class Plan:
    seed: int
    settings: dict[str, str]
    directories: int
    brokers: int
    topics: tuple[PlannedTopic, ...]
    actors: tuple[Actor, ...]
    operations: tuple[Operation, ...]
    faults: tuple[Fault, ...]

    def with_parts(self, operations: Sequence[Operation], faults: Sequence[Fault]) -> "Plan":
        return replace(self, operations=tuple(operations), faults=tuple(faults))

    def describe(self) -> list[str]:
        """For people: the settings, then faults and operations."""
        lines = [f"seed {self.seed}, {self.brokers} broker(s), {self.directories} log director(ies) each"]
        lines += [f"  {name}={value}" for name, value in sorted(self.settings.items())]
        lines += [
            f"topic {topic.name}: {topic.partitions} partition(s), "
            + (", ".join(f"{name}={value}" for name, value in topic.configs) or "default settings")
            for topic in self.topics
        ]
        lines += [f"{fault}" for fault in self.faults]
        lines += [f"{operation}" for operation in self.operations]
        return lines


def make_plan(seed: int, *, brokers: int = 1) -> Plan:
    random = Random(f"{seed}/plan")
    topics = _topics(random)
    replicating = Random(f"{seed}/replication")
    settings: dict[str, str] = {}
    if brokers > 1:
        settings = _replication_settings(replicating, brokers)
        topics = tuple(_with_minimum(replicating, topic) for topic in topics)
    actors = _actors(random, topics)
    operations = [operation for actor in actors for operation in _operations(random, actor, topics)]
    seconds = 2.0 + sum(one.pause for one in operations if one.actor == actors[0].name)
    settings |= _settings(random)
    directories = random.choice((1, 1, 2))
    faults = _faults(random, seconds, [one.name for one in actors], brokers)
    if brokers > 1:
        faults = sorted([*faults, *_together(replicating, faults, brokers)], key=lambda fault: fault.at)
    return Plan(
        seed,
        settings,
        directories=directories,
        brokers=brokers,
        topics=topics,
        actors=actors,
        operations=tuple(operations),
        faults=tuple(faults),
    )


def _settings(random: Random) -> dict[str, str]:
    return {
        "offsets.topic.num.partitions": str(random.choice((1, 2))),
        "log.index.interval.bytes": str(random.choice((0, 200, 4096))),
        "log.initial.task.delay.ms": "500",
        "log.retention.check.interval.ms": "1000",
        "log.flush.scheduler.interval.ms": "500",
        "log.flush.offset.checkpoint.interval.ms": str(random.choice((500, 5000))),
        "log.flush.start.offset.checkpoint.interval.ms": str(random.choice((500, 5000))),
        "log.cleaner.backoff.ms": "1000",
        "log.segment.delete.delay.ms": "1000",
        "group.initial.rebalance.delay.ms": str(random.choice((0, 500))),
        "group.min.session.timeout.ms": "1000",
        "producer.id.expiration.check.interval.ms": "5000",
    }


def _replication_settings(random: Random, brokers: int) -> dict[str, str]:
    """Every topic has three replicas, or as many as there are brokers."""
    replicas = str(min(REPLICAS_MAX, brokers))
    minimum = random.choice(("2", "2", "2", "1"))
    lag_ms = random.choice(("1000", "3000", "10000"))
    wait_ms, bytes_max = random.choice((("100", "1048576"), ("500", "300")))  # a batch may be larger, or cut in two
    return {
        "default.replication.factor": replicas,
        "offsets.topic.replication.factor": replicas,
        "min.insync.replicas": minimum,
        "replica.lag.time.max.ms": lag_ms,
        "replica.fetch.wait.max.ms": wait_ms,
        "replica.fetch.max.bytes": bytes_max,
    }


def _with_minimum(random: Random, topic: PlannedTopic) -> PlannedTopic:
    """Some topics have a minimum of their own; the others the brokers'."""
    minimum = random.choice((None, None, "1", "2"))
    own = () if minimum is None else (("min.insync.replicas", minimum),)
    return replace(topic, configs=(*topic.configs, *own))


def _topics(random: Random) -> tuple[PlannedTopic, ...]:
    topics = []
    for kind, configs in _KINDS.items():
        own = dict(configs)
        if random.random() < 0.3:
            own.setdefault("compression.type", random.choice(("producer", "uncompressed", "gzip", "lz4", "zstd")))
        if random.random() < 0.2:
            own.setdefault("message.timestamp.type", "LogAppendTime")
        if random.random() < 0.2:
            own.setdefault("segment.ms", "2000")
        own.setdefault("internal.segment.bytes", random.choice(("1024", "4096", "65536")))
        topics.append(PlannedTopic(kind, kind, random.choice((1, 1, 2, 3)), tuple(own.items())))
    return tuple(topics)


def _actors(random: Random, topics: Sequence[PlannedTopic]) -> tuple[Actor, ...]:
    actors = []
    for number, acks in enumerate((-1, random.choice((-1, 1)), random.choice((-1, 0, 1))), 1):
        options = ProducerOptions(
            acks=acks,
            is_idempotent=acks == -1 and random.random() < 0.7,
            linger_seconds=random.choice((0.0, 0.005, 0.05)),
            batch_bytes=random.choice((300, 900)),
            codec=random.choice((0, 0, 1, 2, 3, 4)),
        )
        actors.append(Actor(f"producer-{number}", options))
    for number in (1, 2):
        wait_ms = random.choice((100, 500))
        bytes_min = 600 if number == 2 and wait_ms == 500 else 1
        reader = ReaderOptions(wait_ms, partition_bytes=random.choice((400, 1 << 20)), bytes_min=bytes_min)
        actors.append(Actor(f"reader-{number}", reader))
    assignors = random.choice((("range",), ("cooperative-sticky",), ("range", "cooperative-sticky")))
    for number in (1, 2, 3):
        member = MemberOptions(
            group="group-1",
            topics=tuple(topic.name for topic in topics if topic.kind in (PLAIN, FLUSHED)),
            assignors=assignors,
            instance_id=f"static-{number}" if random.random() < 0.2 else None,
            session_timeout_ms=random.choice((2000, 6000)),
            auto_commit_ms=random.choice((None, 500)),
        )
        actors.append(Actor(f"member-{number}", member))
    actors.append(Actor("admin", AdminOptions()))
    return tuple(actors)


def _operations(random: Random, actor: Actor, topics: Sequence[PlannedTopic]) -> list[Operation]:
    match actor.options:
        case ProducerOptions():
            return [_send(random, actor, topics) for _ in range(45)]
        case ReaderOptions():
            return [_read(random, actor, topics) for _ in range(18)]
        case MemberOptions():
            return [_member_step(random, actor) for _ in range(12)]
        case AdminOptions():
            return _admin_steps(random, actor, topics)


def _send(random: Random, actor: Actor, topics: Sequence[PlannedTopic]) -> Operation:
    topic = random.choice(topics)
    return Operation(
        actor.name,
        "send",
        {
            "topic": topic.name,
            "partition": random.randrange(topic.partitions),
            "count": random.choice((1, 1, 2, 5, 20)),
            "bytes": random.choice((10, 40, 40, 300)),
            "keys": random.choice((3, 10)) if topic.kind == COMPACTED else 0,
            "tombstones": topic.kind == COMPACTED and random.random() < 0.3,
            "waits": random.random() < 0.7,
        },
        pause=random.choice((0.0, 0.01, 0.1, 0.5, 1.0)),
    )


def _read(random: Random, actor: Actor, topics: Sequence[PlannedTopic]) -> Operation:
    if random.random() < 0.2:
        topic = random.choice(topics)
        arguments: dict[str, object] = {
            "topic": topic.name,
            "partition": random.randrange(topic.partitions),
            "to": random.choice(("start", "end", "middle")),
        }
        return Operation(actor.name, "seek", arguments, pause=0.1)
    return Operation(actor.name, "read", {"seconds": random.choice((0.2, 1.0, 2.0))}, pause=random.choice((0.0, 0.5)))


def _member_step(random: Random, actor: Actor) -> Operation:
    action = random.choice(("poll", "poll", "poll", "commit", "leave", "idle"))
    seconds = random.choice((0.5, 1.0, 3.0)) if action in ("poll", "idle") else 0.0
    return Operation(actor.name, action, {"seconds": seconds}, pause=random.choice((0.0, 0.1)))


def _admin_steps(random: Random, actor: Actor, topics: Sequence[PlannedTopic]) -> list[Operation]:
    steps: list[Operation] = []
    for number in range(1, random.choice((2, 3, 4))):
        name = f"passing-{number}"
        steps += [
            Operation(actor.name, "create_topic", {"topic": name, "partitions": random.choice((1, 2, 4))}),
            Operation(actor.name, "add_partitions", {"topic": name, "total": 5}),
            Operation(actor.name, "delete_topic", {"topic": name}),
        ]
    for _ in range(10):
        topic = random.choice(topics)
        steps.append(
            random.choice(
                (
                    Operation(actor.name, "committed", {"group": "group-1"}),
                    Operation(actor.name, "describe", {}),
                    Operation(actor.name, "list_offsets", {"topic": topic.name}),
                    Operation(
                        actor.name,
                        "set_config",
                        {"topic": EXPIRING, "name": "retention.ms", "value": random.choice(("1000", "10000"))},
                    ),
                    Operation(
                        actor.name,
                        "set_config",
                        {
                            "topic": topic.name,
                            "name": "internal.segment.bytes",
                            "value": random.choice(("1024", "8192")),
                        },
                    ),
                    Operation(actor.name, "delete_records", {"topic": EXPIRING, "partition": 0}),
                    Operation(actor.name, "add_partitions", {"topic": PLAIN, "total": random.choice((2, 3, 4))}),
                )
            )
        )
    random.shuffle(steps)
    return [replace(step, pause=random.choice((0.1, 0.5, 2.0))) for step in steps]


def _faults(random: Random, seconds: float, actors: Sequence[str], brokers: int) -> list[Fault]:
    """At least five. Disks are damaged or replaced in few histories: that excuses much."""
    has_disk_errors = random.random() < 0.4
    has_damage = random.random() < 0.1
    kinds = ["kill", "kill", "power_loss", "crash_at_disk_call", "stop", "pause", "cut", "break", "break", "slow_link"]
    kinds += ["refuse", "slow_disk", "pause_client", "kill_client", "clock_jump", "clock_drift"]
    if has_disk_errors:
        kinds += ["disk_error", "disk_error", "disk_full"]
    if has_damage:
        kinds += ["flip", "flip_indexes", "flip_indexes", "wipe"]
    if brokers > 1:
        kinds += ["stop_zookeeper", "cut_zookeeper", "cut_zookeeper", "cut_brokers", "cut_brokers"]
    faults = []
    for _ in range(random.randint(5, 9)):
        kind = random.choice(kinds)
        node = random.randrange(brokers) + 1
        arguments: dict[str, object] = {"broker": node}
        match kind:
            case "kill" | "power_loss" | "stop" | "wipe":
                arguments["off"] = random.choice((0.05, 0.5, 2.0))
            case "crash_at_disk_call":
                arguments |= {"calls": random.randrange(60), "is_power_loss": random.random() < 0.5, "off": 0.3}
            case "pause" | "slow_disk":
                arguments["seconds"] = random.choice((0.3, 2.0, 8.0))
                if kind == "slow_disk":
                    arguments["each"] = random.choice((0.001, 0.02))
            case "cut":
                arguments |= {
                    "client": random.choice(actors),
                    "way": random.choice(("both", "to", "from")),
                    "seconds": random.choice((0.5, 3.0, 20.0)),
                }
            case "break":
                arguments |= {"at_client": random.choice((None, *actors)), "after_bytes": random.randrange(1, 400)}
            case "slow_link":
                arguments |= {
                    "client": random.choice(actors),
                    "bytes_per_second": random.choice((1000.0, 20000.0)),
                    "seconds": 2.0,
                }
            case "refuse":
                arguments["seconds"] = random.choice((0.5, 3.0))
            case "pause_client" | "kill_client":
                arguments = {"client": random.choice(actors), "seconds": random.choice((1.0, 5.0))}
            case "clock_jump":
                arguments["milliseconds"] = random.choice((-3_600_000, -500, 500, 86_400_000))
            case "clock_drift":
                arguments["share"] = random.choice((-0.05, 0.05))
            case "disk_error":
                arguments |= {"after_calls": random.randrange(80), "directory": random.randrange(2), "off": 0.5}
            case "disk_full":
                arguments |= {"room": random.choice((0, 700, 3000)), "seconds": random.choice((1.0, 4.0))}
            case "stop_zookeeper":
                arguments = {"seconds": random.choice((0.5, 5.0, 30.0))}
            case "cut_zookeeper" | "cut_brokers":
                arguments |= {
                    "way": random.choice(("both", "to", "from")),
                    "seconds": random.choice((0.5, 3.0, 20.0)),
                }
                if kind == "cut_brokers":
                    arguments["other"] = (node + random.randrange(brokers - 1)) % brokers + 1
            case "flip" | "flip_indexes":
                arguments |= {"place": random.random(), "off": 0.3}
        faults.append(Fault(random.uniform(0.5, seconds), kind, arguments))
    return sorted(faults, key=lambda fault: fault.at)


def _together(random: Random, faults: Sequence[Fault], brokers: int) -> list[Fault]:
    """More faults at about the same time, of the kinds that make other brokers lead: one alone is easily survived."""
    found = []
    for _ in range(random.randint(2, 6)):
        kind = random.choice(("kill", "kill", "power_loss", "power_loss", "expire", "expire", "pause", "cut_brokers"))
        broker = random.randrange(brokers) + 1
        arguments: dict[str, object] = {"broker": broker}
        match kind:
            case "kill" | "power_loss":
                arguments["off"] = random.choice((0.05, 0.5, 2.0, 10.0))
            case "pause":
                arguments["seconds"] = random.choice((0.3, 2.0, 8.0))
            case "cut_brokers":
                arguments["other"] = (broker + random.randrange(brokers - 1)) % brokers + 1
                arguments |= {"way": random.choice(("both", "to", "from")), "seconds": random.choice((0.5, 3.0, 20.0))}
        at = random.choice(faults).at + random.choice((0.0, 0.05, 0.3, 1.0, 3.0)) * random.random()
        found.append(Fault(at, kind, arguments))
    return found
