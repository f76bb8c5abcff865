"""The base class of all judges, with the defaults of a mode that keeps no state.

A `Judge` joins an extractor, an engine and the layout of their state, for one source partition. It holds the
staged state, which runs ahead of the table by what the open transaction has judged: records see what came
earlier in the same transaction. When a transaction fails the judge is dropped with everything else, and another
one is loaded.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple

from typing_extensions import TypeVar

from processor.engine.receipts import Grounds
from processor.engine.verdict import Fault
from processor.state.state_log import NO_BULK, StateLog

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence
    from typing import Self

    import numpy as np
    from numpy.typing import NDArray

    from processor.engine.batch.columns import Columns
    from processor.engine.collision_edits import CollisionEditor
    from processor.engine.receipts import ReceiptGrounds
    from processor.judges.asked_id import AskedId
    from processor.judges.committed import RememberedRecord, ScopeMark
    from processor.judges.dropped import ComparedDrops, PassedContents
    from processor.judges.escapes.gauge import EscapeGauge
    from processor.judges.redriving import Redriving
    from processor.state.table import Table
    from processor.wire.encode import EncodedBatch


@dataclass(slots=True)
class Evidence(ABC):
    """What every mode knows of the records of some columns.

    Attributes:
        fault: uint8[n], `Fault` codes; more may be written into it before judging.
        data: uint8[m], of the columns: good as long as they are.
    """

    fault: NDArray[np.uint8]
    data: NDArray[np.uint8]

    @abstractmethod
    def part(self, rows: slice) -> Self:
        """Return that of some of the records."""


E = TypeVar("E", bound=Evidence, default=Any)


class ClockStats(NamedTuple):
    """What the clock of a partition in mode insert-id reads, and what it has seen.

    Attributes:
        clock_ms: As committed; None before the first record.
        behind: Records with a timestamp below it.
        ahead: Records with one further ahead than ``max_ahead`` allows.
        false_positive_rate: At which filters take a new id for an old one now; None: there are none.
        variants: How many records are remembered of ids that collided; None: nothing tells them apart.
    """

    clock_ms: int | None
    behind: int
    ahead: int
    false_positive_rate: float | None = None
    variants: int | None = None


class Judge(ABC, Generic[E]):
    """Judges the records of one source partition, in offset order.

    Attributes:
        grounds: What it says, and why, for receipts.
        piece_bytes: So many inflated bytes of records are judged at a time; None: as many as the decoder opens.
        log: State that the table keeps and restores in bulk; all other goes through `load` and `changes`.
    """

    grounds: ClassVar[type[ReceiptGrounds]] = Grounds
    piece_bytes: ClassVar[int | None] = None
    log: StateLog = NO_BULK

    def load(self, table: Table) -> None:
        """Take the state that is committed; the log has taken its own over already.

        Raises:
            StopError: A part of it is missing.
        """

    def begin_with(self, blocks: Iterable[tuple[bytes, bytes]]) -> None:
        """Begin, empty, with what a backfill has brought, and count from now on what is dropped by it.

        Args:
            blocks: Key and value of each, as they stand in the changelog; looked at once.

        Raises:
            CorruptStateError: One is not whole, or of another definition.
        """
        raise NotImplementedError

    def take_brought(self) -> int:
        """Return how many records were dropped, since the last call, by what a backfill has brought.

        Compared with a sequence watermark that nothing has moved since: ids say it themselves, by their owner.
        """
        return 0

    @abstractmethod
    def extract(self, columns: Columns) -> E:
        """Read what the records are judged by; touches no state."""

    @abstractmethod
    def judge(self, evidence: E) -> ReceiptGrounds:
        """Judge, and stage the state after the last record.

        Raises:
            RebuildError: The local state is not what it should be; it has been thrown away.
            StopError: There is more state than one partition can have.
        """

    def learn(self, evidence: E, too_large: NDArray[np.int64]) -> None:
        """Judge records once more that a worker has judged, for the state alone.

        Args:
            evidence: What they are judged by.
            too_large: int64[k], rising, the rows of those that quarantine says were too large for the sink.
        """
        evidence.fault[too_large] = Fault.TOO_LARGE
        self.judge(evidence)

    def judge_again(self, evidence: E, redriving: Redriving) -> ReceiptGrounds:
        """Judge records that stood in quarantine as if they came now, and stage the state.

        ``evidence`` is of records under their source offsets, which are below those that were judged, and may
        fall. None has a fault.
        """
        del redriving
        return self.judge(evidence)

    def numbers(self, evidence: E) -> Sequence[Hashable]:
        """Return what each record is known by for `Redriving`; none where the state knows what has passed."""
        del evidence
        return ()

    def limit_ms(self) -> int:
        """Return how far ahead a record could move the partition's clock now; 0: the mode has none."""
        return 0

    def undo(self) -> None:
        """Forget what was judged since it was last taken as committed; only where records can collide."""
        raise NotImplementedError

    def changes(self) -> dict[bytes, bytes | None]:
        """Return what is staged beyond the last `committed`, as changelog keys and values."""
        return {}

    def changelog_batches(self, limit_bytes: int) -> list[EncodedBatch]:
        """Return what is staged in bulk, in batches of at most ``limit_bytes``.

        Raises:
            StopError: One record alone is larger.
        """
        del limit_bytes
        return []

    def sample_for(self, gauge: EscapeGauge, partition: int) -> None:
        """Have a gauge draw a sample of what is judged; a mode without ids lets nothing escape."""
        del gauge, partition

    def compare_drops(self, passed: PassedContents, partition: int) -> None:
        """Have a sample of what is dropped from now on compared with what passed; ids do not go back."""
        del passed, partition

    def take_compared(self) -> ComparedDrops | None:
        """Return what that has found since the last call; None: nobody compares."""
        return None

    def restate(self) -> None:
        """Stage the whole state, whether it has changed or not: what is written next is all there is."""

    def committed(self) -> None:
        """Note that what was staged is committed."""

    def absorb(self, at_least: int = 0) -> None:
        """Take what is staged as committed where nobody writes a changelog.

        Args:
            at_least: May wait until so many records have been judged since the last time.
        """
        del at_least
        self.committed()

    def editor(self, topic: str) -> CollisionEditor | None:
        """Return what writes into records that collide, on their way to the sink; None: they go as they came.

        Args:
            topic: The source, as it is named to people.
        """
        del topic
        return None

    def size(self) -> tuple[int, int]:
        """Return how many scopes there are, or ids, and how many bytes they take."""
        return 0, 0

    def take_clock_stats(self) -> ClockStats | None:
        """Return what the clock reads, and has seen since the last call; None: the mode has no clock."""
        return None

    @property
    def clock_ms(self) -> int | None:
        """What the partition's clock reads, as committed; None: nothing yet, or the mode has none."""
        return None

    @property
    def clock_move(self) -> tuple[int, int | None] | None:
        """The window (ms), and what the worker's clock must have read to move the partition's as it is staged.

        The latter is None where it is not moved; all of it where the mode has no clock.
        """
        return None

    def remembered(self, asked: Sequence[AskedId]) -> list[list[RememberedRecord]] | None:
        """Return of each id the committed records that it is remembered by now; None: the mode knows no ids.

        Touches nothing that is staged. Raises what reading the local store may.
        """
        del asked
        return None

    def scope_mark(self, scope: bytes) -> ScopeMark | None:
        """Return what is known of a scope; None: nothing, or the mode has none. Touches nothing."""
        del scope
        return None

    def watermarks(self) -> Iterable[int]:
        """Return what the metric shows: at most one number per partition."""
        return ()
