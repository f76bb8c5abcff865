"""Brings a partition's state to what Kafka has committed.

The changelog is read from where the local state stands to its end. Its end is the last stable offset, and
that must be the high watermark: an open transaction of a previous owner under another transactional id (the
number of slots was changed) would otherwise commit behind our back. Its last offset is a control record:
reading is over when the position reaches the end, not when a record with the last offset comes.

The table's log takes its state over from columns, and the table holds the rest. Both are written with the mark
only when the caller has seen that the state means what it expects and flushes the table: state of another
definition must not be left there under a mark.

A changelog can hold the state of before a reset too, which may be of another definition, or corrupt: at an
origin all that was read before it is forgotten, and so is that it could not be read.

What is found wrong decides: a corrupt local state is thrown away and read again from the changelog; a corrupt
or cut changelog stops the worker, because there is no second copy of what it knew.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import closing, suppress
from typing import TYPE_CHECKING

from processor.errors import RebuildError, StopError
from processor.ops.fault_points import Restoring, reached
from processor.state.changelog import read_head, rows_under, whole
from processor.state.kv.store import CorruptStoreError
from processor.state.state_log import ForeignStateError
from schemas.changelog.backfill import BACKFILL_KEY, BackfillProgress
from schemas.changelog.check import check_entry
from schemas.changelog.position import LocalMark, Origin, Position
from schemas.changelog.values import ORIGIN_KEY, POSITION_KEY, CorruptStateError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from processor.engine.batch.columns import Columns
    from processor.state.changelog import Changelog, ChangelogBounds
    from processor.state.state_log import StateLog
    from processor.state.table import Table

    Progress = Callable[[int, int], None]

log = logging.getLogger(__name__)

NO_STATE = b"\x00" * 16
CORRUPT = "local state of %s is corrupt, reading it again"
WAITING = "%s has an open transaction of another transactional id, waiting until it ends"
UNREADABLE = "reading on, in case a reset has begun the state again behind this: %s"
FOREIGN = "local state of %s belongs to another changelog, reading all of it again"
STAGED_BYTES = 4 * 1024 * 1024
"""Without local state, values are written at this size while they are read. Where the config was changed they
can be the scopes of another definition by the million, which is refused only once all is read."""
LOOK_BACK = 64
"""Offsets in front of a mark in which the last position is looked for: only aborted batches take more."""


async def restore(
    table: Table, changelog: Changelog, transaction_timeout_s: float, progress: Progress
) -> Position | None:
    """Bring ``table`` to the end of its changelog, which is fenced, and return the source position it holds.

    Args:
        table: The partition's table.
        changelog: Its changelog.
        transaction_timeout_s: How long an open transaction can stay open.
        progress: Called with changelog offsets done and in total.

    Returns:
        None where neither the changelog nor the table knows anything: a new partition.

    Raises:
        StopError: The changelog is shorter than what was known, or corrupt; or the local state cannot be read.
        CorruptStoreError: The local state is not whole though it has just been made: to be thrown away.
        RebuildError: A transaction stays open on it, or Kafka does not answer.
    """
    limits = await settled(changelog, transaction_timeout_s)
    table.rewind()  # restored once already, before somebody else was fenced
    mark = _usable_mark(table, changelog, limits)
    if mark is not None and not await _loaded(table, changelog, limits.start, mark):
        table.clear()
        mark = None
    while True:
        start = limits.start if mark is None else max(limits.start, table.log.resumes(mark.changelog_offset))
        seen = await _apply(table, changelog, (start, limits.stable), mark, progress)
        try:
            if seen:
                await _apart(_checked(table.log))
            position = table.position()
        except (CorruptStateError, CorruptStoreError) as error:
            if mark is None and isinstance(error, CorruptStoreError):
                raise  # what was read just now from the changelog is whole, what was made of it is not
            if mark is None:
                raise StopError(f"{changelog.name}: {error}") from error
            log.exception(CORRUPT, changelog.name)
        else:
            if mark is None or (position is not None and position.state_id == mark.state_id and seen):
                await _require_whole(table, changelog, limits)
                table.changelog_end = limits.end
                return position
            log.warning(FOREIGN, changelog.name)
        mark = None
        table.clear()


async def _require_whole(table: Table, changelog: Changelog, limits: ChangelogBounds) -> None:
    """Stop where the changelog alone would not do: the next owner of the partition has no other copy."""
    if not table.log.begins_late(limits.start):
        return
    async for columns, _ in changelog.columns(limits.start, limits.stable):
        if table.log.require_begun(columns):
            return
    raise StopError(_nothing_left(changelog))


def _nothing_left(changelog: Changelog) -> str:
    return (
        f"{changelog.name} holds no state any more, only the local state does: its records were deleted (by "
        "retention, DeleteRecords, or another cleanup.policy), and whoever takes this partition over would "
        "have no memory. Restore the topic from a copy, or see 'Beginning anew' in docs/operations.md"
    )


async def settled(changelog: Changelog, timeout_s: float) -> ChangelogBounds:
    """Wait until no transaction is open on the changelog, and return where it ends.

    Raises:
        RebuildError: One stays open for longer than ``timeout_s`` and a little.
    """
    deadline = time.monotonic() + timeout_s + 10
    said = False
    while True:
        limits = await changelog.bounds()
        if limits.stable == limits.end:
            return limits
        if not said:
            log.warning(WAITING, changelog.name)
            said = True
        if time.monotonic() > deadline:
            message = f"{changelog.name}: a transaction is still open after {timeout_s + 10:.0f} s; "
            raise RebuildError("open_transaction", f"{message}kafka-transactions.sh find-hanging names it")
        await asyncio.sleep(0.2)


def _usable_mark(table: Table, changelog: Changelog, limits: ChangelogBounds) -> LocalMark | None:
    """Return the local mark if the local state can be caught up from it; clear the table if not."""
    try:
        mark = table.mark()
    except (CorruptStateError, CorruptStoreError):
        log.exception(CORRUPT, changelog.name)
        table.clear()
        return None
    if mark is None:
        # Nothing is written without a mark: whatever lies here is not ours.
        if next(table.store.items(b""), None) is not None:
            table.clear()
        if limits.stable > limits.start:
            log.info("there is no local state of %s, reading all of it", changelog.name)
        return None
    if mark.changelog_offset > limits.end:
        raise StopError(
            f"{changelog.name} ends at {limits.end}, but the local state has read it up to "
            f"{mark.changelog_offset}: the changelog was deleted or cut. What it knew is lost and "
            "the next records could be judged wrongly. Restore the topic, or see 'Beginning anew' in "
            "docs/operations.md."
        )
    if limits.start >= limits.stable:
        raise StopError(_nothing_left(changelog))
    if mark.changelog_offset < limits.start:
        log.warning("%s has moved past the local state, reading it again", changelog.name)
        table.clear()
        return None
    return mark


async def _loaded(table: Table, changelog: Changelog, start: int, mark: LocalMark) -> bool:
    """Have the log read the local state; False where it is not right, or another changelog's.

    What stands in front of the mark says whose state it is, or nothing does. Behind the mark there may be no
    position: changelogs of partitions to which nothing has come are all alike but for their states.
    """
    head = await read_head(changelog, max(start, mark.changelog_offset - LOOK_BACK), mark.changelog_offset)
    same = head.position is None or head.position.state_id == mark.state_id
    try:
        if same:
            await _apart(table.load_log())
        else:
            log.warning(FOREIGN, changelog.name)
    except (CorruptStateError, CorruptStoreError):
        log.exception("local state of %s is corrupt or of another form, reading it again", changelog.name)
        return False
    return same


def _checked(state_log: StateLog) -> Generator[None, None, None]:
    state_log.check()
    yield


async def _apart(steps: Generator[None, None, None]) -> None:
    """Do work step by step in a thread: heartbeats and health checks go on, and other partitions' loads too.

    When cancelled it ends with the step at hand, and not before: the table is closed next.
    """
    cancelled = False

    def work() -> None:
        with closing(steps):
            for _ in steps:
                reached(Restoring.LOADED)
                if cancelled:
                    return

    done = asyncio.get_running_loop().run_in_executor(None, work)
    try:
        await asyncio.shield(done)
    except asyncio.CancelledError:
        cancelled = True
        while not done.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait({done})
        raise


async def _apply(
    table: Table, changelog: Changelog, span: tuple[int, int], mark: LocalMark | None, progress: Progress
) -> bool:
    """Read the changelog into the table. Returns False where it shows another state than ``mark``'s."""
    start, stop = span
    at = start
    reading = _Reading(table, changelog, mark)
    progress(0, stop - start)
    async for found, after in changelog.columns(start, stop):
        if not reading.take(found):
            return False
        at = after
        reading.save(at)
        reached(Restoring.TAKEN_IN)
        progress(at - start, stop - start)
    reading.require_readable()
    if reading.unsaved or (mark is not None and at != mark.changelog_offset):
        table.hold(reading.held, LocalMark(max(at, stop), reading.state_id))
    return True


class _Reading:
    """What has been read of a changelog since its last origin, beside what the table's log has.

    What cannot be read counts only where no origin comes behind it: it can be of before a reset, by which what
    records are judged by was changed. Until then the table is left as it is.

    Attributes:
        held: Values that are not written yet.
        state_id: Of the state that they are of.
    """

    def __init__(self, table: Table, changelog: Changelog, mark: LocalMark | None) -> None:
        self._table, self._changelog, self._mark = table, changelog, mark
        self.state_id = mark.state_id if mark else NO_STATE
        self._staged = False
        self._begin()

    def _begin(self) -> None:
        self.held: dict[bytes, bytes | None] = {}
        self._held_bytes = 0
        self._unfinished: BackfillProgress | None = None
        self._wrong: StopError | None = None

    @property
    def unsaved(self) -> bool:
        """Whether the local store lacks something of it, or a mark."""
        return bool(self.held) or self._staged or self._table.log.unsaved

    def take(self, found: Columns) -> bool:
        """Take some records over; False: they show another state than the mark's."""
        columns, origin = _since_origin(found)
        if origin is not None:
            _forget(self._table)
            self._begin()
        if self._wrong is not None:
            return True
        try:
            return self._take(columns, origin)
        except StopError as error:
            log.info(UNREADABLE, error)
            self._table.rewind()
            self._begin()
            self._wrong = error
            return True

    def _take(self, columns: Columns, origin: bytes | None) -> bool:
        table, mark = self._table, self._mark
        if origin is not None:
            with whole(self._changelog):
                Origin.decode(origin)
            table.log.note_origin(origin)
        self._unfinished = _unfinished(columns, self._changelog, self._unfinished)
        rest = _rest_of(table.log, columns, self._changelog, mark)
        if rest is None:
            return False
        self.held |= rest
        self._held_bytes += sum(len(key) + len(value or b"") for key, value in rest.items())
        if rest.get(POSITION_KEY) is not None:
            self.state_id = Position.decode(rest[POSITION_KEY] or b"").state_id
        return mark is None or self.state_id == mark.state_id

    def save(self, at: int) -> None:
        """Write what there is up to a changelog offset, if that is due."""
        table = self._table
        if self._wrong is not None or not table.log.due(0):
            return
        if self._mark is not None:
            table.apply(self.held, LocalMark(at, self.state_id))
        elif self._held_bytes < STAGED_BYTES:
            table.stage()
        else:
            table.stage(self.held)
            self.held, self._held_bytes, self._staged = {}, 0, True

    def require_readable(self) -> None:
        """Look whether all that counts was read.

        Raises:
            StopError: It was not, or is a backfill that is not loaded to its end.
        """
        if self._wrong is not None:
            raise self._wrong
        _require_loaded(self._changelog, self._unfinished)


def _unfinished(
    columns: Columns, changelog: Changelog, before: BackfillProgress | None
) -> BackfillProgress | None:
    """Return the backfill that is not loaded to its end; ``before``: as far as was read until now."""
    rows = rows_under(columns, POSITION_KEY, BACKFILL_KEY)
    for key, value in columns.items(rows[-1:]):
        with whole(changelog):
            return BackfillProgress.decode(value or b"") if key == BACKFILL_KEY else None
    return before


def _require_loaded(changelog: Changelog, unfinished: BackfillProgress | None) -> None:
    if unfinished is not None:
        raise StopError(
            f"{changelog.name}: its state is backfill {unfinished.run}, which is not loaded to its end: load "
            "it again, and it goes on where it was; or begin without it, see 'Beginning anew' in "
            "docs/operations.md"
        )


def _rest_of(
    state_log: StateLog, columns: Columns, changelog: Changelog, mark: LocalMark | None
) -> dict[bytes, bytes | None] | None:
    """Give the log what is its; return the records of other kinds. None: the local state is another's."""
    try:
        rest = state_log.apply(columns)
    except CorruptStateError as error:
        if mark is not None and isinstance(error, ForeignStateError):
            log.warning("%s does not go on from the local state: %s", changelog.name, error)
            return None
        raise StopError(
            f"{changelog.name}: {error}. If pipelines.dedup was changed, set it back; else restore the "
            "topic from a copy"
        ) from error
    with whole(changelog):
        for key, value in rest:
            if value is not None:
                check_entry(key, value)
    return {key: value for key, value in rest if key != BACKFILL_KEY}


def _forget(table: Table) -> None:
    if next(table.store.items(b""), None) is None:
        table.rewind()
    else:
        table.clear()  # takes a folder away and creates it again


def _since_origin(columns: Columns) -> tuple[Columns, bytes | None]:
    """Return the records behind the last origin, and that; all of them where there is none."""
    origins = rows_under(columns, ORIGIN_KEY)
    if not origins.size:
        return columns, None
    return columns.rows(int(origins[-1]) + 1, len(columns)), columns.items(origins[-1:])[0][1]
