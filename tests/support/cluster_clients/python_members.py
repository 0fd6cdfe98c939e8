"""Members of groups in Python, as commands."""

import sys
from collections.abc import Sequence

from tests.support.cluster_clients.calls import SESSION_TIMEOUT_MS


def member_command(library: str, bootstrap: str, group: str, topic: str) -> Sequence[str]:
    worker = (sys.executable, "-m", "tests.support.group_worker", library, "--client-id", library)
    session = ("--session-timeout-ms", str(SESSION_TIMEOUT_MS))
    return (*worker, *session, "--bootstrap", bootstrap, "--group", group, "--topic", topic)
