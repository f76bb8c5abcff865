"""Finds where a record stands in the clean topic, and back: by its bytes, between two places that are known.

The clean topic has the order of the source, so what lies between two known places of it lies between them
there as well. Known are: what marks say, and where the run of now begins. A record
keeps its timestamp, so nothing of it stands before the first record with that. Among records that are equal
in all, those that passed are counted, in their order.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from processor.inspection.explain.lookup.log import shown
from processor.kafka.client import TopicPartition
from processor.kafka.offsets import offsets_at

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from numpy.typing import NDArray

    from processor.engine.batch.columns import Columns
    from processor.inspection.explain.lookup.log import LogReader
    from processor.inspection.explain.story import ShownRecord
    from processor.kafka.client import Client

    Passed = Callable[[int], Awaitable[bool | None]]
    """Says whether the record at a source offset passed; None: nothing says it."""
    Formed = Callable[[int], Awaitable["PassedForm | Literal[False] | None"]]
    """Says in which form it passed; False: it did not; None: nothing says it."""


class PassedForm(NamedTuple):
    """In which form a record passes.

    Attributes:
        action: What changed it when it collided, ``tag`` or ``rename``; None: it passes as it came.
        new_id: What it was renamed to.
    """

    action: str | None = None
    new_id: str | None = None

    @classmethod
    def of(cls, action: str | None, new_id: str | None, *, observed: bool = False) -> PassedForm:
        """Return that of a record that collided; ``observed``: it passed as it came all the same."""
        if observed or action not in {"tag", "rename"}:
            return AS_IT_CAME
        return cls(action, new_id if action == "rename" else None)


AS_IT_CAME = PassedForm()
MOST_ALIKE = 64
"""Records of one timestamp and key of which one may have got a new id: each is looked up."""
NEAR = 2048
"""Offsets that are read sooner than the brokers are asked for a time."""
ORIGINAL_ID = b"seqmark.original_id"
COLLISION = b"seqmark.collision"


_NOWHERE = TopicPartition("", 0)


class Bracket(NamedTuple):
    """Two places that belong together: what passes from one on stands in the clean topic from the other on.

    Attributes:
        source_from: In the source.
        clean_from: In the clean topic.
        clean_to: Before it stands whatever passed up to ``source_to``.
        source_to: In the source; -1: not known.
        tight: They are close to each other: marks of one second.
    """

    source_from: int
    clean_from: int
    clean_to: int
    source_to: int = -1
    tight: bool = False


@dataclass(frozen=True)
class Sought:
    """What a record looks like in the clean topic.

    Attributes:
        record: As it came.
        form: In which form it passed.
        body: The record as bytes, as a worker copies them; None: headers may be written otherwise.
    """

    record: ShownRecord
    form: PassedForm = AS_IT_CAME
    body: bytes | None = None

    @classmethod
    def of(cls, source: TopicPartition, columns: Columns, *, copied: bool) -> Sought:
        """Return that of the one record of some columns, which passes as it came; ``copied``: byte by byte."""
        begin, end = int(columns.body[0]), int(columns.end[0])
        return cls(shown(source, columns), body=columns.data[begin:end].tobytes() if copied else None)

    def rows(self, columns: Columns, start: int, stop: int) -> Iterator[int]:
        """Yield the rows between two offsets that are this record."""
        want, offset = self.record, columns.offset
        key, value = -1 if want.key is None else len(want.key), -1 if want.value is None else len(want.value)
        begin, end = int(offset.searchsorted(start)), int(offset.searchsorted(stop))
        may = (columns.timestamp[begin:end] == want.timestamp_ms) & (columns.key_length[begin:end] == key)
        if self.body is not None:
            may &= columns.end[begin:end] - columns.body[begin:end] == len(self.body)
        elif self.form.action != "rename":
            may &= columns.value_length[begin:end] == value
        for row in np.flatnonzero(may).tolist():
            if self._is(columns, begin + row):
                yield begin + row

    def _is(self, columns: Columns, row: int) -> bool:
        if self.body is not None:
            at = int(columns.body[row])
            return columns.data[at : at + len(self.body)].tobytes() == self.body
        want = self.record
        if not _same(columns, columns.key, columns.key_length, row, want.key):
            return False
        if self.form.action == "rename":
            new = (self.form.new_id or "").encode()
            found = shown(_NOWHERE, columns, row)
            return new in (found.value or b"") or any(new in (content or b"") for _, content in found.headers)
        if not _same(columns, columns.value, columns.value_length, row, want.value):
            return False
        headers = shown(_NOWHERE, columns, row).headers
        if self.form.action == "tag":
            return bool(headers) and headers[:-1] == want.headers and headers[-1][0] == COLLISION
        return headers == want.headers


def _same(
    columns: Columns, at: NDArray[np.int64], length: NDArray[np.int64], row: int, wanted: bytes | None
) -> bool:
    """Whether a key or a value has these bytes; its length is known to be theirs, but with other ones."""
    if wanted is None:
        return int(length[row]) < 0
    begin = int(at[row])
    return int(length[row]) == len(wanted) and columns.data[begin : begin + len(wanted)].tobytes() == wanted


@dataclass
class CleanLog:
    """Finds records in the clean topic.

    Attributes:
        client: For times.
        log: Reads them.
    """

    client: Client
    log: LogReader

    async def find(
        self,
        clean: TopicPartition,
        source: TopicPartition,
        sought: Sought,
        bracket: Bracket,
        formed: Formed,
    ) -> int | None:
        """Return the offset at which a record that passed stands; None: it is not there.

        Args:
            clean: The partition of the clean topic.
            source: The source partition; the record is retained there.
            sought: The record.
            bracket: Where it can be, at the most.
            formed: Of records that are equal to it.

        Raises:
            StopError: Something cannot be read.
            RebuildError: The brokers do not answer.
        """
        plain, time_ms = replace(sought, form=AS_IT_CAME), sought.record.timestamp_ms
        before, span = (bracket.source_from, sought.record.ref.offset), (bracket.clean_from, bracket.clean_to)
        if not bracket.tight:
            before = await self._since(source, time_ms, before)
            span = await self._since(clean, time_ms, span)
        earlier = unsure = 0
        for each in await self.matches(source, plain, before):
            did = await formed(each)
            earlier += did == sought.form
            unsure += did is None
        found = await self.matches(clean, sought, span, earlier + 1 + unsure)
        # Where nothing says which of its equals passed, the first did, others as far as there are so many.
        return found[earlier + unsure] if earlier + unsure < len(found) else None

    async def source_of(
        self,
        source: TopicPartition,
        record: ShownRecord,
        span: tuple[int, int],
        formed: Formed,
    ) -> list[int]:
        """Return the source offsets in a span that a record of the clean topic can have come from, rising.

        Those only that passed in its form, as far as that is known. A tag is taken off before comparing.

        Args:
            source: The source partition.
            record: As it stands in the clean topic.
            span: Of the source.
            formed: Of records that are equal to it.
        """
        span = await self._since(source, record.timestamp_ms, span)
        headers = record.headers
        forms: dict[str | None, tuple[tuple[bytes, bytes | None], ...]] = {None: headers}
        if headers and headers[-1][0] == COLLISION:
            forms["tag"] = headers[:-1]
        found: dict[int, set[str | None]] = {}
        for action, before in forms.items():
            for each in await self.matches(source, Sought(replace(record, headers=before)), span):
                found.setdefault(each, set()).add(action)
        fits = []
        for each, actions in sorted(found.items()):
            did = await formed(each)
            if did is None or (did is not False and did.action in actions):
                fits.append(each)
        return fits

    async def before_rename(
        self, source: TopicPartition, record: ShownRecord, span: tuple[int, int]
    ) -> list[int]:
        """Return the source offsets in a span from which a record can come that got a new id.

        Those with its timestamp and key: a new id changes the value or a header. Rising, and not too many.
        """
        span = await self._since(source, record.timestamp_ms, span)
        return await self.matches(source, Sought(record, PassedForm("rename", "")), span, MOST_ALIKE)

    async def matches(
        self, tp: TopicPartition, sought: Sought, span: tuple[int, int], most: int = 2**62
    ) -> list[int]:
        """Return the first ``most`` offsets of a span of a partition at which a record's bytes stand."""
        found: list[int] = []
        async for some in self.log.stretches(tp, *span):
            rows = islice(sought.rows(some.columns, *span), most - len(found))
            found += [int(some.columns.offset[row]) for row in rows]
            if len(found) >= most:
                break
        return found

    async def _since(self, tp: TopicPartition, timestamp_ms: int, span: tuple[int, int]) -> tuple[int, int]:
        """Return a span that begins no sooner than the first record of a time, if it is long."""
        begin, end = span
        if timestamp_ms >= 0 and end - begin > NEAR:
            at = (await offsets_at(self.client, [tp], timestamp_ms))[tp]
            begin = end if at is None else max(begin, at)
        return begin, end
