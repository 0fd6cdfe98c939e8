"""`barnabas metadata`: the file with the cluster's topics and settings, when it was lost or damaged."""

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from barnabas.broker.rebuilding import Rebuilding

app = typer.Typer(help="Rebuild the metadata file of a broker.", rich_markup_mode=None)


@app.callback()
def metadata_commands() -> None:
    """Rebuild the metadata file of a broker."""


@app.command()
def rebuild(
    data_dirs: Annotated[
        list[str],
        typer.Option(
            "--data-dir",
            metavar="DIR",
            help="The broker's log directory; repeat it for several, in the order of log.dirs.",
            show_default=False,
        ),
    ],
    node_id: Annotated[
        int | None, typer.Option(metavar="ID", help="The broker's node.id, if meta.properties is missing.")
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Rebuild even if the existing file is readable.")] = False,
    allow_missing: Annotated[
        bool, typer.Option("--allow-missing", help="Create missing partitions as empty ones.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be written, and change nothing.")] = False,
) -> None:
    """Rebuild the metadata file from the log directories.

    Recovers topics with their ids, partitions and leader epochs, but no other settings of topics and brokers. Stop the
    broker first. No log is touched, and the old file is kept under another name.

    Example: barnabas metadata rebuild --data-dir barnabas-data
    """
    import os
    import random

    from barnabas.base.clock import SystemClock
    from barnabas.base.filesystem import LocalFileSystem
    from barnabas.broker.rebuilding import rebuild as rebuild_file

    rebuilding = rebuild_file(
        LocalFileSystem(),
        SystemClock(),
        random.Random(),
        [os.path.normpath(path) for path in data_dirs],
        node_id=node_id,
        replace=replace,
        allow_missing=allow_missing,
        dry_run=dry_run,
    )
    _say(rebuilding, dry_run)


def _say(rebuilding: "Rebuilding", dry_run: bool) -> None:
    from barnabas.base.uuid import uuid_text
    from barnabas.base.wording import first_few
    from barnabas.cli.output import plural, remark, say, say_table
    from barnabas.cli.rebuild_remarks import remark_guessed, remark_new_ids, remark_unreadable

    rebuilt = rebuilding.metadata
    say(f"cluster {rebuilt.cluster_id}, node {rebuilding.found.node_id}")
    if rebuilt.topics:
        rows = [
            (
                topic.name,
                uuid_text(topic.id),
                str(topic.partition_count),
                " ".join(f"{name}={value}" for name, value in topic.configs.items()),
            )
            for topic in rebuilt.topics
        ]
        say_table(("topic", "id", "partitions#", "settings"), rows)
    partitions = sum(topic.partition_count for topic in rebuilt.topics)
    counts = f"{plural(len(rebuilt.topics), 'topic')}, {plural(partitions, 'partition')}"
    say(f"{'would write' if dry_run else 'wrote'} {rebuilding.path} ({counts})")
    if rebuilding.backup is not None:
        say(f"the old file is kept as {rebuilding.backup}")
    remark_unreadable(rebuilding.notes)
    remark_new_ids(rebuilt.new_ids)
    if rebuilt.left_out:
        remark(f"left over from an earlier topic of the same name, and ignored: {first_few(rebuilt.left_out)}")
    if rebuilt.missing:
        remark(f"not found, and created empty: {first_few(rebuilt.missing)}")
    remark_guessed(rebuilt.guessed)
