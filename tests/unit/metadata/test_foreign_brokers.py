"""A chroot with brokers that are not Barnabas's is refused."""

from dataclasses import replace

import pytest

from barnabas.metadata.foreign_brokers import ForeignBrokers, refuse_foreign_brokers
from barnabas.metadata.identity import register_broker
from barnabas.metadata.znodes import BARNABAS, BARNABAS_VERSIONS, BROKER_IDS, BrokerRegistration, VersionRange
from tests.support.kafka_nodes import KafkaTree
from tests.support.metadata_cluster import MetadataCluster, registration, run_in_cluster


def ours(broker_id: int, versions: VersionRange = BARNABAS_VERSIONS) -> BrokerRegistration:
    return replace(registration(broker_id), features={BARNABAS: versions})


async def replace_registration(cluster: MetadataCluster, data: bytes) -> None:
    await cluster.session.set(f"{BROKER_IDS}/1", data)


def test_chroot_with_brokers_of_barnabas_is_joined() -> None:
    async def scenario(cluster: MetadataCluster) -> None:
        await replace_registration(cluster, ours(1).encode())
        await register_broker(cluster.session, ours(2, VersionRange(1, 4)))
        await refuse_foreign_brokers(cluster.session)

    run_in_cluster(scenario)


def test_chroot_without_brokers_is_joined() -> None:
    async def scenario(cluster: MetadataCluster) -> None:
        await cluster.session.delete(f"{BROKER_IDS}/1")
        await refuse_foreign_brokers(cluster.session)
        await cluster.session.delete(BROKER_IDS)
        await refuse_foreign_brokers(cluster.session)

    run_in_cluster(scenario)


def test_chroot_with_a_broker_of_kafka_is_refused() -> None:
    async def scenario(cluster: MetadataCluster) -> None:
        await replace_registration(cluster, KafkaTree.load().nodes["/brokers/ids/1"].data or b"")
        with pytest.raises(ForeignBrokers, match=r"broker 1 .* not a broker of Barnabas: .* chroot of its own"):
            await refuse_foreign_brokers(cluster.session)

    run_in_cluster(scenario)


def test_chroot_with_a_broker_of_another_age_is_refused() -> None:
    async def scenario(cluster: MetadataCluster) -> None:
        await replace_registration(cluster, ours(1, VersionRange(3, 4)).encode())
        with pytest.raises(ForeignBrokers, match="versions 3 to 4 of the feature barnabas, this one 0 to 2"):
            await refuse_foreign_brokers(cluster.session)

    run_in_cluster(scenario)


@pytest.mark.parametrize("data", [b"", b'{"version":1,"host":"h","port":9092,"jmx_port":-1,"timestamp":"5"}'])
def test_chroot_with_a_registration_that_cannot_be_read_is_refused(data: bytes) -> None:
    async def scenario(cluster: MetadataCluster) -> None:
        await replace_registration(cluster, data)
        with pytest.raises(ForeignBrokers, match="cannot be read"):
            await refuse_foreign_brokers(cluster.session)

    run_in_cluster(scenario)
