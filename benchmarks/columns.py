"""The record kernel: batches to Arrow columns and back, 100-byte values, on one core."""

from barnabas.base.clock import SystemClock
from barnabas.records import kernel
from barnabas.records.columns import decode_run, encode_batches
from benchmarks.logs import make_columns
from benchmarks.report import Report, alternating_medians

RECORDS = 1_000_000
BATCH_BYTES = 1 << 20


def run(report: Report) -> None:
    report.say("a million records to Arrow columns and back")
    columns = make_columns(RECORDS, SystemClock().now_ms())
    batches = b"".join(encode_batches(columns, max_batch_bytes=BATCH_BYTES))

    def encode() -> None:
        for _ in encode_batches(columns, max_batch_bytes=BATCH_BYTES):
            pass

    def decode() -> None:
        decoded = decode_run(batches)
        assert decoded.columns.count == RECORDS

    encode()
    decode()
    encoding, decoding = alternating_medians(7, encode, decode)
    name = "compiled" if kernel.IS_COMPILED else "reference"
    report.at_least(f"decode to Arrow columns ({name})", RECORDS / decoding / 1e6, "M records/s", 8)
    report.at_least(f"encode from Arrow columns ({name})", RECORDS / encoding / 1e6, "M records/s", 8)
