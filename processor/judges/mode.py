"""The base class of a mode: all that differs by mode, for one pipeline, with the defaults of a new one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, TypeVar

from processor.judges.ids import worker_clock_ms
from processor.state.definition import definition_of
from schemas.config.dedup import DedupTable

if TYPE_CHECKING:
    from collections.abc import Callable

    from processor.engine.ids.clock import PartitionClock
    from processor.judges.exact import ExactIds
    from processor.judges.judge import Judge

D = TypeVar("D", bound=DedupTable)


class MemoryNeed(NamedTuple):
    """What one partition takes of a worker's memory, as far as that is known before it runs.

    Attributes:
        filter_bytes: Taken whether records come or not.
        note: A key of ``dedup``, and what to say of it to people; None: nothing to say.
        follows_state: Whether the rest is a share of what the local state takes.
    """

    filter_bytes: int = 0
    note: tuple[str, str] | None = None
    follows_state: bool = False


class Mode(ABC, Generic[D]):
    """How the records of one pipeline are judged; `processor.judges.factory` makes it.

    Attributes:
        free_keys: Keys of ``dedup`` that may change over an existing state: what is remembered means the same.
        dates_renewals: Whether the stored state says of each id when it was last renewed.
        examples: Tables ``dedup`` that between them use each kernel of the mode, for records that have the
            headers ``n`` (int64) and ``id``, a key, and a JSON value with ``n``: a worker works on some before
            it begins, so that nothing is compiled inside a commit.

    Args:
        dedup: The table ``dedup``.
        pipeline: Its pipeline's name, for messages.
    """

    examples: ClassVar[list[dict[str, Any]]]

    free_keys: ClassVar[frozenset[str]] = frozenset()
    dates_renewals: bool = True

    def __init__(self, dedup: D, pipeline: str) -> None:
        self._dedup = dedup
        self._pipeline = pipeline

    @abstractmethod
    def judge(self, now_ms: Callable[[], int] = worker_clock_ms) -> Judge:
        """Return a judge for one partition, with no state yet; ``now_ms`` is the worker's clock."""

    def clocked_judge(self, clock: Callable[[int], PartitionClock] | None = None) -> ExactIds | None:
        """Return a judge by which records are judged again, with no state yet; None: `judge` does for that too.

        Args:
            clock: Makes what says how the partition's clock went, given ``max_ahead``; None: a worker's.
        """
        del clock
        return None

    def judged_by(self) -> list[str]:
        """Return the keys of ``dedup`` that the stored state is bound to."""
        fields = type(self._dedup).model_fields.items()
        return [field.alias or name for name, field in fields if name not in self.free_keys]

    def definition(self) -> bytes:
        """Return 16 bytes that change when the meaning of the stored state changes."""
        return definition_of(self.meaning())

    def meaning(self) -> dict[str, Any]:
        """Return what the stored state is bound to, as JSON: another one makes the state foreign."""
        # Without defaults: a field that a later version adds must not make old state foreign.
        return self._dedup.model_dump(
            mode="json", by_alias=True, exclude_defaults=True, exclude=set(self.free_keys)
        )

    def memory(self) -> MemoryNeed:
        """Return what is known of the memory that one partition takes."""
        return MemoryNeed()
