"""`barnabas config`: reads and changes the settings of topics and brokers while they run.

With `--data-dir`, `get` and `unset` work on what is stored of a broker that does not run (`stored_configs`): the way
back from a setting that keeps everybody out.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
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
        help="The topic.",
        show_default=False,
        autocompletion=completion.topics,
    ),
]
BrokerOption = Annotated[
    int | None, typer.Option("--broker", metavar="ID", help="The broker with this id.", show_default=False)
]
AllBrokersOption = Annotated[
    bool, typer.Option("--all-brokers", help="All brokers: the dynamic defaults of the whole cluster.")
]
DataDirOption = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Data directory of a stopped broker: use the changes that are stored there.",
        show_default=False,
    ),
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
    everything: Annotated[bool, typer.Option("--all", help="Also show settings that have their default.")] = False,
    as_json: AsJson = False,
    data_dir: DataDirOption = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Show settings of a topic or a broker.

    Without names, only settings that were set explicitly, or all with --all.

    Example: barnabas config get --topic orders retention.ms
    """
    from barnabas.cli.output import remark, say_json, say_table
    from barnabas.client.configs import describe_configs

    if data_dir is not None:
        _show_stored(data_dir, _chooser(topic, broker, all_brokers), names or (), as_json)
        return

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
        remark("every setting has its default; --all shows them")


@app.command("set")
def set_values(
    assignments: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME=VALUE...",
            help="Settings and their values.",
            show_default=False,
            autocompletion=completion.assignments,
        ),
    ],
    topic: TopicOption = None,
    broker: BrokerOption = None,
    all_brokers: AllBrokersOption = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only let the broker check the change.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Change settings; all others stay as they are.

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
            metavar="NAME...", help="Settings to unset.", show_default=False, autocompletion=completion.settings
        ),
    ],
    topic: TopicOption = None,
    broker: BrokerOption = None,
    all_brokers: AllBrokersOption = False,
    data_dir: DataDirOption = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Reset settings to their defaults.

    If a setting keeps everybody out, stop the broker and use --data-dir.

    Example: barnabas config unset --topic orders retention.ms
    """
    from barnabas.cli.output import plural, say
    from barnabas.client.configs import alter_configs

    if data_dir is not None:
        from barnabas.cli.stored_configs import unset_stored

        found = unset_stored(data_dir, _chooser(topic, broker, all_brokers), names)
        for stored_resource, name in found:
            say(f"{name} of {stored_resource} unset")
        missing = [name for name in names if name not in {one for _, one in found}]
        if missing:
            raise CommandFailed(
                f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not set there; see 'barnabas config get"
                " --data-dir'"
            )
        return

    async def work(cluster: "Cluster") -> None:
        await alter_configs(cluster, _resource(topic, broker, all_brokers), unset_names=names)

    with_cluster(bootstrap, work)
    resource = _resource(topic, broker, all_brokers)
    say(f"{plural(len(names), 'setting')} of {resource} unset")


def _chooser(topic: str | None, broker: int | None, all_brokers: bool) -> "Callable[[Resource], bool]":
    """Whose stored settings are meant: without an option those of every broker, own and shared ones."""
    from barnabas.client.configs import ResourceType

    if topic is None and broker is None and not all_brokers:
        return lambda resource: resource.kind is ResourceType.BROKER
    wanted = _resource(topic, broker, all_brokers)
    return lambda resource: resource == wanted


def _show_stored(data_dir: Path, is_meant: "Callable[[Resource], bool]", names: Sequence[str], as_json: bool) -> None:
    from barnabas.cli.output import remark, say_json, say_table
    from barnabas.cli.stored_configs import stored_configs

    rows = [
        (name, value, str(resource))
        for resource, configs in stored_configs(data_dir).items()
        if is_meant(resource)
        for name, value in sorted(configs.items())
        if not names or name in names
    ]
    if as_json:
        for name, value, owner in rows:
            say_json({"name": name, "value": value, "of": owner})
    elif rows:
        say_table(("name", "value", "of"), rows)
    else:
        remark("nothing was changed while the broker ran")


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
