"""What a worker needs follows from the config; a marker's time is read off the bytes of its batch."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from processor.inspection.doctor.examine import try_machine
from processor.inspection.doctor.rights import wanted_operations
from processor.inspection.doctor.transaction import marker_ms
from processor.inspection.findings import Findings, Level
from processor.kafka.protocol.codes import NOT_TOLD, Operation, lacking
from schemas.config import Settings

if TYPE_CHECKING:
    import pytest

NOW_MS = 1_800_000_000_000


def settings(**worker: object) -> Settings:
    return Settings.model_validate(
        {
            "kafka": {"bootstrap_servers": "a:1"},
            "worker": {"application_id": "app", **worker},
            "pipelines": [
                {
                    "name": "ids",
                    "source": "raw",
                    "sink": "clean",
                    "dedup": {"mode": "insert-id", "id": [{"from": "key"}], "window": "1h", "route": "by-id"},
                },
                {
                    "name": "more",
                    "source": "clean",
                    "sink": "cleaner",
                    "dedup": {"mode": "watermark", "sequence": {"from": "header", "name": "seq"}},
                },
            ],
        }
    )


def test_a_source_is_only_read_and_what_is_trimmed_may_be_deleted() -> None:
    wanted = {topic: operations for topic, (_, operations) in wanted_operations(settings()).items()}

    assert Operation.WRITE not in wanted["raw"]
    assert Operation.WRITE in wanted["clean"]  # the source of another pipeline too
    deleted = {topic for topic, operations in wanted.items() if Operation.DELETE in operations}
    assert deleted == {"app-ids-changelog", "app-ids-repartition"}


def test_what_a_broker_does_not_tell_is_not_called_missing() -> None:
    assert lacking(1 << Operation.READ, [Operation.READ, Operation.WRITE]) == [Operation.WRITE]
    assert lacking(NOT_TOLD, [Operation.READ]) == []


def batch(offset: int, records: int, timestamp_ms: int, *, control: bool) -> bytes:
    attributes = 0x30 if control else 0x10
    head = struct.pack(">qiibIhiqq", offset, 100 - 12, 0, 2, 0, attributes, records - 1, 0, timestamp_ms)
    return head.ljust(100, b"\0")


def test_the_first_marker_behind_an_offset_is_found_and_others_are_passed_over() -> None:
    data = (
        batch(3, 1, 1, control=True)
        + batch(4, 6, 2, control=False)
        + batch(10, 1, NOW_MS, control=True)
        + batch(11, 1, 4, control=True)[:40]
    )

    assert marker_ms(data, 4) == (NOW_MS, 11)
    assert marker_ms(data[:200], 4) == (None, 10)
    assert marker_ms(b"", 4) == (None, 4)


def test_a_state_folder_that_cannot_be_made_is_a_problem(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("machine")
    (folder / "file").write_text("")
    trials = Findings()

    try_machine(settings(state_dir=str(folder / "file" / "state")), trials)

    (row,) = [row for row in trials.rows if row.tried.startswith("worker.state_dir")]
    assert (row.outcome, row.says) == (Level.PROBLEM, f"{folder / 'file'} is no folder")
