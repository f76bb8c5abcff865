"""Says what memory a config needs, and warns where a worker has less."""

from __future__ import annotations

from typing import TYPE_CHECKING

from processor.errors import Problem
from processor.judges.factory import mode_of
from processor.state.home import sizes

if TYPE_CHECKING:
    from processor.inspection.check.findings import Findings
    from processor.kafka.topics.plan import ClusterPlan
    from schemas.config import Settings

BASE_BYTES = 300_000_000
"""A worker without state, see docs/sizing.md."""
INDEX_SHARE = 25 / 22
"""Bytes of memory per byte of local state: an id takes up to 25 in the index, and 20 to 24 on the disk."""


def check_memory(settings: Settings, plan: ClusterPlan | None, found: Findings) -> None:
    """Say what memory Bloom filters take, even without ids; warn where a worker needs more than its limit.

    Known are filters, by the config, of all partitions; and ids by what a worker's state folder holds of them.
    """
    worker, limit = settings.worker, settings.worker.memory_limit
    needs = {pipeline.name: mode_of(pipeline).memory() for pipeline in settings.pipelines}
    for index, need in enumerate(needs.values()):
        if need.note is not None:
            key, note = need.note
            found.note(f"pipelines.{index}.dedup.{key}", note)
    if limit is None:
        return
    partitions = {each.pipeline: each.partitions for each in plan.topics} if plan else {}
    filters = sum(partitions.get(name, 0) * need.filter_bytes for name, need in needs.items())
    exact = [name for name, need in needs.items() if need.follows_state]
    ids = int(max(sizes(worker.state_dir, str(worker.application_id), exact), default=0) * INDEX_SHARE)
    beside = f"MB, and a worker about {BASE_BYTES / 1e6:.0f} MB beside them"
    within = f"within {limit / 1e6:,.0f} MB"
    notes = []
    if filters and BASE_BYTES + filters > limit:
        notes.append(
            f"the filters of all partitions take {filters / 1e6:,.0f} {beside}: one that has all partitions "
            f"cannot start {within}. Raise it, or start so many workers that none has to have them all"
        )
    if ids and BASE_BYTES + ids > limit:
        notes.append(
            f"the state in {worker.state_dir} is of ids that take up to {ids / 1e6:,.0f} {beside}: it may "
            f"not be able to start {within}"
        )
    found.warnings.extend(Problem("worker.memory_limit", note) for note in notes)
