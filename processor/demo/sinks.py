"""Runs the job of ``seqmark aggregate --available-now`` in this process.

A JVM takes seconds to start. Here one JVM runs the job, reads its output back and serves the report.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from decimal import Decimal
from typing import TYPE_CHECKING

from processor.demo.aggregate import Aggregated, Amounts, Key, closed, newest_ms, true_rows
from processor.demo.census import Census
from processor.demo.collisions import ORIGINAL_ID
from processor.demo.plan import ID_MEMBER
from processor.errors import StopError
from spark_sink.job import SinkJob, SinkOptions
from spark_sink.reading.read_back import count_topic, read_rows
from spark_sink.session import spark_session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from processor.demo.plan import DemoPlan
    from processor.generator import StreamPartition
    from spark_sink.query.progress import Totals
    from spark_sink.reading.summary import SummaryRow

_MASTER = "local[*]"
# A run of seconds: what the second compiler would make faster is over before it is done (measured for a read of
# 500,000 events on two busy cores: 14 instead of 19 s, start included).
_SHORT = "-XX:TieredStopAtLevel=1"

_CLICK = (
    f"get_json_object(CAST(value AS STRING), '$.{ID_MEMBER}') AS id",
    "get_json_object(CAST(value AS STRING), '$.user_id') AS user",
    f"coalesce(exists(headers, header -> header.key = '{ORIGINAL_ID}'), false) AS collided",
)
_COUNTS = (
    "count(*)",
    "count(DISTINCT id)",
    "count(DISTINCT user)",
    "count_if(collided)",
    "count(DISTINCT user) - count(DISTINCT CASE WHEN NOT collided THEN user END)",
)


class _Listener:
    """The job's audience: its batches are few and short, so that their progress is no news."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say

    def say(self, text: str) -> None:
        self._say(f"   {text}")

    warn = say

    def progress(self, totals: Mapping[str, Totals]) -> None:
        del totals


@contextmanager
def spark(say: Callable[[str], None]) -> Iterator[None]:
    """Hold a Spark for the job and for all that reads its output; its JVM ends with the process.

    Raises:
        StopError: It does not start.
    """
    with spark_session("seqmark-demo", master=_MASTER, jvm_flags=_SHORT, say=_Listener(say).say):
        yield


def aggregate(
    plan: DemoPlan,
    stream: Sequence[StreamPartition],
    say: Callable[[str], None],
    stoppable: Callable[[Callable[[], None]], AbstractContextManager[None]],
) -> Aggregated:
    """Run the aggregate over what is in the clean topic now, and put what it has written beside the truth.

    ``stoppable`` is given what asks the job to end; a block in which that is called when the demo is to end.

    Raises:
        StopError: Spark failed, or the output cannot be read.
    """
    began = time.monotonic()
    settings = plan.settings
    (sink,) = settings.aggregates
    options = SinkOptions(master=_MASTER, available_now=True)
    job = SinkJob(settings, settings.aggregates, options, _Listener(say))
    with stoppable(job.stop):
        job.run()
    seconds = time.monotonic() - began
    whole, totals = true_rows(stream), job.totals[sink.name]
    done = closed(whole, newest_ms(stream), sink.watermark)
    still = {key: row for key, row in whole.items() if key not in done}
    found = [_row(row) for row in read_rows(settings, sink)]
    return Aggregated(found, done, still, totals.late, totals.bad, seconds)


def take_census(plan: DemoPlan) -> Census:
    """Let Spark count events, ids and users of the clean topic, and those that are there as collisions only.

    Raises:
        StopError: Spark cannot read the topic.
    """
    return Census(*count_topic(plan.settings.kafka, plan.pipeline.clean_topic, _CLICK, _COUNTS))


def _row(row: SummaryRow) -> tuple[Key, Amounts]:
    (campaign,), (events, revenue) = row.group, row.values
    if not (isinstance(campaign, str) and isinstance(events, int) and isinstance(revenue, Decimal)):
        raise StopError(f"the aggregate has a row of other types than declared: {row}")
    return (row.start_ms, campaign), Amounts(events, revenue)
