"""Makes what is measured on: click events with a sequence or an id, some resent, in whole batches.

Every record of a load has the same width, so that a million of them are made, and later compared with what a
system has written, as one array of bytes. Batches are made by the project's own kernels (0.7 µs a
record; aiokafka's builder takes 2.6 µs, its bytes not counted) and sent whole.

Invariant: a record is determined by load, partition and sequence; a resent one is its original's bytes once
more, timestamp included. In each scope sequences rise but for those resent, so the same records pass whether a
sequence belongs to the partition or to a key of it: each sequence once, in order. An id belongs to one number
of one partition, so the same records pass by their ids; those that collide have other content, and pass too.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from benchmarks.peers import FIELD, HEADER, ID_HEADER
from processor.engine.batch.columns import MAX_OVERHEAD_BYTES, Columns
from processor.engine.batch.encode import encode as encode_records
from processor.kafka.client import Client
from processor.kafka.transactions.producer import Producer
from processor.wire.codec import Codec, deflate
from processor.wire.encode import EncodedBatch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from benchmarks.peers import IdPlace

BATCH_BYTES = 256 * 1024
RECORD_OVERHEAD_BYTES = 8
"""Length, offset and time of a record, about."""
START_MS = 1_760_000_000_000
DAY_MS = 86_400_000
FIRST = 1_000_000_000
"""The sequence of a partition's first record: 10 digits, and so are all that follow."""
RESEND_LAST = 50
"""A resend repeats one of the last so many records, as after a time-out."""
CHUNK = 50_000
"""Records made at a time: 8 MB where they have 150 B, which stays in the cache of most machines."""
_WORDS = b"spring sale shoes trail running light grey blue size left right cart later again home page".split()
_ID_BYTES: dict[str, int] = {"text": 36, "binary": 16, "json": 0, "fingerprint": 16, "content": 0, "bytes": 36}
_UUID_PLACES = [at for at in range(36) if at not in {8, 13, 18, 23}]
_DIGITS = np.frombuffer(b"0123456789abcdef", np.uint8)
_NOTES = 1_021
"""Different notes, a prime: no compressor's window of 64 KB holds one twice."""


@dataclass(frozen=True)
class Load:
    """One input.

    Attributes:
        records: In all partitions, resent ones included.
        duplicates: Share that is resent.
        batch_bytes: Inflated bytes of a batch; 0: each record is a batch.
        note_bytes: Length of a text that makes records longer; without it they have about 150 B.
        keys: How many there are; a key belongs to one partition.
        ids: Where records carry an id; in a header in place of the sequence there and of the event's own id.
        collisions: Share of numbers with the id of an earlier one in place of their own; in headers only.
        far: Whether a resend repeats any earlier record of its partition, not only one of the last few.
        within_ms: A resend repeats any record of the last so many milliseconds; 0: one of the last few.
        tails: Resends come in runs: the last so many records once more, from the fewest to the most, as after a
            producer's restart; (0, 0): each comes by itself.
        measured: How many of the last records are looked at, the others only fill the state; None: half.
        step_ms: From the timestamp of one number to that of the next.
    """

    records: int = 4_000_000
    duplicates: float = 0.05
    partitions: int = 4
    batch_bytes: int = BATCH_BYTES
    codec: Codec = Codec.LZ4
    note_bytes: int = 0
    keys: int = 100_000
    ids: IdPlace | None = None
    collisions: float = 0.0
    far: bool = False
    within_ms: int = 0
    tails: tuple[int, int] = (0, 0)
    measured: int | None = None
    step_ms: int = 1
    seed: int = 7

    def share(self, partition: int) -> int:
        """Return how many records a partition gets."""
        return self.records // self.partitions + (partition < self.records % self.partitions)

    def numbers(self, partition: int) -> NDArray[np.int64]:
        """Return what a partition's records carry, int64[share], from 0: rising, some repeated."""
        rng = np.random.default_rng((self.seed, partition))
        count = self.share(partition)
        if self.tails[1]:
            return self._in_tails(rng, count)
        again = rng.random(count) < self.duplicates
        again[:1] = False
        top = np.cumsum(~again) - 1
        last = max(1, self.within_ms // self.step_ms) if self.within_ms else RESEND_LAST
        back = rng.integers(0, top + 1) if self.far else rng.integers(0, last, count)
        return np.where(again, np.maximum(top - back, 0), top)

    def _in_tails(self, rng: np.random.Generator, count: int) -> NDArray[np.int64]:
        fewest, most = self.tails
        parts: list[NDArray[np.int64]] = []
        top = made = 0
        while made < count:
            tail = int(rng.integers(fewest, most + 1))
            # At least as many new ones, so that no record comes a third time.
            new = max(tail, int(tail * (1 - self.duplicates) / self.duplicates * rng.uniform(0.5, 1.5)))
            parts += [np.arange(top, top + new), np.arange(top + new - tail, top + new)]
            top, made = top + new, made + new + tail
        return np.concatenate(parts)[:count] if parts else np.zeros(0, np.int64)

    def passing(self, partition: int) -> int:
        """Return how many records of a partition pass: the numbers from 0 up to this."""
        numbers = self.numbers(partition)
        return int(numbers.max()) + 1 if numbers.size else 0

    def all_passing(self) -> int:
        """Return how many records pass: with ids that is how many of them there are."""
        return sum(self.passing(partition) for partition in range(self.partitions))

    def named(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return whose id records have, int64[n]: each its own number's, or of a collision an earlier one's."""
        drawn = (_mixed(numbers, self.partitions) >> np.uint64(1)).astype(np.int64)
        collides = drawn % 1_000 < self.collisions * 1_000
        return np.where(collides, drawn // 1_000 % np.maximum(numbers, 1), numbers)

    def stamps(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the timestamps of the records with these numbers, int64[n], ms."""
        return START_MS + numbers * self.step_ms

    def a_day(self, partition: int) -> int:
        """Return how many of a partition's numbers have timestamps of one day, at most."""
        return min(self.passing(partition), -(-DAY_MS // self.step_ms))

    @cached_property
    def form(self) -> Form:
        """How its records look."""
        return _form(self.note_bytes, self.ids)

    @property
    def batch_records(self) -> int:
        """Records in a batch."""
        return max(1, self.batch_bytes // (self.form.width + RECORD_OVERHEAD_BYTES))

    def bodies(self, partition: int, numbers: NDArray[np.int64]) -> NDArray[np.uint8]:
        """Return keys, values and headers of the records with these numbers, uint8[n, width], as in a batch."""
        form = self.form
        made = np.empty((numbers.size, form.width), np.uint8)
        made[:] = form.template
        mixed = _mixed(numbers, partition)
        drawn = (mixed >> np.uint64(1)).astype(np.int64)
        keys = max(1, self.keys // self.partitions)
        columns = {
            "key": drawn % keys * self.partitions + partition,
            "seq": numbers + FIRST,
            "campaign": 10 + drawn % 40,
            "user": 100_000 + drawn % 899_981,
            "page": 1_000 + drawn % 5_003,
            "units": 10 + drawn % 89,
            "cents": drawn % 100,
            "session": drawn % 99_999_989,
            "visit": 10 + drawn % 83,
        }
        for name in columns.keys() & form.fields.keys():
            _digits(columns[name], made[:, form.fields[name]])
        if "event" in form.fields:
            made[:, form.fields["event"]] = _hex(mixed[:, None].view(np.uint8))
        if self.ids is None:
            made[:, form.fields["header"]] = (numbers + FIRST).astype(">i8")[:, None].view(np.uint8)
        elif size := _ID_BYTES[self.ids]:
            own = _mixed(self.named(numbers), partition)
            made[:, form.fields["header"]] = _uuids(own, text=size > 16)
        if self.note_bytes:
            made[:, form.fields["note"]] = _notes(self.note_bytes)[numbers % _NOTES]
        return made

    def carried(self, bodies: NDArray[np.uint8]) -> NDArray[np.int64]:
        """Return the numbers that records carry, int64[n]: negative or senseless where they are not ours."""
        place = self.form.fields["seq" if self.ids else "header"]
        if not self.ids:
            return bodies[:, place].copy().view(">i8")[:, 0].astype(np.int64) - FIRST
        powers = 10 ** np.arange(place.stop - place.start - 1, -1, -1)
        made: NDArray[np.int64] = (bodies[:, place].astype(np.int64) - 48) @ powers - FIRST
        return made

    def batches(self, partition: int) -> Iterator[EncodedBatch]:
        """Yield a partition's input as whole batches."""
        numbers = self.numbers(partition)
        step = max(1, CHUNK // self.batch_records) * self.batch_records
        for at in range(0, numbers.size, step):
            chunk = numbers[at : at + step]
            columns = as_columns(self.bodies(partition, chunk), self.stamps(chunk))
            for first in range(0, chunk.size, self.batch_records):
                rows = np.arange(first, min(first + self.batch_records, chunk.size))
                yield encoded(columns, rows, self.codec)


class Form(NamedTuple):
    """Bytes of a record behind its offset, uint8[width], with the fields left to fill; and where they are."""

    template: NDArray[np.uint8]
    fields: dict[str, slice]

    @property
    def width(self) -> int:
        """Bytes."""
        return self.template.size


@lru_cache(maxsize=8)
def _form(note_bytes: int, ids: IdPlace | None) -> Form:
    fields: dict[str, slice] = {}

    def filled(start: int, *parts: bytes | tuple[str, int]) -> bytes:
        made = b""
        for part in parts:
            if isinstance(part, tuple):
                fields[part[0]] = slice(start + len(made), start + len(made) + part[1])
                part = bytes(part[1])  # noqa: PLW2901 - room for the field
            made += part
        return made

    key = filled(1, b"user-", ("key", 7))
    at = 1 + len(key) + 2
    # A record with an id in a header has no other one, and so about as many bytes as one with a sequence there.
    event = (b'"event_id":"', ("event", 16), b'",') if ids in {None, "json"} else ()
    # Five leaves more, so that there are ten.
    more = (
        b',"session":{"id":"', ("session", 8), b'","visit":', ("visit", 2),
        b'},"tags":["spring","sale"],"consent":true',
    ) if ids in {"fingerprint", "content"} else ()  # fmt: skip
    value = filled(
        at, b'{"%s":' % FIELD.encode(), ("seq", 10), b",", *event, b'"campaign":"spring-',
        ("campaign", 2), b'","user_id":', ("user", 6), b',"page":"/p/', ("page", 4), b'","amount":', ("units",
        2), b".", ("cents", 2), *more,
        *((b',"note":"', ("note", note_bytes), b'"') if note_bytes else ()), b"}",
    )  # fmt: skip
    head, size = (HEADER, 8) if ids is None else (ID_HEADER, _ID_BYTES[ids])
    headers = _varint(0)
    if size:
        parts = _varint(1), _varint(len(head)), head.encode(), _varint(size)
        headers = filled(at + len(value), *parts, ("header", size))
    whole = _varint(len(key)) + key + _varint(len(value)) + value + headers
    if whole[at : at + len(value)] != value:
        raise ValueError(f"a value of {len(value)} bytes has no length of two bytes")
    return Form(np.frombuffer(whole, np.uint8), fields)


def _varint(length: int) -> bytes:
    left = length << 1
    return bytes([left]) if left < 0x80 else bytes([(left & 0x7F) | 0x80, left >> 7])


def _mixed(numbers: NDArray[np.int64], partition: int) -> NDArray[np.uint64]:
    """Return what records with these numbers are drawn from, uint64[n]."""
    mixed = (numbers.astype(np.uint64) + np.uint64(partition << 40)) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(29)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(32)
    return mixed


def _digits(column: NDArray[np.int64], out: NDArray[np.uint8]) -> None:
    left = column
    for place in range(out.shape[1] - 1, -1, -1):
        more = left // 10
        out[:, place] = 48 + (left - more * 10)
        left = more


def _hex(single: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return the bytes of each row as text, uint8[n, twice as many]."""
    digits = np.stack([single >> 4, single & 15], axis=2)
    return _DIGITS[digits.reshape(len(single), 2 * single.shape[1])]


def _uuids(mixed: NDArray[np.uint64], *, text: bool) -> NDArray[np.uint8]:
    """Return a UUID of version 4 for each number, uint8[n, 36 or 16]: as random to whoever reads it."""
    more = mixed * np.uint64(0xD6E8FEB86659FD93)
    more ^= more >> np.uint64(32)
    more *= np.uint64(0xD6E8FEB86659FD93)
    single = np.ascontiguousarray(np.stack([mixed, more], axis=1)).view(np.uint8)
    single[:, 6] = (single[:, 6] & 0x0F) | 0x40
    single[:, 8] = (single[:, 8] & 0x3F) | 0x80
    if not text:
        return single
    out = np.full((mixed.size, 36), ord("-"), np.uint8)
    out[:, _UUID_PLACES] = _hex(single)
    return out


@lru_cache(maxsize=2)
def _notes(size: int) -> NDArray[np.uint8]:
    """Return uint8[_NOTES, size]: words, so that codecs have what they find in texts."""
    rng = np.random.default_rng(3)
    rows = []
    for _ in range(_NOTES):
        text = b""
        while len(text) < size:
            text += _WORDS[int(rng.integers(len(_WORDS)))] + b" %d " % rng.integers(1000)
        rows.append(text[:size])
    return np.frombuffer(b"".join(rows), np.uint8).reshape(_NOTES, size)


def as_columns(bodies: NDArray[np.uint8], timestamps: NDArray[np.int64]) -> Columns:
    """Return columns as far as the encoder needs them, over uint8[n, width]."""
    count, width = bodies.shape
    columns = Columns.empty(count, np.ascontiguousarray(bodies).ravel())
    columns.body[:] = np.arange(count) * width
    columns.end[:] = columns.body + width
    columns.timestamp[:] = timestamps
    return columns


def encoded(columns: Columns, rows: NDArray[np.int64], codec: Codec) -> EncodedBatch:
    """Return a batch of these rows."""
    size = int((columns.end[rows] - columns.body[rows]).sum())
    out = np.empty(size + rows.size * MAX_OVERHEAD_BYTES, np.uint8)
    times = columns.timestamp[rows]
    base = int(times[0])
    used = encode_records(columns.data, columns.table, rows, base, out)
    return EncodedBatch(codec, base, int(times.max()), int(rows.size), deflate(codec, out[:used]))


async def produce(
    bootstrap_servers: str, topic: str, load: Load, advance: Callable[[int], object] = lambda _: None
) -> int:
    """Write the input into a topic, partitions taking turns, and return how many records must pass.

    ``advance`` is called with the number of records that were sent since its last call.
    """
    client = await Client.open({"bootstrap_servers": bootstrap_servers}, "bench-load", [topic])
    producer = Producer(client, None)
    await producer.fence()
    sources = {number: load.batches(number) for number in range(load.partitions)}
    while sources:
        for number in list(sources):
            batch = next(sources[number], None)
            if batch is None:
                del sources[number]
                continue
            await producer.send(topic, number, [batch])
            advance(batch.count)
    await producer.flush()
    await producer.close()
    return load.all_passing()
