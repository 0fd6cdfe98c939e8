"""Runs the benchmarks: all of them, or those named. `python -m benchmarks [--json] [NAME …]`."""

import sys
from importlib import import_module

from rich.console import Console

from benchmarks.report import Report

NAMES = (
    *("columns", "append", "read", "recover", "partitions", "compaction"),
    *("broker", "groups", "cluster", "replication", "failover"),
    *("spark", "spark_sink"),
)


def main(arguments: list[str]) -> int:
    as_json = "--json" in arguments
    chosen = [name for name in arguments if name != "--json"] or list(NAMES)
    if unknown := [name for name in chosen if name not in NAMES]:
        print(f"no benchmark called {', '.join(unknown)}; there are: {', '.join(NAMES)}", file=sys.stderr)
        return 1
    report = Report(Console(stderr=as_json))
    for name in chosen:
        import_module(f"benchmarks.{name}").run(report)
    report.print(as_json=as_json)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
