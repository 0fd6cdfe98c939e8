"""`barnabas broker`: one broker of a cluster, and what to do when it is dead."""

import typer

from barnabas.base.logs import LogFormat, LogLevel
from barnabas.cli.broker import broker_arguments as arguments
from barnabas.cli.broker.given_settings import make_settings, with_metrics
from barnabas.cli.remote import CommandFailed, parse_assignments

app = typer.Typer(rich_markup_mode=None)


@app.callback(invoke_without_command=True)
def broker(
    context: typer.Context,
    config: arguments.ConfigFile = None,
    settings: arguments.Assignments = None,
    zookeeper: arguments.ZooKeeper = None,
    listen: arguments.Listen = None,
    data_dir: arguments.DataDirectory = None,
    metrics_listen: arguments.MetricsListen = None,
    metrics_port: arguments.MetricsPort = None,
    log_format: arguments.Format = LogFormat.TEXT,
    log_level: arguments.Level = LogLevel.INFO,
) -> None:
    """Run a broker of a cluster until Ctrl-C.

    What is not given has Kafka's default. Without `zookeeper.connect` (or --zookeeper) the broker is alone.

    Example: barnabas broker --config server.properties
    """
    if context.invoked_subcommand is not None:
        return
    from barnabas.cli.broker.serving import run_broker, start_log

    start_log(log_format, log_level)
    given = parse_assignments(settings or [], "--set")
    made = make_settings(listen, data_dir, given, config, zookeeper=zookeeper, defaults={})
    run_broker(with_metrics(made, metrics_listen, metrics_port), log_format)


@app.command()
def retire(
    config: arguments.ConfigFile = None,
    settings: arguments.Assignments = None,
    zookeeper: arguments.ZooKeeper = None,
    data_dir: arguments.DataDirectory = None,
) -> None:
    """End the ZooKeeper session of a dead broker.

    Its cluster need not wait for the timeout then. Takes the options that the broker was started with; a running one is
    refused.

    Example: barnabas broker retire --config server.properties
    """
    import asyncio

    from barnabas.base.filesystem import LocalFileSystem
    from barnabas.cli.broker.retirement import retire_broker
    from barnabas.cli.output import say

    given = parse_assignments(settings or [], "--set")
    made = make_settings(None, data_dir, given, config, zookeeper=zookeeper, defaults={})
    options = made.config.zookeeper_options()
    if options is None:
        raise CommandFailed("the broker is not one of a cluster: give zookeeper.connect, in --config or by --zookeeper")
    directory = made.log_manager_config.log_dirs[0]
    if asyncio.run(retire_broker(LocalFileSystem(), options, directory)):
        say(f"ended the session of the broker in {directory}")
    else:
        say(f"the broker in {directory} has no session")
