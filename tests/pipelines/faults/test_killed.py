"""Runs that are killed at any batch, by SIGKILL, and started again: what came out, against DuckDB record by record."""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

from barnabas.testing import Broker
from tests.pipelines.faults import ledger
from tests.pipelines.faults.kill_points import Kill, Killer
from tests.pipelines.faults.processes import PipelineProcess, Victim
from tests.pipelines.faults.shops import Shops, shops_on, watched_sinks
from tests.pipelines.running import run_pipeline, write_file

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install barnabas[spark]")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs a Java runtime: no `java` on the PATH"),
]
long_test = pytest.mark.skipif(
    "BARNABAS_LONG_TESTS" not in os.environ, reason="it takes minutes: set BARNABAS_LONG_TESTS=1 to run it"
)


def finish(file: Path) -> None:
    """A run that nobody disturbs, to the end of what is there."""
    with PipelineProcess(file, "--once") as process:
        assert process.wait() == 0, process.said


def sales_that_may_be_double(shops: Shops, file: Path, kills: list[Kill], told: Sequence[str] = ()) -> set[int]:
    """Of the sink `copies`: those whose batch was broken off, by a kill or by a failure that a run told of."""
    logs = [log.read_text(encoding="utf-8") for log in file.parent.glob("run-*.log")]
    if any("query ledger.copies failed" in text for text in [*logs, *told]):
        return shops.numbers
    batches = {batch for kill in kills for batch in kill.broken_off["copies"]}
    (copies,) = watched_sinks(file.parent, "copies")
    return ledger.sales_of_batches(copies.ranges(), batches)


def test_run_killed_twice_loses_no_record_and_doubles_none_in_parquet(
    pipeline_session: "SparkSession", broker: Broker, tmp_path: Path
) -> None:
    file = write_file(tmp_path, ledger.stateless_pipeline(records_max_per_batch=60), broker)
    with shops_on(broker.bootstrap) as shops:
        shops.open()
        shops.sell(600)

        killer = Killer(watched_sinks(tmp_path, "copies", "archive"), Random(6), 600, 60, shops.records_in)
        kills = [killer.kill(file) for _ in range(2)]
        # The session of the other tests goes on as well as one more process would, and is there already.
        kept = run_pipeline(pipeline_session, file)

        expected = ledger.Ledger(shops.sold)
        expected.check_archive(tmp_path / "table")
        expected.check_copies(shops.values("copies"), sales_that_may_be_double(shops, file, kills, kept.told))


@long_test
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", [1, 2])
def test_run_with_state_killed_again_and_again_keeps_every_guarantee(broker: Broker, tmp_path: Path, seed: int) -> None:
    file = write_file(tmp_path, ledger.whole_pipeline(records_max_per_batch=90), broker)
    sinks = watched_sinks(tmp_path, "copies", "archive", "minutes", "totals")
    victims = [Victim.ALL, Victim.DRIVER, Victim.ALL, Victim.JVM, Victim.ALL]
    with shops_on(broker.bootstrap) as shops:
        shops.open()
        shops.sell(3_000)

        killer = Killer(sinks, Random(seed), 3_000, 90, shops.records_in)
        kills = [killer.kill(file, victim) for victim in victims]
        # The last windows close by a sale that comes only now: Spark forgets an empty batch that was due when it died.
        shops.close_windows()
        finish(file)

        assert any(batches for kill in kills for batches in kill.broken_off.values()), f"none was broken off: {kills}"
        expected = ledger.Ledger(shops.sold)
        expected.check_archive(tmp_path / "table")
        expected.check_copies(shops.values("copies"), sales_that_may_be_double(shops, file, kills))
        expected.check_minutes(shops.values("minutes"))
        expected.check_totals(shops.values("totals"), sinks[-1].ranges())


@long_test
def test_run_whose_jvm_is_killed_ends_with_one_line_that_says_so(broker: Broker, tmp_path: Path) -> None:
    file = write_file(tmp_path, ledger.stateless_pipeline(records_max_per_batch=60), broker)
    with shops_on(broker.bootstrap) as shops:
        shops.open()
        shops.sell(600)
        with PipelineProcess(file) as process:
            (archive,) = watched_sinks(tmp_path, "archive")
            process.wait_until(lambda: 1 in archive.done(), "batch 1 is done")
            process.kill(Victim.JVM)
            assert process.wait() == 1
    assert "Spark's JVM has ended" in process.said
    assert "Traceback" not in process.said, process.said
    assert "this is a bug" not in process.said
