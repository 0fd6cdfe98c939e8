"""Barnabas and Apache Kafka never share a chroot: their nodes are the same, but their rules are not.

A Kafka controller would elect replicas that Barnabas knows to have lost data, and would write partition states without
our broker epochs. Every registration of a Barnabas broker therefore names the feature `barnabas`, and a broker that
finds a registration without it does not start. The check sees who is registered now: a Kafka broker that starts later
in the same chroot does not look for us.
"""

from barnabas.base.errors import BarnabasError
from barnabas.metadata.errors import CorruptNode, NoNode
from barnabas.metadata.store import MetadataStore
from barnabas.metadata.znodes_brokers import BARNABAS, BARNABAS_VERSIONS, BROKER_IDS, BrokerRegistration, VersionRange


class ForeignBrokers(BarnabasError):  # noqa: N818
    """The chroot belongs to brokers that this one cannot form a cluster with."""


async def refuse_foreign_brokers(store: MetadataStore, versions: VersionRange = BARNABAS_VERSIONS) -> None:
    """Raises `ForeignBrokers` when others than Barnabas are registered, or a Barnabas of other versions than ours."""
    try:
        names = await store.children(BROKER_IDS)
    except NoNode:
        return
    nodes = await store.get_many([f"{BROKER_IDS}/{name}" for name in names])
    for name, node in zip(names, nodes, strict=True):
        if node is not None and (problem := _problem(name, node.data, versions)):
            raise ForeignBrokers(f"broker {name} is registered in this chroot already, and {problem}")


def _problem(name: str, data: bytes, versions: VersionRange) -> str | None:
    try:
        registration = BrokerRegistration.decode(int(name), data)
    except (ValueError, CorruptNode):
        return "its registration cannot be read: give this cluster a chroot of its own in zookeeper.connect"
    theirs = registration.features.get(BARNABAS)
    if theirs is None:
        return "is not a broker of Barnabas: give this cluster a chroot of its own in zookeeper.connect"
    if not theirs.overlaps(versions):
        return (
            f"has versions {theirs.min_version} to {theirs.max_version} of the feature {BARNABAS}, this one"
            f" {versions.min_version} to {versions.max_version}: upgrade step by step"
        )
    return None
