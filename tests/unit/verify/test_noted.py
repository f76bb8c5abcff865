"""What the last certificate covered is kept where a worker's state is, and never stands in a worker's way."""

from __future__ import annotations

import json
import stat
from typing import TYPE_CHECKING

import pytest

from processor.verify.noted import FOLDER, MOST_BYTES, keep_note, read_note
from processor.verify.report import Rule, VerifyReport
from schemas.config import Settings

if TYPE_CHECKING:
    from pathlib import Path

TOPICS = {"raw": bytes(range(16)), "clean": bytes(16)}


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    dedup = {"mode": "watermark", "sequence": {"from": "header", "name": "seq", "format": "int64"}}
    pipeline = {"name": "clicks", "source": "raw", "sink": "clean", "dedup": dedup}
    worker = {"application_id": "app", "state_dir": str(tmp_path / "state")}
    return Settings.model_validate(
        {"kafka": {"bootstrap_servers": "h:1"}, "worker": worker, "pipelines": [pipeline]}
    )


def keep(settings: Settings, *reports: VerifyReport, at_ms: int = 1_000) -> Path:
    keep_note(settings, settings.pipelines[0], reports, TOPICS, at_ms)
    return settings.worker.state_dir / "app" / FOLDER / "clicks.json"


def test_a_note_says_of_each_partition_what_was_compared(settings: Settings) -> None:
    first = VerifyReport("clicks", 0, 5, 90, judged_from=7, unproved=2, state_id=b"\x01\xff")
    keep(settings, first, VerifyReport("clicks", 1, 0, 3))

    note = read_note(settings, "clicks")

    assert note is not None
    assert (note.at_ms, note.proved, note.topic_ids) == (1_000, True, {"raw": TOPICS["raw"].hex()})
    assert note.states == {0: "01ff"}
    assert [(each.start, each.stop, each.judged_from, each.unproved) for each in note.spans.values()] == [
        (5, 90, 7, 2),
        (0, 3, 0, 0),
    ]


def test_a_broken_certificate_replaces_one_that_proved(settings: Settings) -> None:
    keep(settings, VerifyReport("clicks", 0, 0, 9))
    broken = VerifyReport("clicks", 0, 0, 12)
    broken.add(Rule.LOST, 3, "it is nowhere")

    keep(settings, broken, at_ms=2_000)

    note = read_note(settings, "clicks")
    assert note is not None
    assert (note.proved, note.at_ms) == (False, 2_000)


def test_only_its_owner_reads_a_note_and_no_part_of_one_is_left(settings: Settings) -> None:
    path = keep(settings, VerifyReport("clicks", 0, 0, 9))

    assert [each.name for each in path.parent.iterdir()] == ["clicks.json"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_folder_of_another_user_is_left_alone(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    (settings.worker.state_dir / "app").mkdir(parents=True)
    monkeypatch.setattr("processor.verify.noted.os.geteuid", lambda: 4_242)

    with pytest.raises(PermissionError, match="this is user 4242"):
        keep(settings, VerifyReport("clicks", 0, 0, 9))

    assert not list((settings.worker.state_dir / "app").iterdir())


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"null", b'{"version": 2}', b" " * (MOST_BYTES + 1)],
    ids=["empty", "cut", "a list", "null", "a later version", "too long"],
)
def test_what_is_no_note_is_none(settings: Settings, content: bytes) -> None:
    path = keep(settings, VerifyReport("clicks", 0, 0, 9))
    path.write_bytes(content)

    assert read_note(settings, "clicks") is None


def test_a_note_of_another_pipeline_or_of_words_is_none(settings: Settings) -> None:
    path = keep(settings, VerifyReport("clicks", 0, 0, 9))
    found = json.loads(path.read_bytes())
    path.with_name("other.json").write_bytes(path.read_bytes())
    path.write_text(json.dumps({**found, "at_ms": "yesterday"}))

    assert read_note(settings, "clicks") is None
    assert read_note(settings, "other") is None
    assert read_note(settings, "nobody") is None
