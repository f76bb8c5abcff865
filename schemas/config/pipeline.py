"""One pipeline: a source, a clean sink, and what is kept of the rest."""

from pydantic import Field

from schemas.config.dedup import Dedup, InsertIdDedup, WatermarkDedup
from schemas.config.values import ConfigTable, Name, Topic


class Pipeline(ConfigTable):
    """An element of ``[[pipelines]]``."""

    name: Name = Field(description="Its name, in internal topics, metrics and receipts.")
    source: Topic = Field(description="Topic with duplicates; no other pipeline may read it.")
    sink: Topic = Field(description="Topic without; the same partitions in the same order, but with `route`.")
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
    def routed(self) -> bool:
        """Whether it has two hops, by way of an internal topic."""
        return self.id_dedup is not None and self.id_dedup.route is not None

    @property
    def outputs(self) -> list[str]:
        """The topics that it writes to and users read."""
        return [self.sink, *filter(None, (self.duplicates, self.quarantine))]
