"""Reads from the changelog what the partition's clock read when a worker judged by it.

Timestamps alone say it, but where a worker's clock came in: each commit of mode insert-id says where that was
(`schemas.changelog.clock`). The changelog is deleted up to the live window, and with it what its commits said.
What is left says itself whether that matters: since which source offset nothing but timestamps has moved the
clock.
"""

from __future__ import annotations

import asyncio
import time
from array import array
from typing import TYPE_CHECKING

import numpy as np

from processor.engine.ids.clock import NEVER, NOT_KNOWN, RecordedClock
from processor.errors import StopError
from processor.state.changelog import rows_under, whole
from schemas.changelog.ids import IDS_KEY, IdState
from schemas.changelog.position import Position
from schemas.changelog.values import ORIGIN_KEY, POSITION_KEY, CorruptStateError

if TYPE_CHECKING:
    from processor.state.changelog import Changelog

POLL_S = 0.1


class ClockHistory:
    """What a changelog says of a partition's clock; 16 bytes per limit.

    Attributes:
        clock: Reads it again, as far as `position`.
        known_from: The first source offset from which on it is known; None where nothing is said yet.
        before_ms: What the clock read there.
        position: Up to which source offset it is known; `NOT_KNOWN` where nothing is said yet.
        secret: The key of the partition's hashes; None where nothing is said yet.
        backfill: The name of the backfill that the state began with; empty where there was none. Its clock is
            known from where the stream began.

    Args:
        changelog: Of the partition.
        start: Its first offset.
        arrival: Whether the clock is the worker's.
    """

    def __init__(self, changelog: Changelog, start: int, *, arrival: bool) -> None:
        self.clock = RecordedClock(*np.zeros((2, 0), np.int64), arrival=arrival)
        self._changelog = changelog
        self._at = start
        self._states = 0
        self.secret: bytes | None = None
        self.backfill = ""
        self._wrong: CorruptStateError | None = None
        self._forget(whole=False)

    def _forget(self, *, whole: bool) -> None:
        self.known_from: int | None = None
        self.before_ms = NEVER
        self.position = NOT_KNOWN
        self._whole = whole
        self._unsure_ms: int | None = None
        self._offsets, self._limits = array("q"), array("q")

    async def read(self, stop: int) -> None:
        """Take in what the changelog says up to its offset ``stop``.

        Raises:
            StopError: It is corrupt.
            RebuildError: It is not to be had.
        """
        if self._at >= stop:
            return
        async for columns, after in self._changelog.columns(self._at, stop):
            for key, value in columns.items(rows_under(columns, ORIGIN_KEY, IDS_KEY, POSITION_KEY)):
                try:
                    if value is not None:
                        self._take(key, value)
                except CorruptStateError as error:
                    self._wrong = self._wrong or error
            self._at = after
        with whole(self._changelog):
            if self._wrong is not None:
                raise self._wrong
        self.clock.say(np.array(self._offsets, np.int64), np.array(self._limits, np.int64))

    def limits(self) -> list[tuple[int, int]]:
        """Return from which source offset on which limit (ms) held."""
        return list(zip(self._offsets, self._limits, strict=True))

    async def reach(self, offset: int, patience_s: float) -> bool:
        """Read on until the clock is known up to a source offset; False: it is not after ``patience_s``.

        Raises:
            StopError: Another state has begun meanwhile: what is known says nothing of what was judged before.
            RebuildError: The changelog is not to be had.
        """
        deadline = time.monotonic() + patience_s
        states = self._states
        while True:
            await self.read((await self._changelog.bounds()).stable)
            if self._states != states:
                name = self._changelog.name
                raise StopError(f"{name}: a reset has begun the state anew meanwhile: run this again")
            if self.position >= offset:
                return True
            if time.monotonic() >= deadline:
                return False
            await asyncio.sleep(POLL_S)

    def _take(self, key: bytes, value: bytes) -> None:
        if key == ORIGIN_KEY:
            # What stands before it is of an earlier state, and need not be readable.
            self._wrong = None
            self._states += 1
            self._forget(whole=True)
        elif key == IDS_KEY:
            self._take_state(IdState.decode(value))
        else:
            self.position = Position.decode(value).next_offset
            if self._unsure_ms is not None:
                self.known_from, self.before_ms = self.position, self._unsure_ms
                self._unsure_ms = None

    def _take_state(self, state: IdState) -> None:
        trace, self.secret, self.backfill = state.trace, state.secret, state.backfill
        if trace.since == NOT_KNOWN:
            # Known from its position on, which stands behind it.
            self._forget(whole=False)
            self._unsure_ms = state.clock_ms
            return
        if self.known_from is None:
            if self._whole and not self.backfill:
                self.known_from = 0
            else:
                self.known_from, self.before_ms = trace.since, trace.before_ms
        self._offsets.extend(offset for offset, _ in trace.limits)
        self._limits.extend(limit_ms for _, limit_ms in trace.limits)
