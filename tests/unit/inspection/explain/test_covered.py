"""A record is called covered only where the last certificate here proved it, of these very topics."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from processor.inspection.explain.covered import NONE, LastCertificate
from processor.inspection.explain.story import RecordRef
from processor.verify.noted import keep_note
from processor.verify.report import Rule, VerifyReport
from schemas.config import Settings

if TYPE_CHECKING:
    from pathlib import Path

IDS = {"raw": bytes(range(16)), "clean": bytes(range(1, 17))}
AT_MS = 1_772_344_800_000


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


def said(settings: Settings, offset: int, ids: dict[str, bytes] | None = None, partition: int = 0) -> str:
    certificate = LastCertificate(settings, settings.pipelines[0], IDS if ids is None else ids)
    return certificate.of(RecordRef("raw", partition, offset))


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
