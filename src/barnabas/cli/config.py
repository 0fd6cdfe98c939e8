"""`barnabas config`: reads and changes the settings of topics and brokers while they run."""

from typing import TYPE_CHECKING, Annotated

import typer

from barnabas.cli import completion
from barnabas.cli.remote import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, CommandFailed, parse_assignments, with_cluster

if TYPE_CHECKING:
    from barnabas.client.cluster import Cluster
    from barnabas.client.configs import ConfigEntry, Resource

app = typer.Typer(help="Read and change the settings of topics and brokers.", rich_markup_mode=None)

TopicOption = Annotated[
    str | None,
    typer.Option(
        "--topic",
        "-t",
        metavar="TOPIC",
        help="Of this topic.",
        show_default=False,
        autocompletion=completion.topics,
    ),
]
BrokerOption = Annotated[
    int | None, typer.Option("--broker", metavar="ID", help="Of the broker with this id.", show_default=False)
]
AllBrokersOption = Annotated[
    bool, typer.Option("--all-brokers", help="Of all brokers: what is set dynamically for the whole cluster.")
]


@app.command()
def get(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME...", help="Only these settings.", autocompletion=completion.settings),
    ] = None,
    topic: TopicOption = None,
    broker: BrokerOption = None,
    all_brokers: AllBrokersOption = False,
    everything: Annotated[bool, typer.Option("--all", help="Show also what has its default.")] = False,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Show settings of a topic or a broker.

    Those that are named, else those that somebody chose, or --all.

    Example: barnabas config get --topic orders retention.ms
    """
    from barnabas.cli.output import remark, say_json, say_table
    from barnabas.client.configs import describe_configs

    async def work(cluster: "Cluster") -> "list[ConfigEntry]":
        return await describe_configs(cluster, _resource(topic, broker, all_brokers), names or None)

    entries = with_cluster(bootstrap, work)
    missing = set(names or ()) - {entry.name for entry in entries}
    if missing:
        raise CommandFailed(
            f"no such setting: {', '.join(sorted(missing))}; 'barnabas config get --all' shows them all"
        )
    shown = [entry for entry in entries if names or everything or entry.is_set]
    if as_json:
        for entry in shown:
            say_json(
                {
                    "name": entry.name,
                    "value": entry.value,
                    "source": entry.source.name.lower(),
                    "read_only": entry.is_read_only,
                    "sensitive": entry.is_sensitive,
                }
            )
    elif shown:
        say_table(("name", "value", "source"), [_row(entry) for entry in shown])
    else:
        remark("everything has its default; --all shows it")


@app.command("set")
def set_values(
    assignments: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME=VALUE...", help="What to set.", show_default=False, autocompletion=completion.assignments
        ),
    ],
    topic: TopicOption = None,
    broker: BrokerOption = None,
    all_brokers: AllBrokersOption = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only let the broker check it.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Change settings; those that are not named stay as they are.

    Example: barnabas config set --topic orders retention.ms=86400000
    """
    from barnabas.cli.output import plural, say
    from barnabas.client.configs import alter_configs

    values = parse_assignments(assignments, "config set")

    async def work(cluster: "Cluster") -> None:
        resource = _resource(topic, broker, all_brokers)
        await alter_configs(cluster, resource, set_values=values, validate_only=dry_run)

    with_cluster(bootstrap, work)
    resource = _resource(topic, broker, all_brokers)
    say(f"{plural(len(values), 'setting')} of {resource} {'could be set' if dry_run else 'set'}")


@app.command()
def unset(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME...", help="What to unset.", show_default=False, autocompletion=completion.settings
        ),
    ],
    topic: TopicOption = None,
    broker: BrokerOption = None,
    all_brokers: AllBrokersOption = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Give settings their defaults again.

    Example: barnabas config unset --topic orders retention.ms
    """
    from barnabas.cli.output import plural, say
    from barnabas.client.configs import alter_configs

    async def work(cluster: "Cluster") -> None:
        await alter_configs(cluster, _resource(topic, broker, all_brokers), unset_names=names)

    with_cluster(bootstrap, work)
    resource = _resource(topic, broker, all_brokers)
    say(f"{plural(len(names), 'setting')} of {resource} unset")


def _resource(topic: str | None, broker: int | None, all_brokers: bool) -> "Resource":
    from barnabas.client.configs import Resource, ResourceType

    if (topic is not None) + (broker is not None) + all_brokers != 1:
        raise CommandFailed("whose settings? Give one of --topic TOPIC, --broker ID and --all-brokers")
    if topic is not None:
        return Resource(ResourceType.TOPIC, topic)
    return Resource(ResourceType.BROKER, "" if broker is None else str(broker))


def _row(entry: "ConfigEntry") -> tuple[str, str, str]:
    value = "(hidden)" if entry.is_sensitive else "null" if entry.value is None else entry.value
    return entry.name, value, entry.source.name.lower().replace("_", " ")
