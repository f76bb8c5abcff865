"""Says how far the verdicts of a pipeline have been applied to a table.

It stands in the table's own log, so that it goes where the table goes:

    Delta     a transaction identifier per partition: the application is
              "seqmark.apply/PIPELINE/<topic id of the verdicts>/<of the source>/PARTITION",
              the version the position
    Iceberg   the property "seqmark.apply.PIPELINE", JSON:
              {"verdicts": <topic id>, "source": <topic id>, "at": {PARTITION: position}}

A position is the offset in the topic of verdicts of the first record that is not applied for good. Topic ids
are 32 hex digits (KIP-516), zeros where brokers give none. Neither form changes what a writer that appends
meanwhile looks at: no append fails because of it.

Invariant: it is written behind what it speaks of, and never leads. Where it lags, the same rows are looked for
again, and there are none.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from processor.errors import StopError

if TYPE_CHECKING:
    from collections.abc import Iterable

PREFIX = "seqmark.apply"
UNKNOWN = "0" * 32
_PARTS = 5


class ApplyProgress(NamedTuple):
    """How far verdicts were applied.

    Attributes:
        verdicts_id: Of the topic of verdicts.
        source_id: Of the topic that they speak of.
        at: Positions by partition.
    """

    verdicts_id: str
    source_id: str
    at: dict[int, int]


def is_same(known: str, now: str) -> bool:
    """Whether two topic ids are of one topic, as far as they tell."""
    return known == now or UNKNOWN in {known, now}


def delta_transactions(pipeline: str, progress: ApplyProgress) -> list[dict[str, Any]]:
    """Return the actions of a Delta commit that note a progress."""
    now = int(time.time() * 1000)
    name = f"{PREFIX}/{pipeline}/{progress.verdicts_id}/{progress.source_id}"
    return [
        {"txn": {"appId": f"{name}/{number}", "version": at, "lastUpdated": now}}
        for number, at in sorted(progress.at.items())
    ]


def delta_progress(pipeline: str, transactions: Iterable[dict[str, Any]]) -> ApplyProgress | None:
    """Return the progress that stands in a Delta log, of the topics of which it was noted last; None: none."""
    found: list[tuple[int, ApplyProgress]] = []
    for each in transactions:
        parts = str(each["appId"]).split("/")
        if len(parts) == _PARTS and parts[:2] == [PREFIX, pipeline]:
            at = {int(parts[4]): int(each["version"])}
            found.append((int(each.get("lastUpdated") or 0), ApplyProgress(parts[2], parts[3], at)))
    if not found:
        return None
    _, last = max(found, key=lambda each: each[0])
    same = (each.at for _, each in found if each[:2] == last[:2])
    return last._replace(at={number: at for each in same for number, at in each.items()})


def iceberg_property(progress: ApplyProgress) -> str:
    """Return the value of an Iceberg table's property that notes a progress."""
    at = {str(number): at for number, at in sorted(progress.at.items())}
    return json.dumps({"verdicts": progress.verdicts_id, "source": progress.source_id, "at": at})


def iceberg_progress(text: str | None, table: str) -> ApplyProgress | None:
    """Read it; None: nothing is noted.

    Raises:
        StopError: Somebody else has written it.
    """
    if text is None:
        return None
    try:
        read = json.loads(text)
        at = {int(number): int(at) for number, at in read["at"].items()}
        return ApplyProgress(str(read["verdicts"]), str(read["source"]), at)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StopError(
            f"{table} has a property {PREFIX}.… that Seqmark has not written ({text[:100]}). With --again its "
            "place is taken"
        ) from error
