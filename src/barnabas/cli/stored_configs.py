"""Reads and reverts settings that were changed at run time, in the data directory of a broker that is not running.

The way back when a setting locks everybody out: it needs no broker. The metadata file is opened under its own lock, so
that a running broker is never disturbed.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

from barnabas.base.clock import SystemClock
from barnabas.base.errors import DirectoryLocked
from barnabas.base.filesystem import LocalFileSystem
from barnabas.cli.remote import CommandFailed
from barnabas.client.configs import Resource, ResourceType
from barnabas.controller.configs import update_broker_configs, update_topic_configs
from barnabas.controller.controllership import claim_controller
from barnabas.controller.watcher import MetadataWatcher
from barnabas.metadata.embedded import EmbeddedMetadata
from barnabas.metadata.store import MetadataStore
from barnabas.metadata.table import FILE_NAME

StoredConfigs: TypeAlias = dict[Resource, Mapping[str, str]]

_NO_BROKER: Final = 0
"""The broker id of our claim: no broker has the file open, so it cannot be mistaken for a real one."""

_Result = TypeVar("_Result")


def stored_configs(directory: Path) -> StoredConfigs:
    """What was changed at run time, of all brokers, single ones, and topics."""
    return _with_store(directory, _read)


def unset_stored(
    directory: Path, is_meant: Callable[[Resource], bool], names: Sequence[str]
) -> list[tuple[Resource, str]]:
    """Removes these settings from the resources that match; returns those that were set."""

    async def unset(store: MetadataStore) -> list[tuple[Resource, str]]:
        configs = await _read(store)
        found = [(one, name) for one in configs if is_meant(one) for name in names if name in configs[one]]
        controllership = await claim_controller(store, _NO_BROKER, SystemClock().now_ms())
        assert controllership is not None, "nobody else has the file"

        def without_names(before: Mapping[str, str]) -> Mapping[str, str]:
            return {name: text for name, text in before.items() if name not in names}

        for one in dict.fromkeys(resource for resource, _ in found):
            if one.kind is ResourceType.TOPIC:
                await update_topic_configs(controllership, one.name, without_names)
            else:
                await update_broker_configs(controllership, int(one.name) if one.name else None, without_names)
        return found

    return _with_store(directory, unset)


async def _read(store: MetadataStore) -> StoredConfigs:
    image = await MetadataWatcher(store).load()
    found: StoredConfigs = {}
    for broker in sorted(image.broker_configs, key=lambda owner: -1 if owner is None else owner):
        resource = Resource(ResourceType.BROKER, "" if broker is None else str(broker))
        found[resource] = image.configs_of_broker(broker)
    for topic in sorted(image.topics):
        found[Resource(ResourceType.TOPIC, topic)] = image.configs_of_topic(topic)
    return found


def _with_store(directory: Path, work: Callable[[MetadataStore], Coroutine[Any, Any, _Result]]) -> _Result:
    if not (directory / FILE_NAME).exists():
        raise CommandFailed(
            f"{directory} has no {FILE_NAME}: give the data directory of a broker, the first one if it has several"
        )

    async def run() -> _Result:
        async with _opened(directory) as store:
            return await work(store)

    return asyncio.run(run())


@asynccontextmanager
async def _opened(directory: Path) -> AsyncIterator[MetadataStore]:
    try:
        metadata = await EmbeddedMetadata.open(str(directory), LocalFileSystem(), SystemClock())
    except DirectoryLocked as error:
        raise CommandFailed(
            f"a broker runs in {directory}: stop it first, or leave --data-dir out to ask the broker itself"
        ) from error
    async with metadata:
        yield metadata.session()
