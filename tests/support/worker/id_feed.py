"""What kill tests send in mode insert-id, and what must stand in the changelog afterwards."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING

import numpy as np

from processor.engine.ids.block import decode
from schemas.changelog.ids import ID_BLOCK_KIND, IDS_KEY, IdState
from schemas.changelog.values import ORIGIN_KEY
from tests.support.judges.fingerprints import FingerprintModel, FingerprintRules
from tests.support.worker.feed import Feed

if TYPE_CHECKING:
    from tests.support.judges.id_rules import IdModel
    from tests.support.kafka.topics import Header, New


COLLISIONS = FingerprintRules(
    ({"from": "value", "pointer": "/id"},),
    fingerprint={"exclude": ["/sent_at"]},
    on_collision="rename",
    rename={"to": "/id"},
)
"""What a `CollisionFeed` sends is judged by."""


class IdFeed(Feed):
    """A producer whose records have an id in a header, with resends, and some without one.

    Ten records have one timestamp, so a window of a second is 10,000 records: what is sent again is inside it
    mostly, and what was sent first is expired before long.
    """

    def _new(self, partition: int, name: bytes, sequence: int, epoch: int = 0) -> New:
        del epoch
        record = super()._new(partition, name, sequence)
        headers: tuple[Header, ...] = (("trace", b"t"), ("id", b"%d" % self._made))
        dice = self._dice.random()
        if dice < 0.02:
            # One that comes again sooner or later, mostly when it is expired.
            headers = (("trace", b"t"), ("id", b"again-%d" % self._dice.randrange(200)))
        late_ms = 100_000 if 0.02 < dice < 0.03 else 0
        return record._replace(headers=headers, timestamp=record.timestamp - late_ms)

    def _broken(self, record: New) -> New:
        headers: tuple[Header, ...] = (("trace", b"t"),)
        return record._replace(headers=(*headers, ("id", None)) if self._dice.random() < 0.5 else headers)


class CollisionFeed(IdFeed):
    """A producer that gives some ids again to other content, and sends each of those again too.

    See `COLLISIONS`: the id stands in the value, and when it was sent does not count.
    """

    def _new(self, partition: int, name: bytes, sequence: int, epoch: int = 0) -> New:
        record = super()._new(partition, name, sequence, epoch)
        dice, number = self._dice, self._made
        if dice.random() < 0.1:
            # Of some thousand before, so that it is inside the window mostly.
            number -= dice.randrange(min(number + 1, 12_000))
        content = dice.choice((b"", b"", b', "kind": 1', b', "kind": 2'))
        value = b'{"id": "%d", "sent_at": %d%b}' % (number // 3, sequence, content)
        return record._replace(headers=(("trace", b"t"),), value=value)

    def _broken(self, record: New) -> New:
        return record._replace(value=self._dice.choice((None, b"{", b'{"id": 1}', b'{"id": null}', b"{}")))


def assert_ids(number: int, records: list[New], model: IdModel, window_ms: int) -> None:
    """The changelog holds the clock, and each living id with its owner and reading."""
    hashes: dict[tuple[int, int, int], tuple[int, int]] = {}
    state: IdState | None = None
    for record in records:
        key, value = record.key or b"", record.value or b""
        if key == ORIGIN_KEY:
            hashes = {}
        if key == IDS_KEY:
            state = IdState.decode(value)
        if key.startswith(ID_BLOCK_KIND):
            told_apart = isinstance(model, FingerprintModel)
            rows, _, _ = decode(value, key, fingerprints=told_apart)
            # A collision stands beside its id; the first record of an id that collided stands there again.
            content = (
                rows.fingerprint if isinstance(model, FingerprintModel) else np.zeros(len(rows), np.uint64)
            )
            columns = (rows.hash[:, 0], rows.hash[:, 1], content, rows.owner, rows.reading_ms)
            for first, second, third, owner, reading in zip(*map(np.ndarray.tolist, columns), strict=True):
                # Of a commit ids come before variants, which may be of an earlier time.
                last = hashes.get((first, second, third), (owner, reading))
                hashes[first, second, third] = max(last, (owner, reading), key=itemgetter(1))
    assert state is not None, f"partition {number} has no record of ids"
    assert state.clock_ms == model.clock_ms, f"clock of partition {number}"
    living = sorted(each for each in hashes.values() if state.clock_ms < each[1] + window_ms)
    assert living == model.living(), f"ids of partition {number}"
