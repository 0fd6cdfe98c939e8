"""The scenarios of `tests/sim/scenarios`, one test each, and what the language says of pages that are wrong."""

from pathlib import Path

import pytest

from barnabas.sim.checkers import table
from barnabas.sim.scenarios.forms import FORMS
from barnabas.sim.scenarios.interpreter import ScenarioFailed, run
from barnabas.sim.scenarios.language import NotAScenario, parse, usage
from barnabas.sim.scenarios.slots import Item

DIRECTORY = Path(__file__).parent / "scenarios"
PAGES = sorted(path.name for path in DIRECTORY.glob("*.txt"))
DOCUMENTS = Path(__file__).parents[2] / "docs"
SCREEN_LINES = 40
LINE_LENGTH = 120

BEGINNING = """# A broker, a topic and a producer.
broker 1
start broker-1
topic orders
producer p1 gives up after 2 s
"""


@pytest.mark.parametrize("name", PAGES)
def test_scenario(name: str) -> None:
    try:
        run(parse((DIRECTORY / name).read_text(), f"tests/sim/scenarios/{name}"))
    except ScenarioFailed as failure:
        pytest.fail(str(failure), pytrace=False)


@pytest.mark.parametrize("name", PAGES)
def test_page_fits_on_a_screen(name: str) -> None:
    lines = (DIRECTORY / name).read_text().splitlines()
    assert len(lines) <= SCREEN_LINES
    assert max(map(len, lines)) <= LINE_LENGTH


def test_scenario_repeats_itself() -> None:
    text = (DIRECTORY / "dead_member_is_replaced.txt").read_text()
    (first,) = run(parse(text, "a.txt"))
    assert run(parse(text, "a.txt"))[0].trace == first.trace
    assert run(parse(text, "b.txt"))[0].trace != first.trace
    assert run(parse(f"{text}\nseed 7\n", "a.txt"))[0].trace == run(parse(f"{text}\nseed 7\n", "b.txt"))[0].trace
    assert len({outcome.trace for outcome in run(parse(f"{text}\nseeds 3\n", "a.txt"))}) == 3


# Reading a page


def test_sentence_becomes_a_statement() -> None:
    scenario = parse(f"{BEGINNING}p1 sends a k=v k= to orders-0   of 90 bytes # three\n", "some/page.txt")
    statement = scenario.statements[-1]
    assert (scenario.title, statement.line, statement.action) == ("A broker, a topic and a producer.", 6, "send")
    assert statement.text == "p1 sends a k=v k= to orders-0 of 90 bytes"
    assert statement.arguments == {
        "producer": "p1",
        "values": (Item(None, "a"), Item("k", "v"), Item("k", None)),
        "partition": ("orders", 0),
        "size": 90,
        "without_waiting": False,
    }


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("start broker-2", "'broker-2' is no broker or client of the lines above, which have broker-1, p1"),
        ("stop p1", "'p1' is no broker of the lines above, which have broker-1"),
        ("p2 sends b to orders-0", "'p2' is no producer of the lines above, which have p1"),
        ("expect p1 reads b", "'p1' is no reader of the lines above, which have none"),
        ("producer p1", "there is a producer 'p1' already"),
        ("broker 1", "there is a broker 'broker-1' already"),
        ("p1 sends a to orders-0", "'a' is sent in line 6 already: values are unique"),
        ("p1 sends b to orders", "'orders' is not a partition: write a topic and a number, as in orders-0"),
        ("wait 3 weeks", "'3 weeks' is not a duration: write 200 ms, 5 s, 2 min, 1 h or 1 day"),
        ("producer p2 acks most", "'most' is not a number of acks: write all, 1 or 0"),
        ("topic bills partitions many", "'many' is not a number"),
        ("topic bills with much", "'much' is not a setting: write name=value"),
        ("disk of broker-1 fails scratch of * with EIO", "'scratch' is not a call to a disk: write one of allocate,"),
        ("disk of broker-1 fails sync of * with EVIL", "'EVIL' is not an error of a system call: write EIO"),
        ("wait", "'wait' is no sentence; expected 'wait <duration>'"),
        ("p1 sends b", "'p1 sends b' is no sentence; expected '<producer> sends <values> to <partition>"),
        ("expect p1 aked a", "'expect p1 aked a' is no sentence; expected "),
        ("reboot the universe", "expected one of the sentences in docs/simulation"),
    ],
)
def test_line_that_cannot_be_read_is_refused(line: str, problem: str) -> None:
    with pytest.raises(NotAScenario) as refusal:
        parse(f"{BEGINNING}p1 sends a to orders-0\n\n{line}\n", "some/page.txt")
    assert str(refusal.value).startswith("some/page.txt:8: ")
    assert problem in str(refusal.value)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("broker 1\n", "page.txt:1: the first line must be a comment that says what the scenario shows"),
        ("broker 1 # and more\n", "page.txt:1: the first line must be a comment"),
        ("# Nothing.\n", "page.txt:1: nothing happens in it"),
        ("", "page.txt:1: nothing happens in it"),
    ],
)
def test_page_without_title_or_content_is_refused(text: str, problem: str) -> None:
    with pytest.raises(NotAScenario, match=problem):
        parse(text, "page.txt")


# Playing it


def failure_of(lines: str) -> str:
    with pytest.raises(ScenarioFailed) as failure:
        run(parse(BEGINNING + lines, "page.txt"))
    return str(failure.value)


def test_failing_expectation_tells_line_sight_and_story() -> None:
    told = failure_of("p1 sends a b to orders-0\nexpect orders-0 holds a c\nwait 1 s\n")
    assert told.startswith(
        "page.txt:7: expect orders-0 holds a c\norders-0 holds a b\n\nSeed 51089453. The story so far"
    )
    assert "  6: p1 sends a b to orders-0\n" in told
    assert "p1 has an ack of b at offset 1 of orders-0" in told
    assert "wait 1 s" not in told


@pytest.mark.parametrize(
    ("lines", "seen"),
    [
        ("expect p1 acked a", "p1 has not sent a"),
        ("p1 sends a to orders-0\nexpect p1 acked a at 3", "a acked at 0"),
        ("p1 sends a to orders-0\nexpect p1 waits for a", "a acked at 0"),
        ("p1 sends a to orders-0\nexpect p1 failed a with IT", "a acked at 0"),
        ("reader r1 reads orders-0 from 0\nexpect r1 reads a within 1 s", "after 1 s: r1 has read nothing"),
        ("p1 sends a b to orders-0\nreader r1 reads orders-0 from 0\nexpect r1 reads a", "r1 has read a b"),
        ("p1 sends a to orders-0\nreader r1 reads orders-0 from 0\nexpect r1 reads nothing for 1 s", "r1 has read a"),
        ("member m1 of g joins on orders\nexpect m1 owns nothing in generation 3", "m1 owns orders-0 in generation 1"),
        ("expect committed of g on orders-0 is 3", "committed is nothing"),
        ("p1 sends a c to orders-0\nexpect orders-0 holds a then maybe b c", "orders-0 holds a c"),
        ("expect offsets of orders-0 are 1 to 2", "offsets of orders-0 are 0 to 0"),
        ("expect no topic orders", "there are orders"),
        ("expect broker-1 is off", "broker-1 runs"),
        ("kill broker-1\nexpect broker-1 serves", "it is off"),
        ("start broker-1", "broker-1 runs"),
        ("kill broker-1\npause broker-1 for 1 s", "broker-1 is off"),
        ("flip a bit in *.log of broker-1 at byte 5000", "0 files match and have a byte 5000; the disk has\n"),
        ("ignore checker of grammar because I can", "there is no checker 'of grammar'; there are seen at once, "),
        ("admin deletes topic bills", "UNKNOWN_TOPIC_OR_PARTITION"),
    ],
)
def test_expectation_that_is_not_met_tells_what_was_seen(lines: str, seen: str) -> None:
    assert seen in failure_of(f"{lines}\n").partition("The story")[0]


def test_failed_send_that_no_line_expects_fails_the_scenario() -> None:
    lines = "p1 sends a to orders-0\nkill broker-1\np1 sends b to orders-0\nstart broker-1\n"
    assert "b of p1 failed, and no line expects it: KafkaError: REQUEST_TIMED_OUT" in failure_of(lines)


def test_problem_of_a_checker_fails_the_scenario_unless_it_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(table.CHECKERS, "gloomy one", lambda history: ["all is lost"])
    assert "checker gloomy one: all is lost" in failure_of("wait 1 s\n")
    run(parse(f"{BEGINNING}ignore checker gloomy one because it is gloomy\n", "page.txt"))


def test_every_sentence_is_documented() -> None:
    pages = [path for path in (DOCUMENTS / "simulation.md", DOCUMENTS / "simulation-scenarios.md") if path.exists()]
    text = "".join(path.read_text() for path in pages)
    missing = [usage(form) for form in FORMS if f"| `{usage(form)}` | {form.meaning} |" not in text]
    assert not missing


def test_every_sentence_has_a_scenario() -> None:
    used = {"seeds"} | {
        statement.action for name in PAGES for statement in parse((DIRECTORY / name).read_text(), name).statements
    }
    unused = {form.action for form in FORMS} - used
    assert unused == {"ignore"}
