"""Says why hardly any of the first events of an aggregate were counted: most likely its class is the wrong one.

Members are told by their names, a few of them and cut: a value never gets into a message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as sql

from schemas.config.values import duration_words
from spark_sink.query.events import BAD

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

    from schemas.config import Sink

FIRST = 1_000
"""Records at the beginning of a run that are looked at, to the end of the batch that has the last of them."""
_SHARE = 0.9
_LOOKED_AT = 100
"""Records whose members are named."""
_MOST_NAMES = 12
_LONGEST = 40


def hardly_any(records: int, uncounted: int) -> bool:
    """Say whether so many of the records were not counted that it can be no accident."""
    return uncounted > _SHARE * records


class HardlyCounted:
    """Warns, once, where hardly any of a run's first records was counted."""

    def __init__(self, sink: Sink, warn: Callable[[str], None]) -> None:
        self._sink, self._warn = sink, warn
        self._late = self._bad = 0
        self._warned = False

    def look_at(self, kept: DataFrame, late: int, bad: int, first: int) -> None:
        """Look at what one of the first batches did not count.

        Args:
            kept: What `spark_sink.query.events.uncounted` returns of it.
            late: Its late events.
            bad: Its records that are no events.
            first: Records of the run up to its end.
        """
        self._late += late
        self._bad += bad
        if self._warned or not hardly_any(first, self._late + self._bad):
            return
        unreadable = self._bad >= self._late
        # Of bad records that came in a batch before nothing is kept: the next one that has some says why.
        if unreadable and not bad:
            return
        self._warned = True
        sink = self._sink
        told = why_unreadable(kept, sink, self._bad, first) if unreadable else why_late(sink, self._late, first)
        self._warn(f"{sink.name}: {told}")


def why_unreadable(kept: DataFrame, sink: Sink, bad: int, records: int) -> str:
    """Say which code most of the records that are no events have, what was looked for, and what is there.

    Args:
        kept: What `spark_sink.query.events.uncounted` returns: all that are no events are among it.
        sink: The aggregate.
        bad: How many are no events.
        records: Of how many.
    """
    wrong = kept.where(sql.col(BAD).isNotNull())
    counted = wrong.groupBy(BAD).count().orderBy(sql.desc("count"), BAD)
    code = str(counted.limit(1).collect()[0][0])
    path = code.partition(":")[2] or sink.time_field
    parent = path.rpartition(".")[0]
    if "[]" in parent:
        parent = ""
    seen = _members(wrong, parent)
    place = f"members of {parent} seen" if parent else "members seen"
    there = f"{place}: {', '.join(seen)}" if seen else "no value is a JSON object"
    return (
        f"{bad:,} of the first {records:,} records cannot be read as {sink.event}, most of them for {code}: "
        f"looked for {path}; {there}. If that is the wrong class, name the right one in `event`; the records "
        f"are in {sink.aside_path}/bad"
    )


def why_late(sink: Sink, late: int, records: int) -> str:
    """Say by what so many events are late."""
    return (
        f"{late:,} of the first {records:,} events are late: looked for {sink.time_field}, which is more than "
        f"{duration_words(sink.watermark)} behind the newest event (`watermark`, the event-time watermark). If "
        f"that is the wrong field, name the right one in `time_field`; the events are in {sink.aside_path}/late"
    )


def _members(wrong: DataFrame, parent: str) -> list[str]:
    """Return names of members of the values (or of the objects at ``parent``), the most frequent first."""
    text = sql.col("value").cast("string")
    if parent:
        text = sql.get_json_object(text, "$" + "".join(f"['{step}']" for step in parent.split(".")))
    names = (
        wrong.limit(_LOOKED_AT)
        .select(sql.explode(sql.json_object_keys(text)).alias("name"))
        .select(sql.substring("name", 1, _LONGEST + 1).alias("name"))
        .groupBy("name")
        .count()
        .orderBy(sql.desc("count"), "name")
        .limit(_MOST_NAMES + 1)
    )
    found = [_printable(str(row[0])) for row in names.collect()]
    return [*found[:_MOST_NAMES], "…"] if len(found) > _MOST_NAMES else found


def _printable(name: str) -> str:
    """Cut a name, and take from it what a terminal would act on."""
    shown = "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in name)
    return shown if len(shown) <= _LONGEST else f"{shown[: _LONGEST - 1]}…"
