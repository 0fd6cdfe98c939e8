"""What the shell offers when Tab is pressed: names of topics, groups and settings.

Topics and groups come from the cluster that the command line names, which gets a second at most to answer. Pressing Tab
must never show an error: without a cluster nothing is offered. Settings come from the tables, without a cluster.

`barnabas --install-completion` makes the shell call us with the words so far in the environment. Bash breaks words at
colons and equals signs, which `rejoin_words` undoes, so that `-b 127.0.0.1:9092` is understood.
"""

from collections.abc import Callable, Coroutine, MutableMapping
from typing import TYPE_CHECKING, Any, Final

import typer

from barnabas.base.errors import BarnabasError
from barnabas.cli.remote import DEFAULT_BOOTSTRAP

if TYPE_CHECKING:
    from barnabas.client.cluster import Cluster

VARIABLE: Final = "_BARNABAS_COMPLETE"
_TIMEOUT_SECONDS: Final = 1.0
_WORD_BREAKS: Final = frozenset(":=")


def words(environment: MutableMapping[str, str]) -> list[str]:
    """The arguments so far of the command line that is completed."""
    line = environment.get("COMP_WORDS") or environment.get("_TYPER_COMPLETE_ARGS") or ""
    return line.split()[1:]


def rejoin_words(environment: MutableMapping[str, str]) -> None:
    """Puts together what Bash broke; its other shells' words are whole."""
    if "COMP_WORDS" not in environment or not environment.get("COMP_CWORD", "").isdecimal():
        return
    current = int(environment["COMP_CWORD"])
    joined: list[str] = []
    position = 0
    is_broken = False
    for index, word in enumerate(environment["COMP_WORDS"].split("\n")):
        is_break = bool(word) and _WORD_BREAKS.issuperset(word)
        if joined and (is_break or is_broken):
            joined[-1] += word
        else:
            joined.append(word)
        is_broken = is_break
        if index == current:
            position = len(joined) - 1
    environment["COMP_WORDS"] = "\n".join(joined)
    environment["COMP_CWORD"] = str(position)


# --- what is offered --------------------------------------------------------------------------------------------


def topics(ctx: typer.Context, incomplete: str) -> list[str]:
    """Internal ones only to who begins to write one."""

    async def ask(cluster: "Cluster") -> list[str]:
        view = await cluster.refresh(None)
        return [one.name for one in view.topics.values() if not one.is_internal or incomplete.startswith("_")]

    return _answer(ctx, ask)


def groups(ctx: typer.Context) -> list[str]:
    from barnabas.client.group.group_admin import list_groups

    async def ask(cluster: "Cluster") -> list[str]:
        return [one.group for one in await list_groups(cluster)]

    return _answer(ctx, ask)


def topic_settings() -> list[str]:
    from barnabas.storage.setting_tables import TOPIC_SETTINGS

    return [setting.name for setting in TOPIC_SETTINGS if not setting.is_internal]


def topic_assignments() -> list[str]:
    """For NAME=VALUE."""
    return [f"{name}=" for name in topic_settings()]


def broker_settings() -> list[str]:
    from barnabas.broker.setting_table import BROKER_SETTINGS
    from barnabas.storage.setting_tables import LOG_SETTINGS

    return [setting.name for table in (BROKER_SETTINGS, LOG_SETTINGS) for setting in table if not setting.is_internal]


def broker_assignments() -> list[str]:
    """For NAME=VALUE."""
    return [f"{name}=" for name in broker_settings()]


def settings(ctx: typer.Context) -> list[str]:
    """Of a topic or of a broker, as the options say so far."""
    if ctx.params.get("topic"):
        return topic_settings()
    if ctx.params.get("broker") is not None or ctx.params.get("all_brokers"):
        return broker_settings()
    return [*topic_settings(), *broker_settings()]


def assignments(ctx: typer.Context) -> list[str]:
    """The same for NAME=VALUE."""
    return [f"{name}=" for name in settings(ctx)]


def _answer(ctx: typer.Context, ask: "Callable[[Cluster], Coroutine[Any, Any, list[str]]]") -> list[str]:
    import asyncio

    import uvloop

    from barnabas.client.cluster import Cluster

    async def answer() -> list[str]:
        async with asyncio.timeout(_TIMEOUT_SECONDS):
            async with Cluster(ctx.params.get("bootstrap") or DEFAULT_BOOTSTRAP) as cluster:
                return sorted(await ask(cluster))

    try:
        return uvloop.run(answer())
    except (BarnabasError, OSError):
        return []
