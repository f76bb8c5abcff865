"""Walks the verdict records of a partition, and puts those together whose ranges follow each other.

Whoever reads the source by them, `materialize` or Spark, takes in a run of ranges at a time. What is accepted
of records that are lost, or of another source, is theirs to say.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from processor.errors import StopError
from schemas.verdicts.ranges import goes_with
from schemas.verdicts.record import CorruptVerdictError, VerdictRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from processor.engine.batch.columns import Columns


class VerdictRun(NamedTuple):
    """Verdict records whose ranges follow each other, and the offset behind the last of them in their topic."""

    verdicts: list[VerdictRecord]
    after: int

    @property
    def base(self) -> int:
        """Where the first range begins."""
        return self.verdicts[0].base

    @property
    def end(self) -> int:
        """Where the last one ends."""
        return self.verdicts[-1].end


class VerdictWalk:
    """The way through one partition of a topic of verdicts.

    Args:
        name: Of the topic and the partition.
        accept: Gets offset and value of each record, and returns it; None: it is passed over. May raise
            `CorruptVerdictError`.
    """

    def __init__(self, name: str, accept: Callable[[int, bytes], VerdictRecord | None]) -> None:
        self._name, self._accept = name, accept
        self._run, self._after = list[VerdictRecord](), 0

    def runs(self, columns: Columns) -> Iterator[VerdictRun]:
        """Yield the runs that end in the next records of the topic.

        Raises:
            StopError: A record is not right.
        """
        for offset, value in values_of(columns):
            try:
                found = self._accept(offset, value)
            except CorruptVerdictError as error:
                raise StopError(f"{self._name}:{offset}: the verdict record: {error}") from error
            if found is None:
                continue
            if not goes_with(self._run, found):
                yield from self.rest()
            self._run.append(found)
            self._after = offset + 1

    def rest(self) -> Iterator[VerdictRun]:
        """Yield the run that nothing has ended, if there is one."""
        run, self._run = self._run, []
        if run:
            yield VerdictRun(run, self._after)


def values_of(columns: Columns) -> Iterator[tuple[int, bytes]]:
    """Yield offset and value of each record, a null value as an empty one."""
    for row in range(len(columns)):
        at, size = int(columns.value[row]), max(0, int(columns.value_length[row]))
        yield int(columns.offset[row]), columns.data[at : at + size].tobytes()
