"""Every number that a setting may have at its smallest and at its largest: a broker starts with it and serves.

What would lock everybody out, hold the loop for ever or take all memory is refused where it is set; what only does less
(a message size of zero) is somebody's choice, and can be set back.
"""

import asyncio
import time
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode

from barnabas.base.clock import ManualClock
from barnabas.base.errors import InvalidSetting
from barnabas.base.settings import Between, NegativeOrAtLeast, Setting, SettingType
from barnabas.broker.setting_table import SERVER_SETTINGS
from barnabas.broker.settings import BrokerSettings
from barnabas.metadata.image import BrokerConfigsChanged, ClusterImage, TopicConfigsChanged
from barnabas.metadata.table import MemoryTable
from barnabas.storage.compaction.throttle import Throttle
from barnabas.storage.setting_tables import TOPIC_SETTINGS
from barnabas.storage.work import InlineWorkers, Job, ThreadWorkers
from tests.support.broker_parts import ServedBroker, served_broker
from tests.support.compaction import CompactedLog, simulated
from tests.support.network import run

INT_MAX = 2**31 - 1
BITS = {SettingType.INT: 32, SettingType.SHORT: 16, SettingType.LONG: 64}
NOT_ALONE = {
    "node.id",
    "broker.id",
    "max.connections",  # at 0 nobody can connect, and an operator may want that
    "max.connections.per.ip",
    "message.max.bytes",
    "max.message.bytes",
    "internal.segment.bytes",
    "default.replication.factor",  # there are no more brokers than one
    "offsets.topic.replication.factor",
    "offsets.topic.num.partitions",  # ten thousand partitions take a while
    "num.partitions",
    "offsets.commit.timeout.ms",  # at 1 a commit that is synced comes too late
    "queued.max.request.bytes",  # depends on another one
    "group.min.session.timeout.ms",
    "group.max.session.timeout.ms",
    "log.cleaner.dedupe.buffer.size",
    "log.cleaner.threads",
    "log.cleaner.min.compaction.lag.ms",
    "min.compaction.lag.ms",
    "message.timestamp.before.max.ms",  # at 0 only the broker's own clock is right
    "message.timestamp.after.max.ms",
    "log.message.timestamp.before.max.ms",
    "log.message.timestamp.after.max.ms",
    "log.retention.ms",  # at 0 or 1 what is written is gone at once
    "log.retention.bytes",
    "retention.ms",
    "retention.bytes",
}
"""Settings whose extreme values mean something else than trouble, or need another setting beside them."""


def range_of(setting: Setting) -> tuple[float, float] | None:
    """The smallest and the largest value that is allowed."""
    if setting.type not in BITS or setting.unsupported:
        return None
    low, high = -(2 ** (BITS[setting.type] - 1)), 2 ** (BITS[setting.type] - 1) - 1
    match setting.validator:
        case Between(lowest, highest):
            return (low if lowest is None else lowest, high if highest is None else highest)
        case NegativeOrAtLeast(lowest):
            return (lowest, high)
        case _:
            return (low, high)


def extremes(is_largest: bool, settings: "list[Setting]") -> dict[str, str]:
    ranges = {setting.name: range_of(setting) for setting in settings if setting.name not in NOT_ALONE}
    return {name: str(found[is_largest]) for name, found in ranges.items() if found is not None}


async def serve_everything(broker: ServedBroker, topic_configs: dict[str, str]) -> None:
    port = broker.broker.listeners[0].port
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(bytes.fromhex("0000000a 0012 0000 00000007 ffff"))  # ApiVersions
    assert await reader.readexactly(8)
    writer.close()
    now_ms = int(time.time() * 1000)
    await broker.create("orders", **{name.replace(".", "_"): text for name, text in topic_configs.items()})
    await broker.create("accounts", cleanup_policy="compact", min_cleanable_dirty_ratio="0")
    for _ in range(3):
        broker.append("orders", [now_ms])
        broker.append("accounts", [now_ms])
    assert broker.log("orders").high_watermark == 3
    broker.log("accounts").roll()
    await broker.find_coordinator()
    assert await broker.commit(1) is ErrorCode.none
    for _ in range(3):
        broker.broker.logs.run_due_work()


@pytest.mark.parametrize("is_largest", [False, True])
def test_broker_serves_with_every_number_at_its_limit(is_largest: bool, tmp_path: Path) -> None:
    given = extremes(is_largest, list(SERVER_SETTINGS))
    assert len(given) >= 40
    texts = {"offsets.topic.replication.factor": "1", "offsets.topic.num.partitions": "1", **given}
    topic_configs = extremes(is_largest, list(TOPIC_SETTINGS))

    settings = {name.replace(".", "_"): text for name, text in texts.items()}
    table = MemoryTable()

    async def scenario() -> None:
        async with served_broker(tmp_path, table=table, **settings) as broker:
            await serve_everything(broker, topic_configs)
        async with served_broker(tmp_path, table=table, **settings) as broker:
            assert broker.log("orders").end_offset == 3

    run(scenario())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("num.recovery.threads.per.data.dir", INT_MAX),
        ("log.cleaner.threads", INT_MAX),
        ("background.threads", INT_MAX),
        ("num.partitions", INT_MAX),
        ("offsets.topic.num.partitions", INT_MAX),
        ("offsets.topic.segment.bytes", 1),
        ("socket.request.max.bytes", 1),
        ("connections.max.idle.ms", 0),
        ("log.index.size.max.bytes", 4),
        ("group.initial.rebalance.delay.ms", -1),
    ],
)
def test_number_that_would_make_a_broker_useless_is_refused_with_the_range(name: str, value: int) -> None:
    with pytest.raises(InvalidSetting, match=rf"{name}={value} is not allowed; it must be a whole number, .*\d"):
        BrokerSettings({name: str(value)})


@pytest.mark.parametrize(
    ("texts", "reason"),
    [
        ({"queued.max.request.bytes": "1000"}, "must not be less than socket.request.max.bytes"),
        ({"max.connections.per.ip": "0"}, "would shut out everybody"),
        ({"max.connections.per.ip": "0", "max.connections.per.ip.overrides": "10.0.0.1:0"}, "would shut out everybody"),
        ({"group.min.session.timeout.ms": "1800001"}, "must not be more than group.max.session.timeout.ms"),
    ],
)
def test_numbers_that_do_not_go_together_are_refused(texts: dict[str, str], reason: str) -> None:
    with pytest.raises(InvalidSetting, match=reason):
        BrokerSettings(texts)


def test_stored_number_from_before_it_was_refused_is_left_out() -> None:
    settings = BrokerSettings({})
    image = ClusterImage().apply([BrokerConfigsChanged(None, {"num.recovery.threads.per.data.dir": str(INT_MAX)})])
    assert settings.current_log_manager_config(image, 1).num_recovery_threads_per_data_dir == 2


def test_stored_settings_that_do_not_go_together_are_left_out() -> None:
    settings = BrokerSettings({"max.connections": "7"})
    image = ClusterImage().apply([BrokerConfigsChanged(1, {"max.connections.per.ip": "0"})])
    assert settings.current_config(image, 1).max_connections_per_ip == INT_MAX
    buffer = {"log.cleaner.dedupe.buffer.size": "1048576", "log.cleaner.threads": "2"}
    image = ClusterImage().apply([BrokerConfigsChanged(1, buffer)])
    assert settings.current_log_manager_config(image, 1).log_cleaner_threads == 1


def test_topic_with_one_setting_that_cannot_be_used_keeps_the_others() -> None:
    """Its defaults would delete what a compacted topic holds."""
    settings = BrokerSettings({})
    configs = {"cleanup.policy": "compact", "segment.index.bytes": "4", "retention.ms": "77"}
    config = settings.log_config(ClusterImage().apply([TopicConfigsChanged("orders", configs)]), 1, "orders")
    assert config.is_compacted
    assert not config.is_deleted
    assert (config.retention_ms, config.segment_index_bytes) == (77, 10 << 20)


def test_compaction_leaves_half_of_the_threads_to_other_work() -> None:
    texts = {"background.threads": "6", "log.cleaner.threads": "100", "log.cleaner.dedupe.buffer.size": str(200 << 20)}
    assert BrokerSettings(texts).log_manager_config.log_cleaner_threads == 3


def test_workers_with_more_threads_than_jobs_end_with_the_jobs() -> None:
    done: list[int] = []
    for workers in (ThreadWorkers(), InlineWorkers()):
        jobs = [Job(f"{one}", run=lambda one=one: one, finish=done.append, failed=print) for one in range(5)]  # type: ignore[misc]
        workers.run([jobs], 2**31 - 1)
    assert sorted(done) == sorted([*range(5), *range(5)])


def test_throttle_that_was_set_too_low_by_mistake_lets_sleepers_go() -> None:
    class HurriedClock(ManualClock):
        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            naps.append(seconds)
            if len(naps) == 3:
                throttle.limit(1e9)
            assert len(naps) < 10

    naps: list[float] = []
    throttle = Throttle(HurriedClock(), 5e-324)
    throttle.take(1000, lambda: False)
    assert sum(naps) < 1


def test_tombstone_is_kept_however_long_it_is_to_be() -> None:
    accounts = CompactedLog(simulated())
    accounts.configure(delete_retention_ms=2**63 - 1)
    accounts.append((b"a", b"1"))
    accounts.append((b"a", None))
    accounts.roll()
    accounts.append((b"b", b"2"))
    accounts.roll()
    accounts.compact()
    assert [(record.key, record.value) for record in accounts.records()] == [(b"a", None), (b"b", b"2")]
    accounts.append((b"b", b"3"))
    accounts.roll()
    accounts.compact()
    assert (b"a", None) in [(record.key, record.value) for record in accounts.records()]
