"""The demo knows which events and users would be missing from the clean topic without fingerprints."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from processor.demo.census import Census, true_census
from processor.demo.plan import ID_MEMBER, make_plan
from processor.demo.summary import census_lines
from processor.generator import RecordKind, StreamOptions, make_stream

if TYPE_CHECKING:
    from pathlib import Path

FOUND = Census(events=90, ids=90, users=40, lost_events=7, lost_users=3)


def test_the_truth_is_what_the_records_say_that_must_pass(tmp_path: Path) -> None:
    dedup = make_plan(tmp_path, "localhost:1", "fingerprint", {}).pipeline.dedup
    stream = make_stream(dedup, StreamOptions(6_000, 0.1, 3, 3, 0, malformed=0.01, collisions=0.02))
    collided: list[tuple[str, str]] = []
    first: list[tuple[str, str]] = []
    for part in stream:
        for record, passes, kind in zip(
            part.records(0, len(part)), part.passes, part.kind.tolist(), strict=True
        ):
            if passes:
                event = json.loads(record.value or b"")
                (collided if kind == RecordKind.COLLISION else first).append(
                    (event[ID_MEMBER], event["user_id"])
                )
    users, others = {user for _, user in first}, {user for _, user in collided}

    truth = true_census(stream)

    assert truth == Census(
        events=len(first) + len(collided),
        # Those of the first are all different, and so are the new ones.
        ids=len({id_ for id_, _ in first}) + len(collided),
        users=len(users | others),
        lost_events=len(collided),
        lost_users=len(others - users),
    )
    assert (truth.lost_events, truth.lost_users > 10) == (120, True)
    # Without a fingerprint all of them are duplicates: somebody else has their ids.
    assert {id_ for id_, _ in collided} <= {id_ for id_, _ in first}


def test_each_count_stands_beside_the_truth() -> None:
    lines = census_lines(FOUND, FOUND._replace(lost_users=2))
    assert [(line.what, line.found, line.truth) for line in lines if not line.ok] == [
        ("Spark: users saved", 3, 2)
    ]
    assert len(lines) == 5


def test_people_are_told_what_would_have_been_lost() -> None:
    assert str(FOUND) == (
        "had collisions been dropped as duplicates, 7 of 90 events and 3 of 40 users would have been lost"
    )
