"""`barnabas cluster rebuild`: the topics of a cluster whose ZooKeeper has lost them, from its brokers' logs."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from barnabas.cli.broker import broker_arguments as arguments
from barnabas.cli.remote import AsJson, CommandFailed, parse_assignments

if TYPE_CHECKING:
    from uuid import UUID

    from barnabas.broker.cluster_rebuilding import BrokerDirectories, ClusterRebuilding, SurveyedBrokers
    from barnabas.metadata.cluster_rebuild import ClusterRebuild, TopicChange
    from barnabas.metadata.zookeeper.zookeeper_options import ZooKeeperOptions


def rebuild(
    config: arguments.ConfigFile = None,
    settings: arguments.Assignments = None,
    zookeeper: arguments.ZooKeeper = None,
    data_dir: arguments.DataDirectory = None,
    topic_ids: Annotated[
        list[str] | None,
        typer.Option("--topic-id", metavar="NAME=ID", help="Which id is right, for a topic with several; repeatable."),
    ] = None,
    allow_missing: Annotated[
        bool, typer.Option("--allow-missing", help="Create partitions that are not found as empty ones.")
    ] = False,
    replace_cluster_id: Annotated[
        bool, typer.Option("--replace-cluster-id", help="Also if ZooKeeper is that of another cluster without topics.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be written, and change nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    as_json: AsJson = False,
) -> None:
    """Restore topics that ZooKeeper has lost, from the brokers' logs.

    Recovers the cluster id and the topics, with their ids, partitions and leader epochs, but no settings. Stop all
    brokers first. Give the options that the broker was started with, on each machine in turn; with the --data-dir of
    'barnabas up --brokers' all its brokers are taken at once, and its ZooKeeper is started. What ZooKeeper still has
    stays, no log is touched, and running it again does no harm.

    Example: barnabas cluster rebuild --config server.properties
    """
    import random

    from barnabas.base.clock import SystemClock
    from barnabas.base.filesystem import LocalFileSystem
    from barnabas.broker.cluster_rebuilding import ClusterRebuilding, survey_brokers
    from barnabas.broker.rebuilding import locked_directories
    from barnabas.cli.output import confirm, say, say_json
    from barnabas.metadata.cluster_rebuild import RebuildOptions

    files, given = LocalFileSystem(), parse_assignments(settings or [], "--set")
    chosen = _parse_ids(topic_ids or [])
    with _brokers_of(config, given, zookeeper, data_dir) as place:
        directories = [path for broker in place.brokers for path in broker.log_dirs]
        with locked_directories(files, directories):
            surveyed = survey_brokers(files, place.brokers)
            options = RebuildOptions(
                chosen, allow_missing=allow_missing, reserved_broker_id_max=place.reserved_broker_id_max
            )
            rebuilding = ClusterRebuilding(
                surveyed, options, SystemClock(), random.Random(), replaces_id=replace_cluster_id
            )
            plan = _run(rebuilding, place.zookeeper, is_written=False)
            if not as_json:
                _say_plan(surveyed, plan)
            is_due = plan.sets_cluster_id or any(True for _ in plan.operations)
            if is_due and not dry_run:
                if not (yes or as_json):
                    confirm("Write this into ZooKeeper?", "nothing was written")
                plan = _run(rebuilding, place.zookeeper, is_written=True)
    if as_json:
        say_json(_fields(surveyed, plan, is_written=is_due and not dry_run))
    elif is_due:
        say(f"{'would write' if dry_run else 'wrote'} cluster {surveyed.cluster_id} into {place.zookeeper.hosts}")
    else:
        say("ZooKeeper has all of it: nothing to write")


class _Place(NamedTuple):
    """Whose directories, and into which ZooKeeper."""

    brokers: "list[BrokerDirectories]"
    zookeeper: "ZooKeeperOptions"
    reserved_broker_id_max: int


@contextmanager
def _brokers_of(
    config: Path | None, given: Mapping[str, str], zookeeper: str | None, data_dir: Path | None
) -> Iterator[_Place]:
    from barnabas.broker.cluster_rebuilding import BrokerDirectories
    from barnabas.broker.settings import BrokerSettings
    from barnabas.cli.broker.given_settings import make_settings
    from barnabas.cli.local_cluster.cluster_directory import brokers_in, common_texts, log_directory_of
    from barnabas.cli.local_cluster.cluster_up import cluster_zookeeper

    directory = (data_dir or Path(arguments.DATA_DIRECTORY)).absolute()
    numbers = brokers_in(directory) if config is None or data_dir is not None else []
    if not numbers:
        made = make_settings(None, data_dir, given, config, zookeeper=zookeeper, defaults={})
        options = made.config.zookeeper_options()
        if options is None:
            raise CommandFailed(
                f"{directory} is not one of 'barnabas up --brokers': give the options of the broker, with its "
                "zookeeper.connect in --config, or by --zookeeper"
                if config is None
                else "the broker is not one of a cluster: give zookeeper.connect, in --config or by --zookeeper"
            )
        broker = BrokerDirectories(made.log_manager_config.log_dirs, made.config.node_id)
        yield _Place([broker], options, made.config.reserved_broker_max_id)
        return
    logs = {number: log_directory_of(directory, number) for number in numbers}
    brokers = [BrokerDirectories([str(path)], number) for number, path in logs.items() if _was_used(path)]
    if not brokers:
        raise CommandFailed(f"no broker in {directory} has data yet; 'barnabas up --brokers' starts them")
    common = common_texts(given, config, zookeeper, brokers=len(numbers))
    with cluster_zookeeper(directory, common) as (_, texts):
        made = BrokerSettings(texts)
        options = made.config.zookeeper_options()
        assert options is not None, "the settings name a ZooKeeper"
        yield _Place(brokers, options, made.config.reserved_broker_max_id)


def _was_used(log_directory: Path) -> bool:
    """Whether the broker has ever become ready, or left anything else."""
    return log_directory.is_dir() and any(path.name != ".lock" for path in log_directory.iterdir())


def _run(rebuilding: "ClusterRebuilding", options: "ZooKeeperOptions", *, is_written: bool) -> "ClusterRebuild":
    import asyncio

    from barnabas.broker.metadata_source import ZooKeeperSource
    from barnabas.metadata.errors import SessionLost

    async def run() -> "ClusterRebuild":
        store = await ZooKeeperSource(options).session()
        try:
            return await (rebuilding.write(store) if is_written else rebuilding.plan(store))
        except SessionLost as error:
            raise CommandFailed(f"{error}; run the same command again, and it goes on") from error
        finally:
            await store.close()

    return asyncio.run(run())


def _parse_ids(assignments: list[str]) -> "dict[str, UUID]":
    from barnabas.base.uuid import parse_uuid

    ids = {}
    for name, text in parse_assignments(assignments, "--topic-id").items():
        try:
            ids[name] = parse_uuid(text)
        except ValueError as error:
            raise CommandFailed(f"--topic-id {name}: {error}") from None
    return ids


def _say_plan(brokers: "SurveyedBrokers", plan: "ClusterRebuild") -> None:
    from barnabas.base.uuid import uuid_text
    from barnabas.base.wording import first_few
    from barnabas.cli.output import remark, say, say_table
    from barnabas.cli.rebuild_remarks import remark_guessed, remark_new_ids, remark_unreadable

    say(f"cluster {brokers.cluster_id}, broker {first_few([one.node_id for one in brokers.found])}")
    shown = [change for change in plan.topics if change.found or change.operations]
    if shown:
        rows = [
            (one.topic.name, uuid_text(one.topic.id), str(one.topic.partition_count), str(one.found), _change_text(one))
            for one in shown
        ]
        say_table(("topic", "id", "partitions#", "found#", "change"), rows)
    remark_unreadable(brokers.notes)
    remark_new_ids(plan.new_ids)
    for what, names in (
        ("of deleted topics, and left out", plan.deleted),
        ("with another topic id, and left out", plan.left_out),
        ("stray logs that will be served again", plan.revived),
        ("logs that stay stray, since another log or topic has their place", plan.strays),
        ("not found, and created empty", plan.emptied),
    ):
        if names:
            remark(f"{what}: {first_few(names)}")
    if plan.missing:
        remark(
            f"not found, and offline: {first_few(plan.missing)}; run this with the options of the other brokers, too, "
            "or create them empty with --allow-missing"
        )
    remark_guessed(plan.guessed)
    if plan.sets_cluster_id:
        remark("settings of brokers, users, quotas and access rules were in ZooKeeper alone: set them again")


def _change_text(change: "TopicChange") -> str:
    from barnabas.cli.output import plural

    if change.is_new:
        return "created"
    parts = []
    if change.added:
        parts.append(f"{plural(change.added, 'partition')} added")
    if change.raised:
        parts.append(f"{plural(change.raised, 'leader epoch')} raised")
    if change.operations and not parts:
        parts.append("completed")
    return ", ".join(parts) or "unchanged"


def _fields(brokers: "SurveyedBrokers", plan: "ClusterRebuild", *, is_written: bool) -> dict[str, Any]:
    from barnabas.base.uuid import uuid_text

    return {
        "cluster_id": brokers.cluster_id,
        "brokers": [one.node_id for one in brokers.found],
        "written": is_written,
        "topics": [
            {
                "name": one.topic.name,
                "id": uuid_text(one.topic.id),
                "partitions": one.topic.partition_count,
                "found": one.found,
                "change": _change_text(one),
            }
            for one in plan.topics
        ],
        "missing": list(map(str, plan.missing)),
        "created_empty": list(map(str, plan.emptied)),
        "served_again": plan.revived,
        "strays": plan.strays,
        "deleted": plan.deleted,
        "left_out": plan.left_out,
        "new_ids": plan.new_ids,
        "settings_unknown": plan.guessed,
        "unreadable": list(brokers.notes),
    }
