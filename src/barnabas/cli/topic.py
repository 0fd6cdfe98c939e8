"""`barnabas topic`: creates, shows, changes and deletes topics; `delete-records` is in a module of its own."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from barnabas.cli import completion
from barnabas.cli.records.topic_records import Topic, delete_records
from barnabas.cli.remote import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, CommandFailed, parse_assignments, with_cluster

if TYPE_CHECKING:
    from barnabas.base.ids import TopicPartition
    from barnabas.client.cluster import Cluster
    from barnabas.client.configs import ConfigEntry
    from barnabas.client.metadata import TopicMetadata

app = typer.Typer(help="Create, show, change and delete topics.", rich_markup_mode=None)

NewNames = Annotated[list[str], typer.Argument(metavar="TOPIC...", help="One or more topics.", show_default=False)]
Names = Annotated[
    list[str],
    typer.Argument(
        metavar="TOPIC...", help="One or more topics.", show_default=False, autocompletion=completion.topics
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="A setting of the topic; may be repeated.",
        show_default=False,
        autocompletion=completion.topic_assignments,
    ),
]


@app.command()
def create(
    names: NewNames,
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions",
            "-p",
            metavar="COUNT",
            help="How many partitions. [default: the broker's num.partitions]",
            min=1,
        ),
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option(
            "--replication-factor",
            "-r",
            metavar="COUNT",
            help="How many replicas each partition has. [default: the broker's default.replication.factor]",
            min=1,
        ),
    ] = None,
    settings: SetOption = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Do not fail if a topic exists; leave it as it is.")
    ] = False,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Create topics.

    Example: barnabas topic create orders -p 3 --set cleanup.policy=compact
    """
    from barnabas.base.uuid import uuid_text
    from barnabas.cli.output import plural, remark, say, say_json
    from barnabas.client.admin import BROKER_DEFAULT, Admin
    from barnabas.wire.errors import ErrorCode, KafkaError

    configs = parse_assignments(settings or [], "--set")

    async def work(cluster: "Cluster") -> None:
        for name in names:
            try:
                created = await Admin(cluster).create_topic(
                    name,
                    partitions=partitions or BROKER_DEFAULT,
                    replication_factor=replication_factor or BROKER_DEFAULT,
                    configs=configs,
                )
            except KafkaError as error:
                if not (if_not_exists and error.code is ErrorCode.TOPIC_ALREADY_EXISTS):
                    raise
                if not as_json:
                    say(f"topic '{name}' exists already")
                continue
            for warning in _warnings(created.replication_factor, created.settings, len(cluster.view.brokers)):
                remark(f"topic '{name}': {warning}")
            if as_json:
                say_json(
                    {
                        "topic": name,
                        "id": uuid_text(created.topic_id),
                        "partitions": created.partitions,
                        "replication_factor": created.replication_factor,
                    }
                )
            else:
                say(f"created topic '{name}' with {plural(created.partitions, 'partition')}")

    with_cluster(bootstrap, work)


@app.command("list")
def list_topics(
    internal: Annotated[bool, typer.Option("--internal", help="Also show internal topics.")] = False,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Show the topics, with their partitions and replicas."""
    from barnabas.base.uuid import uuid_text
    from barnabas.cli.output import remark, say_json, say_table
    from barnabas.client.admin import Admin

    async def work(cluster: "Cluster") -> "list[TopicMetadata]":
        return [topic for topic in await Admin(cluster).topics() if internal or not topic.is_internal]

    topics = with_cluster(bootstrap, work)
    if as_json:
        for topic in topics:
            say_json(
                {
                    "topic": topic.name,
                    "id": uuid_text(topic.topic_id),
                    "internal": topic.is_internal,
                    "partitions": len(topic.partitions),
                    "replication_factor": _replication_factor(topic),
                }
            )
    elif topics:
        rows = [(topic.name, str(len(topic.partitions)), str(_replication_factor(topic))) for topic in topics]
        say_table(("topic", "partitions#", "replicas#"), rows)
    else:
        remark("there are no topics; create one with 'barnabas topic create NAME'")


@app.command()
def describe(names: Names, as_json: AsJson = False, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP) -> None:
    """Show partitions, replicas, offsets, sizes and settings.

    Unsafe settings are warned about. Only settings that were set explicitly are shown; 'barnabas config get --all'
    shows the others.
    """
    from barnabas.cli.output import say_json

    async def work(cluster: "Cluster") -> "list[dict[str, Any]]":
        return [await _describe(cluster, name) for name in names]

    for described in with_cluster(bootstrap, work):
        if as_json:
            say_json(described)
        else:
            _say_described(described)


async def _describe(cluster: "Cluster", name: str) -> dict[str, Any]:
    from barnabas.base.ids import TopicPartition
    from barnabas.base.uuid import uuid_text
    from barnabas.client.admin import Admin
    from barnabas.client.configs import MIN_INSYNC_REPLICAS, Resource, ResourceType, describe_configs
    from barnabas.client.offsets import end_offsets, start_offsets

    admin = Admin(cluster)
    topic = await admin.topic(name)
    led = [
        TopicPartition(name, partition.index)
        for partition in topic.partitions
        if partition.leader_id in cluster.view.brokers
    ]
    starts, ends = await start_offsets(cluster, led), await end_offsets(cluster, led)
    sizes: dict[TopicPartition, int] = {}
    for directory in await admin.log_directories():
        for partition, size_bytes in directory.partition_bytes.items():
            sizes[partition] = max(size_bytes, sizes.get(partition, 0))
    configs = await describe_configs(cluster, Resource(ResourceType.TOPIC, name))
    texts = {entry.name: entry.value for entry in configs}
    return {
        "topic": name,
        "id": uuid_text(topic.topic_id),
        "internal": topic.is_internal,
        "min_in_sync": int(texts.get(MIN_INSYNC_REPLICAS) or 1),
        "settings": {entry.name: entry.value for entry in configs if _is_chosen(entry)},
        "partitions": _partition_fields(topic, starts, ends, sizes, await admin.eligible_leaders(name)),
        "warnings": _warnings(_replication_factor(topic), texts, len(cluster.view.brokers)),
    }


def _partition_fields(
    topic: "TopicMetadata",
    starts: "Mapping[TopicPartition, int]",
    ends: "Mapping[TopicPartition, int]",
    sizes: "Mapping[TopicPartition, int]",
    eligible: Mapping[int, Sequence[int]],
) -> list[dict[str, Any]]:
    from barnabas.base.ids import TopicPartition

    described = []
    for partition in topic.partitions:
        place = TopicPartition(topic.name, partition.index)
        described.append(
            {
                "partition": partition.index,
                "leader": partition.leader_id if place in ends else None,
                "replicas": list(partition.replicas),
                "in_sync": list(partition.in_sync_replicas),
                "eligible": list(eligible.get(partition.index, ())),
                "start_offset": starts.get(place),
                "end_offset": ends.get(place),
                "size_bytes": sizes.get(place),
            }
        )
    return described


def _say_described(described: Mapping[str, Any]) -> None:
    from barnabas.cli.output import human_bytes, remark, say, say_table

    say(f"topic {described['topic']}, id {described['id']}, minimum in sync {described['min_in_sync']}")
    for name, value in described["settings"].items():
        say(f"  {name}={value}")
    has_eligible = any(partition["eligible"] for partition in described["partitions"])
    rows = [
        (
            str(partition["partition"]),
            _or_none(partition["leader"]),
            _joined(partition["replicas"]),
            _joined(partition["in_sync"]),
            *([_joined(partition["eligible"])] if has_eligible else []),
            _or_none(partition["start_offset"]),
            _or_none(partition["end_offset"]),
            "none" if partition["size_bytes"] is None else human_bytes(partition["size_bytes"]),
        )
        for partition in described["partitions"]
    ]
    eligible = ["eligible"] if has_eligible else []
    say_table(("partition#", "leader#", "replicas", "in sync", *eligible, "start#", "end#", "size#"), rows)
    for warning in described["warnings"]:
        remark(f"topic '{described['topic']}': {warning}")


@app.command()
def alter(
    name: Topic,
    partitions: Annotated[
        int | None,
        typer.Option("--partitions", "-p", metavar="COUNT", help="Raise the number of partitions to this.", min=1),
    ] = None,
    settings: SetOption = None,
    unset: Annotated[
        list[str] | None,
        typer.Option(
            "--unset",
            metavar="NAME",
            help="Reset a setting to its default; may be repeated.",
            autocompletion=completion.topic_settings,
        ),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Change the partitions or settings of a topic. Everything else stays as it is.

    With more partitions, records with a key may go to other partitions than before.

    Examples:

      barnabas topic alter orders --partitions 6

      barnabas topic alter orders --set retention.ms=86400000
    """
    from barnabas.cli.output import say
    from barnabas.client.admin import Admin
    from barnabas.client.configs import Resource, ResourceType, alter_configs

    configs = parse_assignments(settings or [], "--set")
    if partitions is None and not configs and not unset:
        raise CommandFailed("nothing to change; give --partitions, --set or --unset")

    async def work(cluster: "Cluster") -> None:
        if partitions is not None:
            await Admin(cluster).create_partitions(name, partitions)
        if configs or unset:
            resource = Resource(ResourceType.TOPIC, name)
            await alter_configs(cluster, resource, set_values=configs, unset_names=unset or ())

    with_cluster(bootstrap, work)
    say(f"changed topic '{name}'")


@app.command()
def delete(
    names: Names,
    if_exists: Annotated[bool, typer.Option("--if-exists", help="Do not fail if a topic does not exist.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Delete topics with everything in them. On a terminal, asks for confirmation first."""
    from barnabas.cli.output import confirm, say
    from barnabas.client.admin import Admin
    from barnabas.client.errors import UnknownTopic

    if not yes:
        confirm(
            f"Delete {', '.join(names)} and everything in {'it' if len(names) == 1 else 'them'}?", "nothing deleted"
        )

    async def work(cluster: "Cluster") -> None:
        for name in names:
            try:
                await Admin(cluster).delete_topic(name)
            except UnknownTopic:
                if not if_exists:
                    raise
            else:
                say(f"deleted topic '{name}'")

    with_cluster(bootstrap, work)


app.command("delete-records")(delete_records)


def _replication_factor(topic: "TopicMetadata") -> int:
    return max((len(partition.replicas) for partition in topic.partitions), default=0)


def _warnings(replicas: int, settings: Mapping[str, str | None], brokers: int) -> list[str]:
    """What is unsafe about a topic, as far as its settings are known."""
    from barnabas.client.configs import MIN_INSYNC_REPLICAS, UNCLEAN_ELECTION
    from barnabas.storage.settings import replication_warnings

    minimum = settings.get(MIN_INSYNC_REPLICAS)
    if minimum is None:
        return []
    is_unclean = settings.get(UNCLEAN_ELECTION) == "true"
    return replication_warnings(replicas, int(minimum), is_unclean=is_unclean, brokers=brokers)


def _is_chosen(entry: "ConfigEntry") -> bool:
    from barnabas.client.configs import ConfigSource

    return entry.source is ConfigSource.TOPIC


def _joined(node_ids: Sequence[int]) -> str:
    return ",".join(map(str, node_ids))


def _or_none(number: int | None) -> str:
    return "none" if number is None else str(number)
