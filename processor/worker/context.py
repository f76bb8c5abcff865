"""What all slots of a worker share."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from processor.kafka.topics.ensure import is_compacted, look
from processor.pipeline.escapes import EscapeWatch
from processor.pipeline.failures import Failures
from processor.pipeline.hop_kinds import kind_of
from processor.pipeline.turns import Turns
from processor.wire.decode import Decoder
from processor.wire.encode import Encoders

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from processor.kafka.group.membership import Membership
    from processor.kafka.topics.plan import ClusterView
    from processor.ops.metrics import Metrics
    from processor.pipeline.hop_kinds import HopKind
    from processor.pipeline.hops import Hop
    from processor.state.home import Home
    from processor.state.state_log import StateLog
    from schemas.config import Settings


@dataclass(eq=False)
class Context:
    """Shared by the slots of one worker; made by `processor.worker.worker.Worker`.

    Attributes:
        settings: Checked already.
        options: For `processor.kafka.client.Client.open`.
        fail: Called with what ends the worker.
        progressed: Called when a slot got further: a commit, an empty fetch, ready.
        drain: Whether the worker ends once it is drained.
        take_over_sink: Whether each partition is committed where it begins.
        decoder: One buffer for all slots.
        encoders: One for all slots that write to the same topic.
    """

    settings: Settings
    options: Mapping[str, Any]
    membership: Membership
    home: Home
    metrics: Metrics
    fail: Callable[[Exception], None]
    progressed: Callable[[], None]
    drain: bool
    take_over_sink: bool = False
    decoder: Decoder = field(default_factory=Decoder)
    encoders: Encoders = field(default_factory=Encoders)
    turns: Turns = field(default_factory=Turns)
    failures: dict[str, Failures] = field(default_factory=dict)
    """By hop, what warns where many records fail."""
    _restoring: set[StateLog] = field(default_factory=set)
    _looked: asyncio.Task[ClusterView] | None = None

    def __post_init__(self) -> None:
        self.escapes = EscapeWatch(self.settings, self.metrics)
        worker = self.settings.worker
        self.application_id: str = worker.application_id
        self.exactly_once: bool = worker.guarantee == "exactly_once"
        self.start: str = worker.start
        self.slots: int = worker.slots
        self.transaction_timeout_ms: int = worker.transaction_timeout_ms
        self.commit_interval_s: float = worker.commit_interval_ms / 1000

    def waiting_bytes(self) -> int:
        """Return what all restores together hold only until they are done."""
        return sum(each.waiting_bytes for each in self._restoring)

    @contextmanager
    def restoring(self, state: StateLog) -> Iterator[None]:
        """Count what ``state`` holds only until it is restored, while the block restores it."""
        self._restoring.add(state)
        try:
            yield
        finally:
            self._restoring.discard(state)

    def failures_of(self, hop: Hop) -> Failures:
        """Return what is told what becomes of a hop's records."""
        if hop.name not in self.failures:
            self.failures[hop.name] = Failures(hop.pipeline, self.metrics)
        return self.failures[hop.name]

    def look_again(self) -> None:
        """Ask the broker at the next `work`: at an assignment, and when a slot is rebuilt."""
        self._looked = None

    async def work(self, hop: Hop) -> HopKind:
        """Return the work on a hop, with its topics as the broker says since `look_again`.

        Raises:
            StopError: A topic is not as it must be.
            RebuildError: The broker does not say.
        """
        return kind_of(self.settings, hop, await self._view())

    async def compacted(self, topic: str) -> bool:
        """Whether a topic is compacted."""
        return is_compacted(await self._view(), topic)

    async def _view(self) -> ClusterView:
        """Look once for all slots of an assignment."""
        if self._looked is None:
            self._looked = asyncio.create_task(look(self.settings), name="topics")
        looked = self._looked
        try:
            return await asyncio.shield(looked)
        except Exception:
            # Whatever it was, it says nothing of the next time.
            if self._looked is looked:
                self._looked = None
            raise
