"""Do the judges say of a generated stream with collisions what its truth says, over commits and restarts?"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from processor.engine.verdict import Verdict
from processor.generator import StreamOptions, StreamPartition, make_stream
from processor.wire.encode import plain_batch
from schemas.config import InsertIdDedup
from tests.property.generator.test_generated_streams import START_MS
from tests.support.judges.id_state import IdPartition
from tests.support.judges.scopes import columns_of

IDS = [{"from": "value", "pointer": "/m/id"}, {"from": "header", "name": "id"}]
OPTIONS = StreamOptions(4_000, 0.1, 3, 1, START_MS, malformed=0.01, collisions=0.03)
AT_ONCE, PER_COMMIT, PER_RESTART = 300, 700, 2_100


class JudgedStream:
    """What a judge says, a row per record."""

    def __init__(self, part: StreamPartition, **keys: Any) -> None:
        at_work = IdPartition(id=IDS, window=3_600_000, max_ahead=300_000, **keys)
        at_work.now_ms = OPTIONS.start_ms + OPTIONS.span_ms
        verdicts, owners, expires = [], [], []
        for start in range(0, len(part), AT_ONCE):
            some = part.records(start, start + AT_ONCE)
            rows = [
                (each.key, each.value, 0, tuple((name.encode(), value) for name, value in each.headers))
                for each in some
            ]
            columns, _ = columns_of(plain_batch(rows))
            columns.timestamp[:] = [each.timestamp_ms for each in some]
            columns.offset[:] = start + np.arange(len(some))
            at_work.next_offset = start + len(some)
            grounds = at_work.judge.judge(at_work.judge.extract(columns))
            verdicts.append(grounds.verdict)
            owners.append(grounds.owner)
            expires.append(grounds.expires_ms)
            if start // PER_COMMIT != (start + AT_ONCE) // PER_COMMIT:
                at_work.commit()
                if start // PER_RESTART != (start + AT_ONCE) // PER_RESTART:
                    at_work.open()
        self.verdict = np.concatenate(verdicts)
        self.owner = np.concatenate(owners)
        self.expires_ms = np.concatenate(expires)


@pytest.mark.parametrize("fingerprint", [{"exclude": ["/sent_at"]}, {"of": "bytes"}, {"headers": ["type"]}])
@pytest.mark.parametrize("action", ["pass", "drop"])
@pytest.mark.parametrize("refresh", [False, True])
def test_verdicts_owners_and_expiry_are_those_of_the_truth(
    fingerprint: dict[str, Any], action: str, *, refresh: bool
) -> None:
    keys = {"fingerprint": fingerprint, "on_collision": action, "refresh": refresh}
    given = {"mode": "insert-id", "id": IDS, "window": "1h", **keys}
    (part,) = make_stream(InsertIdDedup.model_validate(given), OPTIONS)
    truth = part.judged
    assert truth is not None
    found = JudgedStream(part, **keys)
    assert ((found.verdict == Verdict.COLLISION) == truth.collision).all()
    assert ((found.verdict == Verdict.PASS) == (part.passes & ~truth.collision)).all()
    told = np.isin(found.verdict, [Verdict.COLLISION, Verdict.DUPLICATE])
    assert found.owner[told].tolist() == truth.owner[told].tolist()
    assert found.expires_ms[told].tolist() == truth.expires_ms[told].tolist()
    assert np.count_nonzero(truth.collision) > 100
