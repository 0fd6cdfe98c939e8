"""What may stand in a pipeline's file: one table for each kind of entry, from which everything else is derived.

`barnabas.pipelines.nodes` reads a file by these tables and refuses what is not in them; `barnabas.pipelines.reference`
makes of them the JSON Schema for editors and the reference in `docs/pipelines.md`. What a value means beyond its own
form (a name that must exist, keys that exclude each other) is checked in `barnabas.pipelines.spec`.

Pure: no I/O.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final


class Kind(Enum):
    """How a value is written; the text says it to people."""

    TEXT = "text"
    NAME = "a name of letters, digits, `_` and `-`"
    INTEGER = "a whole number, at least 1"
    BOOLEAN = "true or false"
    DURATION = "a duration, such as `10 seconds` or `500 ms`"
    SIZE = "a size, such as `64 MiB`"
    CHOICE = "one of some words"
    TEXTS = "a text or a list of texts"
    SETTINGS = "names with their values"
    SECTIONS = "names with their entries"


@dataclass(frozen=True, slots=True)
class Field:
    """One key of an entry. `default` is what is shown and used when the key is missing, as it would be written."""

    name: str
    kind: Kind
    doc: str
    default: str = ""
    is_required: bool = False
    choices: tuple[str, ...] = ()
    section: "Section | None" = None


@dataclass(frozen=True, slots=True)
class Section:
    """The keys of one kind of entry. Of each group in `one_of` exactly one key must be given."""

    noun: str
    doc: str
    fields: tuple[Field, ...]
    one_of: tuple[tuple[str, ...], ...] = ()

    def field(self, name: str) -> Field | None:
        return next((field for field in self.fields if field.name == name), None)


FORMATS: Final = ("json", "csv", "text", "raw", "avro")
METADATA: Final = ("key", "topic", "partition", "offset", "timestamp", "headers")
SINK_KINDS: Final = ("topic", "parquet", "delta", "iceberg", "console")
STEP_KINDS: Final = ("sql", "python", "stateful")
TOPIC_KEYS: Final = ("topic", "topics", "pattern")

SOURCE: Final = Section(
    noun="source",
    doc="A stream of records, or a table with `table: true`. Its name is the name of a view in SQL.",
    one_of=(TOPIC_KEYS,),
    fields=(
        Field("topic", Kind.TEXT, "The topic to read."),
        Field("topics", Kind.TEXTS, "Several topics to read as one."),
        Field(
            "pattern",
            Kind.TEXT,
            "A regular expression (Python's) that matches anywhere in the names of topics; `^name$` matches that "
            "name alone. New topics are found, too.",
        ),
        Field(
            "format",
            Kind.CHOICE,
            "The format of the values. `text` gives a column `value` of strings, or the columns of the schema with "
            "`value_pattern`; `raw` gives a column of bytes. `avro` is read with fastavro; Confluent's header of "
            "five bytes is understood where `writer_schemas` lists its ids.",
            default="json",
            choices=FORMATS,
        ),
        Field(
            "schema",
            Kind.TEXT,
            "The columns, as in `CREATE TABLE`: `host string, at timestamp`. For json, csv, and text with"
            " `value_pattern`.",
        ),
        Field(
            "value_pattern",
            Kind.TEXT,
            "A regular expression (Java's) that a whole value must match: its named groups, `(?<name>…)`, are the"
            " columns of the schema. For text.",
        ),
        Field("avro_schema", Kind.TEXT, "The file of the Avro schema (`.avsc`) that gives the columns. For avro."),
        Field(
            "writer_schemas",
            Kind.SETTINGS,
            "Files of the Avro schemas that records were written with, by the id in Confluent's header. A record "
            "with an id that is not listed is a bad record. If none are listed, values have no such header.",
        ),
        Field(
            "parse",
            Kind.SETTINGS,
            "Options of Spark's json or csv parser, such as `timestampFormat` or `sep`. With `value_pattern`: "
            "`timestampFormat` and `dateFormat`.",
        ),
        Field(
            "metadata",
            Kind.TEXTS,
            "Which other parts of a record become columns: `_key`, `_topic`, `_partition`, `_offset`, `_timestamp`, "
            "`_headers`.",
            choices=METADATA,
        ),
        Field(
            "key_format",
            Kind.CHOICE,
            "Whether the column `_key` holds strings or bytes.",
            default="text",
            choices=("text", "raw"),
        ),
        Field(
            "tombstones",
            Kind.CHOICE,
            "What a record without a value means: `drop`, nothing; `keep`, a row whose columns are null; `delete`, such"
            " a row with `_deleted` true, which a topic sink writes as a tombstone. The default is `keep` for text"
            " without a pattern and for raw, otherwise `drop`.",
            choices=("keep", "drop", "delete"),
        ),
        Field(
            "event_time",
            Kind.TEXT,
            "The column that says when something happened; `_timestamp` is the record's own.",
        ),
        Field("watermark", Kind.DURATION, "How late a record may come; windows and joins stay open for that long."),
        Field(
            "starting",
            Kind.TEXT,
            "Where a new checkpoint begins: `earliest`, `latest`, or offsets as Spark's connector writes them:"
            ' `{"topic": {"0": 23}}`.',
            default="earliest",
        ),
        Field(
            "records_max_per_batch",
            Kind.INTEGER,
            "The most records that a batch takes from the source, from each partition in proportion to what is left. "
            "The watermark follows the partition that is ahead, so it must allow for how far they are apart.",
        ),
        Field("tasks_min", Kind.INTEGER, "Split the partitions over at least this many tasks."),
        Field(
            "on_data_loss",
            Kind.CHOICE,
            "What to do when records were deleted before they were read.",
            default="fail",
            choices=("fail", "go_on"),
        ),
        Field(
            "on_error",
            Kind.CHOICE,
            "What to do with a record that does not parse. The default is `dead_letter` where the pipeline has a"
            " dead-letter topic, `drop` for a table, and otherwise `fail`.",
            choices=("dead_letter", "drop", "fail"),
        ),
        Field(
            "table",
            Kind.BOOLEAN,
            "Read the topic as a table: the latest record of each key, without those that a tombstone removed.",
            default="false",
        ),
        Field("refresh", Kind.DURATION, "How old a table may be when a batch uses it.", default="1 minute"),
        Field("size_max", Kind.SIZE, "A table larger than this stops the query.", default="256 MiB"),
    ),
)

STEP: Final = Section(
    noun="step",
    doc="A computation over sources and earlier steps. Its name is the name of a view in SQL.",
    one_of=(STEP_KINDS,),
    fields=(
        Field("sql", Kind.TEXT, "A query of Spark SQL over the names of sources and earlier steps."),
        Field(
            "python",
            Kind.TEXT,
            "A function `package.module:name` that takes the inputs as DataFrames, in their order, and returns one.",
        ),
        Field(
            "stateful",
            Kind.TEXT,
            "A class `package.module:name`, a StatefulProcessor of PySpark for pandas, run by transformWithState.",
        ),
        Field("inputs", Kind.TEXTS, "The inputs of a `python` or `stateful` step: sources and earlier steps."),
        Field("key", Kind.TEXTS, "The columns by which a `stateful` step keeps its state."),
        Field("schema", Kind.TEXT, "The columns that a `stateful` step returns, as in `CREATE TABLE`."),
        Field(
            "time",
            Kind.CHOICE,
            "Which timers a `stateful` step has.",
            default="none",
            choices=("none", "processing", "event"),
        ),
        Field(
            "output",
            Kind.CHOICE,
            "Whether a `stateful` step emits each row once (`append`) or emits changed rows again (`update`).",
            default="append",
            choices=("append", "update"),
        ),
        Field("event_time", Kind.TEXT, "The column of the result that later windows and joins use as event time."),
        Field("watermark", Kind.DURATION, "How late a row of the result may come."),
    ),
)

SINK: Final = Section(
    noun="sink",
    doc="Where rows go. Each sink is a separate query, with its own checkpoint and consumer group.",
    one_of=(SINK_KINDS,),
    fields=(
        Field("from", Kind.NAME, "The source or step whose rows are written.", is_required=True),
        Field("topic", Kind.TEXT, "Write to this topic. At least once: a retried task may repeat records."),
        Field("parquet", Kind.TEXT, "Write Parquet files into this directory, each batch exactly once."),
        Field("delta", Kind.TEXT, "Write to the Delta table in this directory, each batch exactly once."),
        Field("iceberg", Kind.TEXT, "Write to this Iceberg table, `namespace.table`, each batch exactly once."),
        Field("console", Kind.BOOLEAN, "Show the rows of each batch."),
        Field(
            "mode",
            Kind.CHOICE,
            "`append` writes rows that will not change, `update` rows that changed, `complete` all rows every time.",
            default="append",
            choices=("append", "update", "complete"),
        ),
        Field("trigger", Kind.DURATION, "Time between batches, instead of the pipeline's."),
        Field(
            "format",
            Kind.CHOICE,
            "How rows become the values of a topic. `text` and `raw` take the column `value`, the other formats take "
            "all columns that do not begin with `_`.",
            default="json",
            choices=("json", "csv", "text", "raw"),
        ),
        Field("key", Kind.TEXT, "An SQL expression for the record's key."),
        Field("value", Kind.TEXT, "An SQL expression for the record's value, instead of `format`."),
        Field("headers", Kind.SETTINGS, "Headers of the record: names with SQL expressions."),
        Field("partition", Kind.TEXT, "An SQL expression for the number of the partition."),
        Field("partition_by", Kind.TEXTS, "Columns whose values become directories, as `day=2024-05-01`."),
        Field(
            "compact_files", Kind.INTEGER, "Join the small files of a directory once there are this many.", default="32"
        ),
        Field("compact_below", Kind.SIZE, "Files smaller than this are small.", default="16 MiB"),
        Field("catalog", Kind.SETTINGS, "Properties of the Iceberg catalog, as pyiceberg names them."),
        Field("rows", Kind.INTEGER, "How many rows of a batch the console shows.", default="20"),
    ),
)

PIPELINE: Final = Section(
    noun="pipeline",
    doc="The whole file.",
    fields=(
        Field("name", Kind.NAME, "The name; consumer groups are `NAME.SINK`.", is_required=True),
        Field(
            "bootstrap",
            Kind.TEXT,
            "A broker of the cluster; several are separated by commas.",
            default="127.0.0.1:9092",
        ),
        Field(
            "checkpoint",
            Kind.TEXT,
            "The directory that stores the progress; relative to the file. On a Spark cluster, all machines must see "
            "it.",
            is_required=True,
        ),
        Field(
            "trigger",
            Kind.DURATION,
            "Time between batches. Without it, the next batch begins when the last one is done.",
        ),
        Field("dead_letter", Kind.TEXT, "The topic for records that do not parse, with reason and origin in headers."),
        Field("kafka", Kind.SETTINGS, "Settings of the clients, such as `security.protocol`, for sources and sinks."),
        Field(
            "spark",
            Kind.SETTINGS,
            "Spark's settings. `spark.sql.shuffle.partitions` defaults to the number of cores, and keeps the value "
            "with which the checkpoint was created.",
        ),
        Field("sources", Kind.SECTIONS, "What is read.", is_required=True, section=SOURCE),
        Field("steps", Kind.SECTIONS, "What is computed.", section=STEP),
        Field("sinks", Kind.SECTIONS, "What is written.", is_required=True, section=SINK),
    ),
)
