"""`barnabas up`: a broker in the foreground, or with `--brokers` a whole cluster on this machine.

The defaults suit a person who tries it: 127.0.0.1:9092, `./barnabas-data`, and replicas as the brokers allow.
"""

from pathlib import Path
from typing import Annotated, Final

import typer

from barnabas.base.logs import LogFormat, LogLevel
from barnabas.cli.broker import broker_arguments as arguments
from barnabas.cli.broker.given_settings import make_settings, with_metrics
from barnabas.cli.broker.serving import run_broker, start_log
from barnabas.cli.remote import CommandFailed, parse_assignments

_BROKERS_MAX: Final = 50


def up(
    listen: arguments.Listen = None,
    data_dir: arguments.DataDirectory = None,
    settings: arguments.Assignments = None,
    config: arguments.ConfigFile = None,
    brokers: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            max=_BROKERS_MAX,
            help="Run a cluster of N brokers, with ZooKeeper; --listen is for the first, the others take free ports.",
            show_default=False,
        ),
    ] = None,
    zookeeper: arguments.ZooKeeper = None,
    take_in: Annotated[
        bool,
        typer.Option("--take-in", help="With --brokers: make a single broker's data that of the cluster's first one."),
    ] = False,
    metrics_listen: arguments.MetricsListen = None,
    metrics_port: arguments.MetricsPort = None,
    log_format: arguments.Format = LogFormat.TEXT,
    log_level: arguments.Level = LogLevel.INFO,
) -> None:
    """Run a broker, or a cluster of them, until Ctrl-C.

    Example: barnabas up --data-dir /var/lib/barnabas --set num.partitions=3
    """
    start_log(log_format, log_level)
    given = parse_assignments(settings or [], "--set")
    if brokers is not None:
        if metrics_listen is not None:
            raise CommandFailed("--metrics-listen is for one broker; with --brokers give --metrics-port, for the first")
        from barnabas.cli.local_cluster.cluster_directory import common_texts, plan_brokers
        from barnabas.cli.local_cluster.cluster_up import run_cluster
        from barnabas.cli.local_cluster.single_directory import will_take_in

        directory = (data_dir or Path(arguments.DATA_DIRECTORY)).absolute()
        texts = common_texts(given, config, zookeeper, brokers=brokers)
        takes_in = will_take_in(directory, is_told=take_in)
        planned = plan_brokers(directory, brokers, listen, metrics_port)
        options = ("--log-format", log_format.value, "--log-level", log_level.value)
        run_cluster(directory, planned, texts, options, takes_in=takes_in)
        return
    if take_in:
        raise CommandFailed("--take-in needs --brokers: it makes a single broker the first one of a cluster")
    if zookeeper is not None:
        raise CommandFailed("--zookeeper needs --brokers; 'barnabas broker' runs one broker of a cluster")
    from barnabas.cli.local_cluster.cluster_directory import check_single

    made = with_metrics(make_settings(listen, data_dir, given, config), metrics_listen, metrics_port)
    check_single(Path(made.log_manager_config.log_dirs[0]))
    run_broker(made, log_format)
