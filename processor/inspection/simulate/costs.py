"""Says what ids cost with each backend: memory, disk, changelog, CPU and a restart. Pure.

The figures per id are those of docs/sizing.md, the CPU of a record that of docs/benchmarks.md (10 million ids
before, one core of the machine named there, warm).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from schemas.config import InsertIdDedup, WatermarkDedup

_EXACT_BYTES = 25
"""Per id, at most, while the index grows; 16 in the long run."""
_EXACT_DISK = 22
_CHANGELOG_BYTES, _PRINT_BYTES, _ROUTE_BYTES = 22, 8, 2
_COMMIT_BYTES = 250
"""Per partition and commit, for as long as the window is."""
_COLLISION_BYTES = 320
_SCOPE_BYTES, _SCOPE_DISK = 90, 50
_ID_CPU_US = 1.2
_ROUTE_CPU_US = 1.0
"""The first hop: reads, hashes and writes each record once more."""
WATERMARK_CPU_US, SCOPED_CPU_US = 0.55, 1.1
_RESTORED_PER_S = 10e6
"""Ids of a disk that is intact; 10 to 20 million."""
_REBUILT_PER_S, _COMMITS_PER_S = 2.5e6, 50_000
"""Ids and commits of a changelog, where there is no local disk."""
_SPARE_BUCKETS = 1.25
"""Filters are sized for a little more than comes."""


class BackendCost(NamedTuple):
    """What one backend takes, over all partitions together.

    Attributes:
        backend: ``exact`` or ``bloom``; ``watermark``.
        memory_bytes: Beside the 300 MB of a worker.
        disk_bytes: Of the local state.
        changelog_bytes: Of its topic, without replicas.
        cpu_us: Of a record.
        restart_s: CPU seconds with the local disk.
        rebuild_s: CPU seconds without it.
        lost: Records that a filter drops by mistake, of all that were read.
    """

    backend: str
    memory_bytes: float
    disk_bytes: float
    changelog_bytes: float
    cpu_us: float
    restart_s: float
    rebuild_s: float
    lost: float = 0.0


def bucket_of(dedup: InsertIdDedup, window_ms: int) -> int:
    """Return how long a filter's bucket is with another window."""
    return min(dedup.model_copy(update={"window": window_ms}).bloom_options.bucket, window_ms)


def id_costs(
    dedup: InsertIdDedup,
    held: float,
    collisions: float,
    window_ms: int,
    commits: float,
    records: float,
    *,
    routed: bool,
) -> list[BackendCost]:
    """Return what each backend takes; with a fingerprint there is one.

    Args:
        dedup: With the options of filters and fingerprint.
        held: Ids that are remembered at once.
        collisions: Records of ids that collided, likewise.
        window_ms: How long they are.
        commits: Of all partitions within the window.
        records: That are judged.
        routed: Whether there is a route.
    """
    per_id = _CHANGELOG_BYTES + _PRINT_BYTES * (dedup.fingerprint is not None) + _ROUTE_BYTES * routed
    changelog = per_id * held + _COMMIT_BYTES * commits
    beside = _COLLISION_BYTES * collisions
    cpu, restart = _ID_CPU_US + _ROUTE_CPU_US * routed, held / _RESTORED_PER_S
    rebuild = held / _REBUILT_PER_S + commits / _COMMITS_PER_S
    memory, disk = _EXACT_BYTES * held + beside, _EXACT_DISK * held + beside
    exact = BackendCost("exact", memory, disk, changelog, cpu, restart, rebuild)
    if dedup.fingerprint is not None:
        return [exact]
    rate = dedup.bloom_options.false_positive_rate
    buckets = math.ceil(window_ms / bucket_of(dedup, window_ms)) + 1
    bits = 1.44 * math.log2(buckets / (0.75 * rate))
    filters = held * bits / 8 * _SPARE_BUCKETS * (buckets + 1) / buckets
    changelog = filters + _COMMIT_BYTES * commits
    return [exact, BackendCost("bloom", filters, filters, changelog, cpu, restart, restart, rate * records)]


def sequence_cost(dedup: WatermarkDedup, scopes: int, scope_bytes: int, reorder_window: int) -> BackendCost:
    """Return what sequences take with one reorder window."""
    if dedup.scope == "partition":
        return BackendCost("watermark", scope_bytes, scope_bytes, scope_bytes, WATERMARK_CPU_US, 0.0, 0.0)
    memory = max(scope_bytes, _SCOPE_BYTES * scopes)
    disk = _SCOPE_DISK * scopes + reorder_window / 8 * scopes
    seconds = scopes / _REBUILT_PER_S
    return BackendCost("watermark", memory, disk, disk, SCOPED_CPU_US, seconds, seconds)
