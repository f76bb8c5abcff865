"""Mode ``insert-id``: which backend judges, and what its state is bound to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from typing_extensions import override

from processor.engine.ids.bloom.numbering import BloomNumbering
from processor.engine.ids.bloom.window import BloomWindow
from processor.errors import StopError
from processor.judges.committed import in_filters
from processor.judges.exact import ExactIds
from processor.judges.ids import IdJudge, worker_clock_ms
from processor.judges.mode import MemoryNeed, Mode
from processor.state.ids.bloom_log import BloomLog
from schemas.config import InsertIdDedup

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    from processor.engine.ids.clock import PartitionClock
    from processor.engine.ids.collisions import Fingerprints
    from processor.engine.ids.judgement import IdColumns, IdJudgement
    from processor.judges.committed import RememberedRecord
    from processor.judges.judge import ClockStats

# A hit is a duplicate, of whom and until when nobody knows: no id is kept. So new records are dropped too,
# at the rate that is set.


def window_of(dedup: InsertIdDedup) -> BloomWindow:
    """Return the filters of one partition, none of them begun."""
    options = dedup.bloom_options
    sizes = dedup.window, options.bucket, options.expected_per_bucket, options.false_positive_rate
    return BloomWindow(*sizes, refresh=dedup.refresh)


class BloomIds(IdJudge):
    """Judges by Bloom filters; see `IdJudge`."""

    def __init__(self, dedup: InsertIdDedup, now_ms: Callable[[], int] = worker_clock_ms) -> None:
        self._window = window_of(dedup)
        super().__init__(dedup, BloomLog(BloomNumbering(self._window)), now_ms)

    @override
    def _decided(self, records: IdColumns, prints: Fingerprints | None) -> IdJudgement:
        del prints  # with a fingerprint ids are exact
        try:
            return self._window.judge(records, self._window.look_up(records))
        except MemoryError as error:
            raise StopError(f"the ids of one transaction do not fit: {error}") from error

    @override
    def _in_index(self, hashes: NDArray[np.uint64], clock_ms: int) -> list[RememberedRecord]:
        return in_filters(self._window, hashes, clock_ms)

    @override
    def size(self) -> tuple[int, int]:
        # An id that was renewed counts in each of its buckets.
        return self._window.ids, self._window.size_bytes

    @override
    def take_clock_stats(self) -> ClockStats:
        return super().take_clock_stats()._replace(false_positive_rate=self._window.rate)


_ID = {"from": "header", "name": "id"}
_ANY: dict[str, Any] = {"any": [{"from": "value", "pointer": "/s|/n"}, _ID]}
_IDS: dict[str, Any] = {"mode": "insert-id", "window": "1h", "id": [_ID]}
_BLOOM: dict[str, Any] = {"expected_per_bucket": 20_000, "bucket": "1h"}
_RENAMED: dict[str, Any] = {"on_collision": "rename", "rename": {"to": "header:id", "keep": "/id"}}


class InsertIdMode(Mode[InsertIdDedup]):
    """Ids that are repeated when a record is sent again."""

    # What the clock read before is written down (`schemas.changelog.clock`). What becomes of collisions says
    # which of the next ones are remembered; what is remembered already means the same.
    free_keys = frozenset({"max_ahead", "on_collision", "rename"})

    examples: ClassVar[list[dict[str, Any]]] = [
        {**_IDS, "refresh": True, "id": [_ID, {"from": "key"}, {"from": "value", "pointer": "/n"}]},
        {**_IDS, "route": "by-id", "id": [_ID, {"from": "content", "of": "bytes"}]},
        {**_IDS, "backend": "bloom", "bloom": _BLOOM, "id": [_ID, {"from": "content", "exclude": ["/more"]}]},
        {**_IDS, **_RENAMED, "fingerprint": {"headers": ["n"]}},
        {**_IDS, "fingerprint": {"of": "bytes"}, "on_collision": "tag"},
        {
            **_IDS,
            "id": [{"any": [{"from": "value", "pointer": "/s|/n"}, _ID]}, {"from": "column", "number": 1}],
        },
        {**_IDS, "id": [{"from": "text", "normalise": "lower"}]},
    ]

    def __init__(self, dedup: InsertIdDedup, pipeline: str) -> None:
        super().__init__(dedup, pipeline)
        self._bloom = dedup.backend == "bloom"
        self.dates_renewals = not (self._bloom and dedup.refresh)

    @override
    def judge(self, now_ms: Callable[[], int] = worker_clock_ms) -> IdJudge:
        return BloomIds(self._dedup, now_ms) if self._bloom else ExactIds(self._dedup, now_ms)

    @override
    def clocked_judge(self, clock: Callable[[int], PartitionClock] | None = None) -> ExactIds:
        # By the exact backend whichever the worker has: the changelog of all is one, and a filter does not know
        # whose ids it holds, which a reset has to write again.
        recorded = None if clock is None else clock(self._dedup.max_ahead)
        return ExactIds(self._dedup, worker_clock_ms, recorded)

    @override
    def meaning(self) -> dict[str, Any]:
        fields = super().meaning()
        if self._bloom:
            # As it is meant, however much of it is written down; never as confirmed filters, which
            # they were by default: their state is not taken over by what drops new records.
            options = self._dedup.bloom_options.model_dump(mode="json", exclude_defaults=True)
            fields["bloom"] = {"confirm": False, **options}
        return fields

    @override
    def memory(self) -> MemoryNeed:
        if not self._bloom:
            return MemoryNeed(follows_state=True)
        window = window_of(self._dedup)
        size = window.sized(0, 0).bits // 8
        note = (
            f"a partition has up to {window.most_live} filters of {size / 1e6:,.1f} MB, "
            f"{window.most_live * size / 1e6:,.0f} MB together, each made ready while the bucket before fills; "
            "more of them if more ids come than expected_per_bucket"
        )
        return MemoryNeed(window.most_live * size, ("bloom", note))
