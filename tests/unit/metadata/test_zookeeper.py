"""The store over ZooKeeper keeps the contract of every store, on a real server."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from barnabas.metadata.zookeeper.zookeeper_options import ZooKeeperOptions
from tests.support.store_contract import StoreContract
from tests.support.store_contract_sessions import InterruptionContract
from tests.support.store_scenario import Ensemble
from tests.support.zookeeper import zookeeper_ensemble


class TestZooKeeper(StoreContract, InterruptionContract):
    @pytest.fixture(autouse=True)
    def _server(self, zookeeper: ZooKeeperOptions) -> None:
        self._options = zookeeper

    @asynccontextmanager
    async def ensemble(self, directory: Path) -> AsyncIterator[Ensemble]:
        async with zookeeper_ensemble(self._options) as ensemble:
            yield ensemble
