"""What the commands about groups share: their arguments, and what they say of an error."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from barnabas.cli import completion
from barnabas.cli.remote import CommandFailed

if TYPE_CHECKING:
    from barnabas.client.offsets import Isolation
    from barnabas.wire.errors import KafkaError

Group = Annotated[
    str, typer.Argument(metavar="GROUP", help="The group.", show_default=False, autocompletion=completion.groups)
]
Committed = Annotated[
    bool, typer.Option("--committed", help="Count only up to the first open transaction, as read_committed reads.")
]


def isolation_of(committed: bool) -> "Isolation":
    from barnabas.client.offsets import Isolation

    return Isolation.READ_COMMITTED if committed else Isolation.READ_UNCOMMITTED


@contextmanager
def told_of(group: str) -> Iterator[None]:
    """Errors about the group become one line that says what helps; others are left to `with_cluster`."""
    from barnabas.wire.errors import KafkaError

    try:
        yield
    except KafkaError as error:
        line = group_error_line(group, error)
        raise CommandFailed(line) from error


def group_error_line(group: str, error: "KafkaError") -> str:
    from barnabas.cli.remote import error_line
    from barnabas.wire.errors import ErrorCode

    match error.code:
        case ErrorCode.GROUP_ID_NOT_FOUND:
            return f"group '{group}' does not exist; see 'barnabas group list'"
        case ErrorCode.NON_EMPTY_GROUP:
            return f"group '{group}' has members; stop them first: see 'barnabas group describe {group} --members'"
        case ErrorCode.INVALID_GROUP_ID:
            return f"'{group}' cannot be the name of a group"
        case _:
            return error_line(error)
