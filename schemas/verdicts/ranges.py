"""Follows the ranges of a partition's verdict records: each goes on where the one before ended, or begins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from schemas.verdicts.record import UNKNOWN_TOPIC, CorruptVerdictError, VerdictRecord

if TYPE_CHECKING:
    from collections.abc import Sequence

MOST_JUDGED = 1 << 18
"""Source offsets that are worked on at a time, about: at most 2 MiB of skipped ones."""
MOST_VERDICTS = 4096
"""Verdict records that are worked on at a time: about 5 MB, of a quiet topic with one per source record."""


@dataclass(slots=True)
class VerdictRanges:
    """The records of one partition of a verdicts topic, in the order in which they stand there.

    Attributes:
        partition: Its number, and the source partition's.
        topic_id: Of the source, as the brokers have it now; zeros: not known.
        end: Where the last range ended; None before the first record.
    """

    partition: int
    topic_id: bytes = UNKNOWN_TOPIC
    end: int | None = None

    def is_other(self, found: VerdictRecord) -> bool:
        """Return whether a record was made from another topic by the source's name, as far as is known."""
        return UNKNOWN_TOPIC not in {found.topic_id, self.topic_id} and found.topic_id != self.topic_id

    def go_on_behind_lost(self, value: bytes | None) -> None:
        """Let the next record leave a gap behind the one before: verdicts in between are lost.

        Raises:
            CorruptVerdictError: It is not whole.
        """
        if self.end is not None and 0 <= self.end < VerdictRecord.decode(value).base:
            self.end = None

    def take(self, value: bytes | None) -> VerdictRecord:
        """Read the next record.

        Raises:
            CorruptVerdictError: It is not whole, is of another partition or topic, or leaves a gap or an
                overlap: one is missing, or stands there twice or in the wrong place.
        """
        found = VerdictRecord.decode(value)
        if found.partition != self.partition:
            raise CorruptVerdictError(
                f"it is of source partition {found.partition}, and not of {self.partition}"
            )
        if self.is_other(found):
            raise CorruptVerdictError(
                "it was made from another topic by the source's name, which was deleted and made anew"
            )
        if self.end is not None and not found.begins and found.base != self.end:
            what = "overlaps with" if found.base < self.end else "leaves a gap behind"
            raise CorruptVerdictError(
                f"its range from {found.base} to {found.end} {what} the one before, which ends at {self.end}"
            )
        self.end = found.end
        return found


def goes_with(some: Sequence[VerdictRecord], found: VerdictRecord) -> bool:
    """Return whether a record is worked on with those before it: it goes on there, and there is room.

    More than some thousand records, or a quarter of a million offsets, are not.
    """
    if not some:
        return True
    full = len(some) >= MOST_VERDICTS or found.end - some[0].base > MOST_JUDGED
    return not full and found.base == some[-1].end


def unspoken(was: int | None, found: VerdictRecord) -> str | None:
    """Return what is said of offsets that no range has, before one that begins; None: there are none.

    Args:
        was: Where the range before ended; None: it is the first.
        found: The range.
    """
    if was is None or not found.begins or found.base <= was:
        return None
    return (
        f"offsets {was} to {found.base - 1} have no verdict: the pipeline wrote none meanwhile (output "
        f'"records", or another topic), or a reset has passed over them'
    )
