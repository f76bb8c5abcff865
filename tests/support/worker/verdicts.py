"""Reads a source by its verdicts as the page says it, a record at a time, with none of Seqmark's readers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from schemas.verdicts.record import VerdictRecord
from tests.support.kafka.topics import Record, read_topic

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.support.worker.process import WorkerConfig


def verdicts_of(config: WorkerConfig) -> dict[int, list[VerdictRecord]]:
    """Return the verdict records of the first pipeline, by partition."""
    found: dict[int, list[VerdictRecord]] = {}
    for each in read_topic(config.bootstrap_servers, config.verdicts):
        found.setdefault(each.partition, []).append(VerdictRecord.decode(each.value))
    return found


def clean_by(verdicts: Iterable[VerdictRecord], source: Iterable[Record]) -> list[Record]:
    """Return what a reader takes from a partition of the source, in order; ranges must follow each other."""
    records = {record.offset: record for record in source}
    found: list[Record] = []
    end: int | None = None
    for verdict in verdicts:
        assert verdict.begins or end is None or verdict.base == end, (verdict, end)
        end = verdict.end
        skipped = set(verdict.skipped.tolist())
        inside = [records[at] for at in range(verdict.base, verdict.end) if at in records]
        assert len(inside) == verdict.sums.records, verdict
        found += [each for each in inside if each.offset not in skipped]
    return found


def read_clean(config: WorkerConfig) -> list[Record]:
    """Return the clean stream of the first pipeline as its verdicts say it, by partition."""
    source = read_topic(config.bootstrap_servers, config.source)
    verdicts = verdicts_of(config)
    numbers = sorted({record.partition for record in source})
    return [
        record
        for number in numbers
        for record in clean_by(verdicts.get(number, []), (each for each in source if each.partition == number))
    ]
