"""One pipeline: a source, a clean sink, and what is kept of the rest."""

from enum import StrEnum
from typing import Literal

from pydantic import Field

from schemas.config.dedup import Dedup, InsertIdDedup, WatermarkDedup
from schemas.config.values import ConfigTable, Name, Topic


class InternalTopic(StrEnum):
    """The topics that an application keeps for itself, each named by what its name ends with."""

    CHANGELOG = "changelog"
    REPARTITION = "repartition"
    POSITIONS = "positions"
    INDEX = "index"
    ROUTE_INDEX = "route-index"

    def of(self, application_id: str, pipeline: str) -> str:
        """Return the name of a pipeline's."""
        return f"{application_id}-{pipeline}-{self}"


class Pipeline(ConfigTable):
    """An element of ``[[pipelines]]``."""

    name: Name = Field(description="Its name, in internal topics, metrics and receipts.")
    source: Topic = Field(description="Topic with duplicates; no other pipeline may read it.")
    sink: Topic | None = Field(
        default=None,
        description="Topic without; the same partitions in the same order, but with `route`. Needed unless "
        '`output` is `"verdicts"`: then only `seqmark materialize` writes it.',
    )
    duplicates: Topic | None = Field(
        default=None, description="Topic for one receipt per dropped record; not set: none."
    )
    quarantine: Topic | None = Field(
        default=None,
        description="Topic for records that cannot be judged; not set: the worker stops at the first.",
    )
    observe: bool = Field(
        default=False,
        description="Judge, and write receipts and metrics, but let every record pass as it came; the state is "
        "what it would be without, so that switching it off goes on from there.",
    )
    output: Literal["records", "verdicts", "both"] = Field(
        default="records",
        description="What becomes of the records that pass: they are written to `sink`; or nothing is, and "
        "`verdicts` says which offsets of the source to skip; or both.",
    )
    verdicts: Topic | None = Field(
        default=None,
        description="Topic for what `output` says beside records: one record per commit and source partition.",
    )
    dedup: Dedup = Field(discriminator="mode", description="By what records are judged.")

    @property
    def id_dedup(self) -> InsertIdDedup | None:
        """`dedup` where records are judged by ids."""
        return self.dedup if isinstance(self.dedup, InsertIdDedup) else None

    @property
    def sequence_dedup(self) -> WatermarkDedup | None:
        """`dedup` where records are judged by sequences."""
        return self.dedup if isinstance(self.dedup, WatermarkDedup) else None

    @property
    def sequences_wrap(self) -> bool:
        """Whether records are judged by sequences that begin again."""
        return self.sequence_dedup is not None and self.sequence_dedup.wraps > 0

    @property
    def routed(self) -> bool:
        """Whether it has two hops, by way of an internal topic."""
        return self.id_dedup is not None and self.id_dedup.route is not None

    @property
    def writes_records(self) -> bool:
        """Whether its worker writes what passes to `sink`."""
        return self.output != "verdicts"

    @property
    def clean_topic(self) -> str:
        """`sink`, where it is known that there is one: its worker writes it, or a command has asked."""
        assert self.sink is not None  # noqa: S101 - `schemas.config.rules` and the commands see to it
        return self.sink

    @property
    def outputs(self) -> list[str]:
        """The topics that its worker writes records to, and users read."""
        sink = self.sink if self.writes_records else None
        return list(filter(None, (sink, self.duplicates, self.quarantine)))
