"""A record is called covered only where the last certificate here proved it, of these very topics."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from processor.inspection.explain.covered import NONE, LastCertificate
from processor.verify.noted import FOLDER, keep_note
from processor.verify.report import Rule, VerifyReport
from processor.wire.receipt_values import RecordRef
from schemas.changelog.position import NO_BATCH, Position
from schemas.config import Settings
from tests.support.explain.world import (
    CHANGELOG,
    FIRST,
    SECOND,
    SINK,
    SOURCE,
    explained,
    identified,
    judged_world,
    origin,
    position,
)
from tests.support.explain.world import settings_of as by_ids

if TYPE_CHECKING:
    from pathlib import Path

IDS = {"raw": bytes(range(16)), "clean": bytes(range(1, 17))}
AT_MS = 1_772_344_800_000
NOW, BEFORE = b"now" + bytes(13), b"before" + bytes(10)
WHEN = "2026-03-01T06:00:00.000Z"


def settings_of(folder: Path, **dedup: object) -> Settings:
    keys = {"mode": "watermark", "sequence": {"from": "header", "name": "seq", "format": "int64"}, **dedup}
    pipeline = {"name": "clicks", "source": "raw", "sink": "clean", "dedup": keys}
    worker = {"application_id": "app", "state_dir": str(folder)}
    return Settings.model_validate(
        {"kafka": {"bootstrap_servers": "h:1"}, "worker": worker, "pipelines": [pipeline]}
    )


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return settings_of(tmp_path)


def proved(settings: Settings, *reports: VerifyReport) -> None:
    keep_note(settings, settings.pipelines[0], reports, IDS, AT_MS)


def state(state_id: bytes = NOW, since_ms: int = AT_MS - 1_000) -> Position:
    return Position(90, NO_BATCH, 0, bytes(16), state_id, 1, since_ms=since_ms)


def said(
    settings: Settings,
    offset: int,
    ids: dict[str, bytes] | None = None,
    partition: int = 0,
    now: Position | None = None,
) -> str:
    certificate = LastCertificate(settings, settings.pipelines[0], IDS if ids is None else ids)
    return certificate.of(RecordRef("raw", partition, offset), now or state())


def test_without_a_note_there_is_no_certificate_here(settings: Settings) -> None:
    assert said(settings, 5) == NONE


@pytest.mark.parametrize(
    ("offset", "partition", "what"),
    [
        (5, 0, "covered by that of 2026-03-01T06:00:00.000Z, which trusted receipts up to offset 8"),
        (8, 0, "covered by that of 2026-03-01T06:00:00.000Z"),
        (89, 0, "covered by that of 2026-03-01T06:00:00.000Z"),
        (4, 0, "not covered: the last certificate, of 2026-03-01T06:00:00.000Z, began behind it, at offset 5"),
        (90, 0, "not covered: the last certificate, of 2026-03-01T06:00:00.000Z, ended before it"),
        (5, 1, "not covered: the last certificate, of 2026-03-01T06:00:00.000Z, ended before it"),
    ],
)
def test_only_what_was_compared_is_covered(settings: Settings, offset: int, partition: int, what: str) -> None:
    proved(settings, VerifyReport("clicks", 0, 5, 90, judged_from=8))

    assert said(settings, offset, partition=partition) == what


def test_a_certificate_that_was_broken_covers_nothing(settings: Settings) -> None:
    broken = VerifyReport("clicks", 0, 0, 90)
    broken.add(Rule.LOST, 3, "it is nowhere")
    proved(settings, broken)

    assert said(settings, 5) == "not covered: `seqmark verify` found violations at 2026-03-01T06:00:00.000Z"


def test_a_topic_that_was_made_anew_is_not_the_one_that_was_proved(settings: Settings) -> None:
    proved(settings, VerifyReport("clicks", 0, 0, 90))

    assert "not covered: clean was made anew" in said(settings, 5, {**IDS, "clean": bytes(range(2, 18))})
    assert said(settings, 5, {"raw": IDS["raw"]}).startswith("covered"), "brokers that say no id"


def test_other_rules_were_not_what_was_proved(settings: Settings, tmp_path: Path) -> None:
    proved(settings, VerifyReport("clicks", 0, 0, 90))

    assert said(settings_of(tmp_path, scope="key"), 5).endswith("judged by other rules")


def test_what_was_proved_of_a_run_before_a_reset_covers_nothing_of_the_run_of_now(settings: Settings) -> None:
    proved(settings, VerifyReport("clicks", 0, 0, 90, state_id=NOW), VerifyReport("clicks", 1, 0, 90))

    before = f"not covered: the last certificate, of {WHEN}, proved a run before a reset"
    assert said(settings, 5) == f"covered by that of {WHEN}"
    assert said(settings, 5, now=state(BEFORE)) == before
    assert (
        said(settings, 90, now=state(BEFORE))
        == f"not covered: the last certificate, of {WHEN}, ended before it"
    )


@pytest.mark.parametrize(
    ("since_ms", "what"),
    [
        (AT_MS, f"covered by that of {WHEN}"),
        (AT_MS + 1, f"not covered: the last certificate, of {WHEN}, proved a run before a reset"),
        (0, f"not known: the last certificate, of {WHEN}, does not say which run it proved"),
    ],
)
def test_an_older_note_covers_a_run_that_began_before_it(settings: Settings, since_ms: int, what: str) -> None:
    proved(settings, VerifyReport("clicks", 0, 0, 90))
    (path,) = (settings.worker.state_dir / "app" / FOLDER).iterdir()
    older = json.loads(path.read_bytes())
    del older["states"]
    path.write_text(json.dumps(older))

    assert said(settings, 5, now=state(BEFORE, since_ms)) == what


@pytest.mark.parametrize(
    ("state_id", "what"),
    [
        (b"", f"covered by that of {WHEN}"),
        (NOW, f"not known: the state that was proved at {WHEN} is not found"),
    ],
)
def test_where_there_is_no_state_now_it_covers_what_was_proved_without_one(
    settings: Settings, state_id: bytes, what: str
) -> None:
    proved(settings, VerifyReport("clicks", 0, 0, 90, state_id=state_id))

    assert LastCertificate(settings, settings.pipelines[0], IDS).of(RecordRef("raw", 0, 5), None) == what


def test_after_a_reset_what_is_judged_again_is_not_called_covered(tmp_path: Path) -> None:
    settings = by_ids(tmp_path)
    world = judged_world(settings)
    keep_note(settings, settings.pipelines[0], [VerifyReport("clicks", 0, 0, 6, state_id=FIRST)], {}, AT_MS)
    (proven,) = explained(settings, world, (SOURCE, 0))
    world.put(CHANGELOG, origin(4, 2, AT_MS + 1), position(settings, 6, SECOND, AT_MS + 1))
    world.put(SINK, *(identified(*"abacbd")[n] for n in (0, 1, 3, 5)))
    (again,) = explained(settings, world, (SOURCE, 0))

    assert proven.certificate == f"covered by that of {WHEN}"
    assert again.certificate == f"not covered: the last certificate, of {WHEN}, proved a run before a reset"
