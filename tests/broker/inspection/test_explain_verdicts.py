"""`seqmark explain` answers by verdicts alone: of what is retained, is to come, or was before a reset."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from processor.inspection.explain.story import Outcome
from processor.wire.receipt_values import RecordRef
from tests.broker.inspection.test_explain import drain, tell
from tests.support.kafka.topics import bounds, delete_records, new
from tests.support.worker import forks
from tests.support.worker.process import new_config, produce
from tests.support.worker.reset import run_reset

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.kafka.broker import Broker
    from tests.support.worker.process import WorkerConfig

pytestmark = pytest.mark.broker


@pytest.fixture
def config(broker: Broker, tmp_path: Path) -> WorkerConfig:
    """Give a pipeline without receipts, which has judged: passed, passed, late, in quarantine, passed."""
    made = new_config(broker.bootstrap_servers, tmp_path).with_quarantine().with_verdicts("verdicts")
    made = replace(made, pipelines=(replace(made.pipelines[0], sink=""),))
    produce(made.bootstrap_servers, made.source, [new(1), new(2), new(1), new(2)._replace(headers=()), new(3)])
    drain(made)
    return made


def test_a_verdict_record_says_what_no_receipt_says(config: WorkerConfig) -> None:
    passed, late, aside = (tell(config, config.source, offset) for offset in (1, 2, 3))
    assert (passed.outcome, passed.clean) == (Outcome.PASSED, RecordRef(config.source, 0, 1))
    assert f"passed, as {passed.verdict} says: " in passed.sentence
    assert (late.outcome, late.clean, late.verdict) == (Outcome.LATE, None, passed.verdict)
    assert f"so the verdict follows from {passed.verdict}" in late.notes[0]
    assert (aside.outcome, aside.grounds.code) == (Outcome.QUARANTINED, "header_missing")
    traced = tell(config, config.quarantine, 0)
    assert (traced.source, traced.verdict) == (RecordRef(config.source, 0, 3), passed.verdict)

    produce(config.bootstrap_servers, config.source, [new(4)])
    pending = tell(config, config.source, 5)
    assert (pending.outcome, pending.verdict, pending.exit_code) == (Outcome.PENDING, None, 0)

    def asked(*words: str) -> tuple[int, str]:
        ended = forks.inside("explain", "-c", str(config.write()), *words, folder=config.folder)
        return ended.returncode, ended.stdout + ended.stderr

    code, said = asked(f"{config.source}:0:4")
    assert code == 0
    assert f"source position {config.source}:0:4, said by verdict record {passed.verdict}" in said
    code, said = asked(f"{config.verdicts}:0:0")
    assert code == 2
    assert "has the verdicts of pipeline p, which `seqmark read` prints: name a position in the source" in said
    code, said = asked("--json-field", "/none=1")
    assert code == 1, said
    code, said = asked("--key", "key")
    assert code == 0
    assert "by verdict record" in said


def test_behind_a_reset_both_runs_are_told_apart_as_far_as_verdicts_are_retained(config: WorkerConfig) -> None:
    before = tell(config, config.source, 1).verdict
    assert run_reset(config, "--to-offset", "0:4").code == 0
    drain(config)

    again, first, late = (tell(config, config.source, offset) for offset in (4, 1, 2))
    assert again.outcome is Outcome.PASSED
    assert again.verdict is not None
    assert before is not None
    assert again.verdict.offset > before.offset, "the run of now says it, not the one before"
    assert (first.outcome, first.verdict, first.clean) == (Outcome.PASSED, before, first.source)
    assert "a run before that of now has judged it" in first.notes[0]
    assert (late.outcome, late.verdict) == (Outcome.LATE, before)

    delete_records(
        config.bootstrap_servers, config.verdicts, bounds(config.bootstrap_servers, config.verdicts)[1]
    )
    gone = tell(config, config.source, 4)
    assert (gone.outcome, gone.exit_code) == (Outcome.NOT_RETAINED, 1)
    assert "the verdict record of that time is not retained any more" in gone.sentence
