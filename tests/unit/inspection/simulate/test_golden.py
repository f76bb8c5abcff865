"""What a simulation says of the same records stays the same, to the last digit: `golden/simulate.json`.

``python -m tests.unit.inspection.simulate.test_golden`` writes it, where something else is meant to be said.
"""

from __future__ import annotations

import hashlib
import json
import random
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from processor.inspection.proposal.observed import observe
from processor.inspection.simulate import page, show
from processor.inspection.simulate.forecast import Simulation
from processor.inspection.simulate.recommend import recommend
from processor.inspection.simulate.ways import WayTaker, ways_of
from processor.inspection.topic_records import TopicRecord
from processor.wire.encode import plain_batch
from schemas.config import Pipeline, Settings
from tests.support.judges.scopes import columns_of

FILE = Path(__file__).parents[3] / "golden" / "simulate.json"
BEGIN_MS, HOUR_MS = 1_735_689_600_000, 3_600_000
RECORDS, PARTITIONS, PIECE = 1_200, 2, 150
OTHERS = 900
"""Records that the ways beside the configured one take, of all partitions together: not all."""
WINDOWS = [20 * 60_000, HOUR_MS, 3 * HOUR_MS]
COMMIT_MS = 100

HEADER_ID: dict[str, Any] = {"mode": "insert-id", "id": [{"from": "header", "name": "id"}], "window": "1h"}
BLOOM = {"bucket": "10m", "expected_per_bucket": 1_000}
SEQUENCE = {"from": "header", "name": "seq", "format": "int64"}
PRINTED = {**HEADER_ID, "fingerprint": {"exclude": ["/sent_at"]}}


class Case(NamedTuple):
    """A pipeline's ``dedup``, how many rows a sample may have, and how many partitions the sink has."""

    dedup: dict[str, Any]
    most_rows: int = 4_096
    sink: int = PARTITIONS


CASES = {
    "exact": Case(HEADER_ID),
    "filters": Case({**HEADER_ID, "backend": "bloom", "bloom": BLOOM, "refresh": True}),
    "sampled": Case({**HEADER_ID, "window": "3h"}, most_rows=512),
    "routed": Case({**HEADER_ID, "route": "by-id"}, sink=3),
    "routed, sampled": Case({**HEADER_ID, "route": "by-id"}, most_rows=512, sink=3),
    "fingerprint": Case({**PRINTED, "on_collision": "drop"}),
    "fingerprint, sampled": Case({**PRINTED, "refresh": True}, most_rows=512),
    "missing": Case({**HEADER_ID, "id": [{"from": "value", "pointer": "/n"}], "on_missing": "pass"}),
    "arrival": Case({**HEADER_ID, "time": "arrival", "window": "7d"}),
    "sequence": Case({"mode": "watermark", "sequence": SEQUENCE, "reorder_window": 8}),
    "scopes": Case({"mode": "watermark", "sequence": SEQUENCE, "scope": "key"}),
}


def stream(partition: int) -> list[TopicRecord]:
    """Return records of six hours: copies, late ones, shared ids, some with the other partition, faults."""
    drawn, now = random.Random(partition), BEGIN_MS
    records: list[TopicRecord] = []
    for n in range(RECORDS):
        now += drawn.randrange(2 * 6 * HOUR_MS // RECORDS)
        at = now - (drawn.randrange(HOUR_MS // 2) if drawn.random() < 0.1 else 0)
        chance = drawn.random()
        if records and chance < 0.15:
            old = records[drawn.randrange(max(0, n - 900), n)]
            value = json.dumps(json.loads(old.value or b"{}") | {"sent_at": now}).encode()
            records.append(old._replace(offset=n, timestamp=at, value=value))
            continue
        owner = 0 if chance < 0.2 else partition
        name = b"%d of %d" % (drawn.randrange(n) if records and chance < 0.17 else n, owner)
        number = (10 * n - (15 if drawn.random() < 0.05 else 0)).to_bytes(8, "big", signed=True)
        headers: list[Any] = [("seq", number), ("id", name)] if drawn.random() > 0.01 else [("seq", number)]
        value = json.dumps({"n": n, "text": f"event {n}", "sent_at": now}).encode()
        key = b"user %d" % drawn.randrange(20)
        records.append(TopicRecord("raw", partition, n, at, False, key, value, headers))
    return records


@cache
def source() -> list[list[TopicRecord]]:
    return [stream(partition) for partition in range(PARTITIONS)]


def pipeline_of(dedup: dict[str, Any]) -> Pipeline:
    """Return a pipeline as a config has it."""
    given = {
        "kafka": {"bootstrap_servers": "localhost:9092"},
        "worker": {"application_id": "golden"},
        "pipelines": [{"name": "p", "source": "raw", "sink": "clean", "quarantine": "aside", "dedup": dedup}],
    }
    return Settings.model_validate(given).pipelines[0]


def simulated(case: Case) -> Simulation:
    """Do what the command does with what it has read, in pieces."""
    pipeline, records = pipeline_of(case.dedup), source()
    found = Simulation("p", "raw", PARTITIONS)
    ways = ways_of(pipeline, observe([each for some in records for each in some]), found)
    taker = WayTaker(ways, WINDOWS, (PARTITIONS, case.sink), case.most_rows)
    for partition, some in enumerate(records):
        taker.begin(partition, OTHERS // max(1, len(ways) - 1) // PARTITIONS)
        for start in range(0, len(some), PIECE):
            part = some[start : start + PIECE]
            rows = [
                (
                    each.key,
                    each.value,
                    each.timestamp,
                    tuple((str(name).encode(), value) for name, value in each.headers),
                )
                for each in part
            ]
            columns = columns_of(plain_batch(rows))[0]
            columns.offset[:] = range(start, start + len(part))
            columns.timestamp[:] = [each.timestamp for each in part]
            taker.take(columns)
    found.forecasts = [each.forecast() for each in taker.judging]
    return found


def said(case: Case) -> dict[str, Any]:
    """Return all that the command says of it, but for times: JSON, tables, sentences, plot and advice."""
    found = simulated(case)
    chosen = recommend(found, COMMIT_MS)
    assert "<html" in page.render("c.toml", COMMIT_MS, [(found, chosen)])
    told = {
        "ways": [
            {
                **show.fields(each, COMMIT_MS),
                "sentences": list(show.sentences(each)),
                "tables": [[one.name, *map(list, one.rows)] for one in show.tables(each, COMMIT_MS)],
                "plot": list(show.plot(getattr(each, "curve", []))),
            }
            for each in found.forecasts
        ],
        "candidates": found.candidates,
        "changing": found.changing,
        "notes": found.notes,
        "recommended": [chosen.dedup, chosen.reasons, chosen.catches, chosen.cost._asdict()],
    }
    plain: dict[str, Any] = json.loads(json.dumps(told))
    # Of the ways beside the configured one a digest: they come again in other cases.
    plain["ways"][1:] = [[each["why"], digest(each)] for each in plain["ways"][1:]]
    return plain


def digest(told: dict[str, Any]) -> str:
    """Return sixteen digits of all that is said of a way."""
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]


@pytest.mark.parametrize("case", CASES)
def test_a_simulation_says_what_it_has_said(case: str) -> None:
    golden: dict[str, Any] = json.loads(FILE.read_text())
    assert said(CASES[case]) == golden[case]


if __name__ == "__main__":
    lines = [f"{json.dumps(name)}: {json.dumps(said(case))}" for name, case in CASES.items()]
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")
