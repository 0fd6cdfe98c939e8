"""A pipeline with every kind of query, its input, and what must come out of it, computed by DuckDB from the input.

Shops sell; each sale has a number of its own, so that what is missing and what is double shows by itself.

| sink | query | guarantee that is checked |
|---|---|---|
| `copies` | without state, to a topic | each sale at least once; again only if its batch was broken off |
| `archive` | without state, to Parquet | each sale exactly once |
| `minutes` | windows, to a topic | each closed window, never with two different counts |
| `totals` | stateful step, to a topic | after each batch the right total of each shop that sold, and no other |
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from tests.pipelines.faults.kill_points import BatchRange

duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")

PARTITIONS: Final = 3
SHOPS: Final = ("Ayr", "Bath", "Cork", "Deal", "Ely")
CLOSING_SHOP: Final = "closing"
_START: Final = "2024-05-01 10:00:00+00"

_SOURCE: Final = """\
name: ledger
checkpoint: checkpoint
sources:
  sales:
    topic: sales
    schema: "id bigint NOT NULL, shop string, amount bigint, at timestamp"
    event_time: at
    watermark: 2 minutes
    records_max_per_batch: {records_max_per_batch}
"""
_STATELESS_SINKS: Final = """\
sinks:
  copies: {from: sales, topic: copies, key: shop}
  archive: {from: sales, parquet: table, partition_by: shop, compact_files: 4}
"""
_STEPS: Final = """\
steps:
  minutes:
    sql: |
      SELECT window(at, '1 minute').start AS start, shop, count(*) AS n, sum(amount) AS amount
      FROM sales GROUP BY window(at, '1 minute'), shop
  totals:
    stateful: tests.pipelines.faults.steps:ShopTotals
    inputs: sales
    key: shop
    schema: "shop string, total bigint"
"""
_STATEFUL_SINKS: Final = """\
  minutes: {from: minutes, topic: minutes, key: shop}
  totals: {from: totals, topic: totals, key: shop}
"""
TOPICS: Final = ("copies", "minutes", "totals")


def stateless_pipeline(records_max_per_batch: int) -> str:
    return _SOURCE.format(records_max_per_batch=records_max_per_batch) + _STATELESS_SINKS


def whole_pipeline(records_max_per_batch: int) -> str:
    return _SOURCE.format(records_max_per_batch=records_max_per_batch) + _STEPS + _STATELESS_SINKS + _STATEFUL_SINKS


@dataclass(frozen=True, slots=True)
class Sale:
    id: int
    shop: str
    amount: int
    at_seconds: int
    """Since the beginning of the day's business."""

    def value(self) -> bytes:
        hours, rest = divmod(self.at_seconds, 3600)
        at = f"2024-05-01T{10 + hours:02d}:{rest // 60:02d}:{rest % 60:02d}Z"
        return json.dumps({"id": self.id, "shop": self.shop, "amount": self.amount, "at": at}).encode()


def sales(first: int, count: int) -> list[Sale]:
    """Sales from number `first` on, one a second, some of them a few seconds out of order."""
    return [
        Sale(number, SHOPS[number * 7 % len(SHOPS)], 1 + number * 31 % 97, number + number * 13 % 5)
        for number in range(first, first + count)
    ]


def closing_sale(number: int) -> Sale:
    """So late that every window before it is closed."""
    return Sale(number, CLOSING_SHOP, 1, 8 * 3600)


def by_partition(sold: Iterable[Sale]) -> dict[int, list[Sale]]:
    """A sale lies in the partition of its number."""
    dealt: dict[int, list[Sale]] = defaultdict(list)
    for sale in sold:
        dealt[sale.id % PARTITIONS].append(sale)
    return dict(sorted(dealt.items()))


# --- what must have come out ------------------------------------------------------------------------------------


class Ledger:
    """The sales that were made, and the checks of what a pipeline made of them."""

    def __init__(self, sold: Iterable[Sale]) -> None:
        self._sold = list(sold)
        self._database = duckdb.connect()
        self._database.execute("SET TimeZone = 'UTC'")
        columns: dict[str, list[Any]] = {
            "id": [sale.id for sale in self._sold],
            "shop": [sale.shop for sale in self._sold],
            "amount": [sale.amount for sale in self._sold],
            "at_seconds": [sale.at_seconds for sale in self._sold],
        }
        self._database.register("sold", pa.table(columns))
        self._database.execute(
            "CREATE TABLE ledger AS SELECT id, shop, amount,"
            f" TIMESTAMPTZ '{_START}' + to_seconds(at_seconds) AS sold_at FROM sold"
        )

    def close(self) -> None:
        self._database.close()

    def check_copies(self, values: Iterable[bytes | None], may_be_double: set[int]) -> int:
        """The number of doubles, all of which must be sales that `may_be_double`."""
        found = Counter(_decoded(values, "id", "shop", "amount", "at"))
        expected = set(self._rows("SELECT id, shop, amount, strftime(sold_at, '%Y-%m-%dT%H:%M:%S.000Z') FROM ledger"))
        assert set(found) == expected, _difference(set(found), expected)
        doubles = {row[0] for row, count in found.items() if count > 1}
        assert doubles <= may_be_double, f"sales {sorted(doubles - may_be_double)} are double, for no reason"
        return len(doubles)

    def check_archive(self, directory: Path) -> None:
        """Exactly the sales, each once."""
        files = f"read_parquet('{directory}/**/*.parquet', hive_partitioning = true)"
        archived = f'SELECT id, CAST(shop AS VARCHAR) AS shop, amount, "at" AS sold_at FROM {files}'
        ledger = "SELECT id, shop, amount, sold_at FROM ledger"
        missing = self._rows(f"({ledger}) EXCEPT ALL ({archived})")
        assert not missing, f"missing: {missing[:10]}, {len(missing)} in all"
        extra = self._rows(f"({archived}) EXCEPT ALL ({ledger})")
        assert not extra, f"double or wrong: {extra[:10]}, {len(extra)} in all"

    def check_minutes(self, values: Iterable[bytes | None]) -> None:
        """Every window before the closing sale, with the right count; the same one may come again."""
        found = set(_decoded(values, "start", "shop", "n", "amount"))
        expected = set(
            self._rows(
                "SELECT strftime(time_bucket(INTERVAL 1 minute, sold_at), '%Y-%m-%dT%H:%M:%S.000Z') AS start,"
                " shop, count(*), CAST(sum(amount) AS BIGINT) FROM ledger WHERE shop <> ? GROUP BY ALL",
                CLOSING_SHOP,
            )
        )
        assert found == expected, _difference(found, expected)

    def check_totals(self, values: Iterable[bytes | None], ranges: Iterable[BatchRange]) -> None:
        """After each batch the total of each shop that sold in it, and no other total; it may come again."""
        found = set(_decoded(values, "shop", "total"))
        rows = [(one.batch, one.partition, one.first, one.end) for one in ranges]
        self._database.execute("CREATE TABLE ranges (batch BIGINT, part BIGINT, first BIGINT, beyond BIGINT)")
        self._database.executemany("INSERT INTO ranges VALUES (?, ?, ?, ?)", rows)
        expected = set(
            self._rows(
                f"WITH sums AS (SELECT shop, batch, sum(amount) AS amount FROM ledger JOIN ranges"
                f" ON part = id % {PARTITIONS} AND id // {PARTITIONS} >= first AND id // {PARTITIONS} < beyond"
                " GROUP BY ALL)"
                " SELECT shop, CAST(sum(amount) OVER (PARTITION BY shop ORDER BY batch) AS BIGINT) FROM sums"
            )
        )
        assert found == expected, _difference(found, expected)

    def _rows(self, query: str, *parameters: object) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in self._database.execute(query, list(parameters)).fetchall()]


def _decoded(values: Iterable[bytes | None], *names: str) -> list[tuple[Any, ...]]:
    rows = [json.loads(value or b"null") for value in values]
    return [tuple(row[name] for name in names) for row in rows]


def _difference(found: set[Any], expected: set[Any]) -> str:
    missing, extra = sorted(expected - found, key=str), sorted(found - expected, key=str)
    return f"{len(missing)} missing: {missing[:10]}; {len(extra)} too many: {extra[:10]}"


def sales_of_batches(ranges: Iterable[BatchRange], batches: set[int]) -> set[int]:
    """The numbers of the sales that these batches read: sale n lies at offset n // PARTITIONS of its partition."""
    return {
        offset * PARTITIONS + one.partition
        for one in ranges
        if one.batch in batches
        for offset in range(one.first, one.end)
    }
