"""What a person should know when metadata was rebuilt from logs."""

from collections.abc import Sequence

from barnabas.base.wording import first_few
from barnabas.cli.output import remark


def remark_unreadable(notes: Sequence[str]) -> None:
    for note in notes:
        remark(f"not readable, and ignored: {note}")


def remark_new_ids(topics: Sequence[str]) -> None:
    if topics:
        remark(f"no topic id was found, so a new one is used: {first_few(topics)}")


def remark_guessed(topics: Sequence[str]) -> None:
    if topics:
        remark(
            f"the settings of these topics are not known, so they keep all records: {first_few(topics)}; set them "
            "again with `barnabas config set`, or unset retention.ms and retention.bytes"
        )
