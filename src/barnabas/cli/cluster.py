"""`barnabas cluster`: shows the brokers of a cluster."""

from typing import TYPE_CHECKING, Any

import typer

from barnabas.cli.remote import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, with_cluster

if TYPE_CHECKING:
    from barnabas.client.cluster import Cluster

app = typer.Typer(help="Show the cluster.", rich_markup_mode=None)


@app.callback()
def cluster_commands() -> None:
    """Show the cluster."""


@app.command()
def describe(as_json: AsJson = False, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP) -> None:
    """Show the brokers, the partitions they lead, and their disks."""
    from barnabas.cli.output import human_bytes, plural, say, say_json, say_table

    described = with_cluster(bootstrap, _describe)
    if as_json:
        say_json(described)
        return
    say(f"cluster {described['cluster_id']}, {plural(described['topics'], 'topic')}")
    rows = []
    for broker in described["brokers"]:
        role = "controller" if broker["id"] == described["controller_id"] else ""
        sizes = (
            human_bytes(broker["log_bytes"]),
            human_bytes(broker["free_bytes"]) if broker["free_bytes"] >= 0 else "?",
        )
        counts = (str(broker["leads"]), str(broker["replicas"]))
        rows.append((str(broker["id"]), broker["address"], broker["rack"] or "", role, *counts, *sizes))
    say_table(("broker#", "address", "rack", "role", "leads#", "replicas#", "log size#", "disk free#"), rows)


async def _describe(cluster: "Cluster") -> dict[str, Any]:
    from barnabas.base.addresses import address_text
    from barnabas.client.admin import Admin

    admin = Admin(cluster)
    description = await admin.describe_cluster()
    topics = await admin.topics()
    directories = await admin.log_directories()
    brokers = []
    for broker in description.brokers:
        own = [directory for directory in directories if directory.node_id == broker.node_id]
        partitions = [partition for topic in topics for partition in topic.partitions]
        brokers.append(
            {
                "id": broker.node_id,
                "address": address_text(broker.host, broker.port),
                "rack": broker.rack,
                "leads": sum(partition.leader_id == broker.node_id for partition in partitions),
                "replicas": sum(broker.node_id in partition.replicas for partition in partitions),
                "log_bytes": sum(sum(directory.partition_bytes.values()) for directory in own),
                "free_bytes": min((directory.usable_bytes for directory in own), default=-1),
                "directories": [directory.path for directory in own],
            }
        )
    return {
        "cluster_id": description.cluster_id,
        "controller_id": description.controller_id,
        "topics": len(topics),
        "brokers": brokers,
    }
