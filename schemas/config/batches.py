"""One batch: files at rest that Spark makes clean, within a run and across runs."""

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from schemas.config.values import ConfigTable, DurationMs, ModelName, Name, Text, Topic, wrong

OWN_COLUMNS = "seqmark_"
"""How the names of the columns begin that a batch adds to every row."""
TOPIC_TIME = "kafka_timestamp"
_COLUMN_TYPE = re.compile(
    r"string|boolean|tinyint|smallint|int|bigint|float|double|date|timestamp|timestamp_ntz"
    r"|decimal\((?P<precision>\d{1,2}), *(?P<scale>\d{1,2})\)"
)
_MOST_DIGITS = 38
"""Of a decimal, in Spark."""
TOPIC_COLUMNS = ("kafka_key", "kafka_partition", "kafka_offset", TOPIC_TIME)
"""What rows of a topic have beside the fields of their values."""


def _folder(value: str) -> str:
    if "://" in value:
        raise wrong(
            "must be a path of a file system that Spark's driver and executors all see, without scheme: "
            "commits rest on links and locks of files, which object stores do not have"
        )
    if any(letter in value for letter in "*?["):
        raise wrong(
            "must be a folder or a file; for several patterns give them to --input, where a shell expands"
        )
    return value


def _column(value: str) -> str:
    if value.startswith(OWN_COLUMNS):
        raise wrong(f"must not begin with {OWN_COLUMNS}: Seqmark adds columns of such names")
    return value


def _column_type(value: str) -> str:
    found = _COLUMN_TYPE.fullmatch(value)
    if found is None:
        raise wrong(
            "must be string, boolean, tinyint, smallint, int, bigint, float, double, decimal(p,s), date, "
            "timestamp or timestamp_ntz"
        )
    if found["precision"] and not 0 <= int(found["scale"]) <= int(found["precision"]) <= _MOST_DIGITS:
        raise wrong(f"must have at most {_MOST_DIGITS} digits, and no more of them behind the point")
    return value


Folder = Annotated[Text, AfterValidator(_folder)]
InputColumn = Annotated[Text, AfterValidator(_column)]
ColumnType = Annotated[Text, AfterValidator(_column_type)]


class BatchInput(ConfigTable):
    """The table ``input``, of files."""

    format: Literal["json", "parquet", "delta"] = Field(
        description="json: a JSON object per line, also as .gz; parquet: Parquet files; delta: a Delta table."
    )
    path: Folder = Field(
        description="A file, or a folder with all files below it; as for Spark names that begin with a dot, or "
        "with _ and have no =, are hidden. `--input` names others."
    )

    @property
    def place(self) -> str:
        """Where the rows are, for people."""
        return self.path


class TopicInput(ConfigTable):
    """The table ``input``, of a topic."""

    format: Literal["kafka"] = Field(
        description="kafka: the records of a topic of the cluster in [kafka], a JSON object each."
    )
    topic: Topic = Field(
        description="The topic. A run reads it, read_committed, from where the last one ended to its end."
    )

    @property
    def place(self) -> str:
        """Where the rows are, for people."""
        return f"topic {self.topic}"


class BatchOutput(ConfigTable):
    """The table ``output``."""

    format: Literal["parquet", "delta", "iceberg"] = Field(
        description="parquet: Parquet files, which count when a commit file names them; delta, iceberg: such "
        "files too, which count when the log of the table itself names them."
    )
    path: Folder = Field(description="Folder of the clean table. It is also what the next run looks ids up in.")


class BatchFingerprint(ConfigTable):
    """The table ``fingerprint`` of a batch: by what a resend and an id with other content are told apart."""

    exclude: list[InputColumn] = Field(
        default_factory=list,
        description="Columns that do not count, such as the time of sending; a column inside an object goes "
        "with it.",
    )


class BatchRename(ConfigTable):
    """The table ``rename`` of a batch."""

    to: InputColumn = Field(
        description="The column of the id that gets the new id; the old one is kept in seqmark_original_id."
    )


class FileBatch(ConfigTable):
    """An element of ``[[batches]]``: files that `seqmark batch` makes clean."""

    name: Name = Field(description="Its name.")
    input: BatchInput | TopicInput = Field(discriminator="format", description="What is read.")
    output: BatchOutput = Field(description="Where the clean rows go.")
    duplicates: Folder | None = Field(
        default=None,
        description="Folder for receipts, one row per dropped row and per collision; not set: there are none.",
    )
    quarantine: Folder | None = Field(
        default=None,
        description="Folder for rows that cannot be judged; not set: the run stops at the first.",
    )
    id: Annotated[list[InputColumn], Field(min_length=1)] = Field(
        description="The columns that make an id: of strings, whole numbers, booleans or bytes."
    )
    normalise: dict[InputColumn, Literal["uuid", "integer", "lower"]] = Field(
        default_factory=dict,
        description="What of a column of the id does not count, as in the parts of a pipeline's id, such as "
        '{ event_id = "uuid" }. Rows are kept as they came.',
    )
    event_time: InputColumn = Field(
        description="The column with the time of the event, which decides which copy is first, and the date: a "
        "timestamp, an ISO 8601 text, or whole milliseconds since 1970; without a zone it is UTC. Of a topic "
        "it may be kafka_timestamp, that of the record."
    )
    window: DurationMs = Field(
        description="How far apart in event time two rows of one id are copies, within a run and across runs."
    )
    ignore: list[Text] = Field(
        default_factory=list,
        description='Patterns of input files that are left out, such as "*.csv", by name or by path from the '
        "folder on. A file of another format that no pattern names ends the run.",
    )
    columns: dict[InputColumn, ColumnType] = Field(
        default_factory=dict,
        description='Types of columns of JSON, such as { amount = "decimal(18,2)" }: string, boolean, tinyint, '
        "smallint, int, bigint, float, double, decimal(p,s), date, timestamp, timestamp_ntz. A row with a "
        "value that does not fit goes to quarantine. A run tells all other types from the values; fractions "
        "become decimal(38,18).",
    )
    model: ModelName | None = Field(
        default=None,
        alias="schema",
        description='A pydantic model, "module:Model", whose fields say the types of columns of JSON.',
    )
    fingerprint: BatchFingerprint | None = Field(
        default=None,
        description="By what a resend and an id that comes with other content are told apart; not set: by "
        "nothing, a row whose id was kept is a duplicate.",
    )
    on_collision: Literal["pass", "tag", "rename", "quarantine", "drop"] = Field(
        default="pass",
        description="What becomes of a row whose id comes with other content; needs fingerprint. tag fills the "
        "column seqmark_collision; quarantine and drop keep no memory of it.",
    )
    rename: BatchRename | None = Field(
        default=None,
        description='With on_collision "rename": the column that gets the new id; not set: the only one.',
    )
    rename_first: bool = Field(
        default=False,
        description="Rename the first of rows that collide, too, where it is not committed yet.",
    )

    @property
    def renamed_column(self) -> str | None:
        """The column that gets new ids; None: no row is renamed."""
        if self.on_collision != "rename":
            return None
        return self.rename.to if self.rename else self.id[0]
