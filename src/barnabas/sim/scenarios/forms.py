"""Every sentence of the scenario language, as a table.

In a template, `{name:kind}` is left open (`barnabas.sim.scenarios.slots`), `[…]` may be left out, everything else
stands there as it is. The action is the name of the interpreter's method (`do_…`); what is open becomes its arguments,
and so does an optional part in which nothing is open, as a flag. A page is compared with the forms in this order.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Form:
    action: str
    template: str
    meaning: str


FORMS: Final = (
    # The page
    Form("seeds", "seed {number:number}", "Another seed than the one that the file's name gives."),
    Form("seeds", "seeds {count:number}", "Plays the page with this many seeds, one after the other."),
    Form("ignore", "ignore checker {name:text} because {reason:text}", "The checker may find something here."),
    # Nodes
    Form(
        "declare_broker",
        "broker {number:new-broker} [on {disks:number} disks] [with {settings:settings}]",
        "There is a broker-N. It is off.",
    ),
    Form(
        "declare_cluster",
        "cluster of {count:new-cluster} brokers [on {disks:number} disks] [that suspect each other] "
        "[with {settings:settings}]",
        "A ZooKeeper, and broker-1, broker-2, …, which serve; broker-1 is the controller. Those that suspect each "
        "other have an identity, so that the session of one that is dead can be ended.",
    ),
    Form("start", "start {node:node}", "Starts a broker, and waits until it serves; or a client that was killed."),
    Form("begin_start", "begin to start {broker:broker}", "Starts a broker, and goes on with the page."),
    Form("stop", "stop {broker:broker}", "As by SIGTERM; waits for the end."),
    Form("kill", "kill {node:node}", "As by SIGKILL: what a broker has written is in its page cache."),
    Form(
        "power_loss",
        "power loss {broker:broker} [losing everything unsynced]",
        "What was not synced may be lost, as the seed decides, or surely is; nobody is told.",
    ),
    Form(
        "power_loss_at",
        "power loss {broker:broker} at disk call {number:number} of {operation:operation} {pattern:word}",
        "When it is about to do that call to its disk, the first being 1.",
    ),
    Form(
        "kill_at",
        "kill {broker:broker} at disk call {number:number} of {operation:operation} {pattern:word}",
        "When it is about to do that call to its disk, the first being 1.",
    ),
    Form("wipe", "wipe {broker:broker}", "A new, empty disk takes the place of the old one. The broker is off."),
    Form("pause", "pause {node:node} for {seconds:duration}", "As by SIGSTOP, and SIGCONT later. The page goes on."),
    Form("expire", "expire {broker:broker}", "Its session with ZooKeeper ends; the process lives, and finds out."),
    Form("stop_zookeeper", "zookeeper stops", "All its servers are down."),
    Form("start_zookeeper", "zookeeper starts", "With all that it had."),
    Form("jump", "clock of {broker:broker} jumps {seconds:duration} [back]", "Somebody sets the wall clock."),
    # Disks
    Form(
        "disk_fails",
        "disk of {broker:broker} fails {operation:operation} of {pattern:word} with {error:errno} [for ever]",
        "The next such call fails, or all do until the disk heals.",
    ),
    Form("disk_full", "disk of {broker:broker} is full [but for {room:number} bytes]", "It takes no more than that."),
    Form("disk_slow", "disk of {broker:broker} takes {seconds:duration} a call", "Each call waits that long."),
    Form(
        "disk_slow",
        "disk of {broker:broker} takes {seconds:duration} for each {operation:operation}",
        "Only such calls wait that long.",
    ),
    Form("disk_heals", "disk of {broker:broker} heals", "It works, has room and is fast again."),
    Form(
        "flip",
        "flip a bit in {pattern:word} of {broker:broker} at byte {position:number}",
        "Of the one file that matches, at rest: no call tells of it.",
    ),
    # Network
    Form("cut", "cut {source:host} to {target:host}", "One way: nothing that the first sends reaches the second."),
    Form("cut_both", "cut {source:host} and {target:host}", "Both ways."),
    Form(
        "lose_answer",
        "lose next answer from {source:broker} to {target:node}",
        "Connections break when the next byte of an answer gets there: the request was done, nobody knows.",
    ),
    Form("refuse", "refuse connections to {broker:broker}", "New connections are refused until `heal`."),
    Form("heal", "heal", "The network is whole. What was sent on cut links arrives now."),
    Form("heal_link", "heal {source:host} and {target:host}", "Only what is between these two."),
    Form("wait", "wait {seconds:duration}", "Virtual time passes."),
    # Topics
    Form(
        "create_topic",
        "topic {topic:word} [partitions {partitions:number}] [with {settings:settings}]",
        "An admin creates it.",
    ),
    Form(
        "create_replicated",
        "topic {topic:word} on {brokers:brokers} [with {settings:settings}]",
        "Of one partition: the first broker leads it, the others follow.",
    ),
    Form("delete_topic", "admin deletes topic {topic:word}", "And waits for the answer, as every admin does."),
    Form("set_config", "admin sets {settings:settings} on {topic:word}", "Settings of a topic."),
    Form("add_partitions", "admin raises partitions of {topic:word} to {total:number}", "A topic grows."),
    Form(
        "delete_records",
        "admin deletes records of {partition:partition} before {offset:number}",
        "Kafka's DeleteRecords.",
    ),
    # Producers
    Form(
        "declare_producer",
        "producer {name:new-producer} [acks {acks:acks}] [idempotent] [gives up after {seconds:duration}]",
        "Without more: acks all, not idempotent, gives up after 25 s.",
    ),
    Form(
        "send",
        "{producer:producer} sends {values:values} to {partition:partition} [of {size:number} bytes] [without waiting]",
        "One batch. Values are unique on a page; key=value has a key, key= is a tombstone.",
    ),
    Form(
        "expect_acked",
        "expect {producer:producer} acked {values:values} [at {offset:number}] [within {seconds:duration}]",
        "At offsets that begin there.",
    ),
    Form(
        "expect_failed",
        "expect {producer:producer} failed {values:values} with {error:text}",
        "The error's code, or a part of its text. A failure that no line expects fails the scenario.",
    ),
    Form("expect_waiting", "expect {producer:producer} waits for {values:values}", "Neither acked nor failed now."),
    # Readers and members
    Form(
        "declare_reader",
        "reader {name:new-reader} reads {partition:partition} from {offset:number} [waiting {seconds:duration}]",
        "From now on, all the time; a fetch waits that long for records (500 ms).",
    ),
    Form(
        "declare_member",
        "member {name:new-member} of {group:word} joins on {topic:word} [as {instance:word}]"
        " [session {seconds:duration}]",
        "From now on it polls; `as` makes it a static member; the session is 6 s. It commits when told to.",
    ),
    Form(
        "expect_nothing_read",
        "expect {reader:reader} reads nothing for {seconds:duration}",
        "And does not fail either.",
    ),
    Form(
        "expect_read",
        "expect {reader:reader} reads {values:values} [within {seconds:duration}]",
        "These and no others, in this order, since the last such line.",
    ),
    Form(
        "expect_read_failed",
        "expect {reader:reader} fails with {error:text} [within {seconds:duration}]",
        "The error's code, or a part of its text.",
    ),
    Form("commit", "{member:member} commits", "Behind all that it has read."),
    Form("leave", "{member:member} leaves", "It closes, as a program that ends in order."),
    Form(
        "expect_owner",
        "expect {member:member} owns {partitions:partitions} [in generation {generation:number}]"
        " [within {seconds:duration}]",
        "These partitions and no others; or `nothing`.",
    ),
    Form(
        "expect_committed",
        "expect committed of {group:word} on {partition:partition} is {offset:word}",
        "An offset, or `nothing`.",
    ),
    # What the brokers hold
    Form(
        "expect_content_maybe",
        "expect {partition:partition} holds {values:values} then maybe {more:values}",
        "After the first, some of the others may follow: from the first of them on, none left out.",
    ),
    Form("expect_content", "expect {partition:partition} holds {values:values}", "All of it; or `nothing`."),
    Form(
        "expect_offsets", "expect offsets of {partition:partition} are {start:number} to {end:number}", "Start and end."
    ),
    Form(
        "expect_replica",
        "expect {broker:broker} has {values:values} of {partition:partition} [within {seconds:duration}]",
        "In its log, committed or not; or `nothing`.",
    ),
    Form(
        "expect_leader",
        "expect {brokers:brokers} leads {partition:partition} [within {seconds:duration}]",
        "One broker, or `nobody`.",
    ),
    Form(
        "expect_isr",
        "expect {brokers:brokers} in sync of {partition:partition} [within {seconds:duration}]",
        "These brokers and no others, or `nobody`.",
    ),
    Form(
        "expect_elr",
        "expect {brokers:brokers} eligible of {partition:partition} [within {seconds:duration}]",
        "These brokers and no others, or `nobody`.",
    ),
    Form(
        "expect_controller",
        "expect {broker:broker} is controller [within {seconds:duration}]",
        "As ZooKeeper has it.",
    ),
    Form("expect_no_topic", "expect no topic {topic:word}", "Nobody can see it."),
    Form(
        "expect_no_files", "expect no files {pattern:word} on {broker:broker} [within {seconds:duration}]", "Removed."
    ),
    Form("expect_serving", "expect {broker:broker} serves [within {seconds:duration}]", "It has started, and runs."),
    Form("expect_off", "expect {broker:broker} is off [because {reason:text}]", "Killed, stopped, or ended by itself."),
)
