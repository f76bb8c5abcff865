"""A query that runs, and what belongs to it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from spark_sink.failures import was_too_slow

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql.streaming import StreamingQuery

    from schemas.config import Sink
    from spark_sink.side_output import SideOutput

BEGINNINGS = 4
"""So often at most a query is begun whose Python worker does not start in time."""
_REPORTS_S = 30.0
"""So long a query's reports may come after its end: they say what its last batches did not count, and why."""


@dataclass(slots=True)
class RunningQuery:
    """One aggregate's query, which `begin` starts from its checkpoint."""

    sink: Sink
    aside: SideOutput
    begin: Callable[[], StreamingQuery]
    until_idle: bool
    query: StreamingQuery = field(init=False)
    beginnings: int = 1
    idle: bool = False
    ended: bool = False
    _gone_s: float | None = None

    def __post_init__(self) -> None:
        self.query = self.begin()

    @property
    def run(self) -> str:
        """What Spark calls this run of it; one that begins again has another."""
        return str(self.query.runId)

    def given_up(self) -> bool:
        """Look whether it has ended, and so long since a look found it gone that no report can be expected."""
        if self.query.isActive:
            return False
        if self._gone_s is None:
            self._gone_s = time.monotonic()
        return time.monotonic() - self._gone_s >= _REPORTS_S

    def begins_again(self, error: BaseException) -> bool:
        """Begin again if a Python worker was too slow before the first batch was done.

        Returns:
            Whether it did.
        """
        if self.beginnings >= BEGINNINGS or not was_too_slow(error) or self.query.lastProgress is not None:
            return False
        self.beginnings += 1
        self.query = self.begin()
        self.ended, self._gone_s = False, None
        return True
