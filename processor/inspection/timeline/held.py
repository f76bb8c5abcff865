"""Finds out what the state of a pipeline holds of an id or a scope now, and disturbs nobody.

Live workers are asked first (`GET /ids`). Of partitions that none of them answered for the changelog is read,
which a worker would restore its state from: as a consumer without a group, up to its last stable offset. No id
is kept of it but the one that was asked for, so it takes no memory and no disk, however large the state is.
Nobody is fenced, and the local state of a worker is not opened.
"""

from __future__ import annotations

import asyncio
from base64 import b64encode
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlencode

import aiohttp
import numpy as np
import orjson

from processor.engine.ids.block import UnreadableBlockError, decode
from processor.engine.ids.clock import NEVER
from processor.engine.ids.page import BACKFILLED
from processor.engine.repartition import partition_and_offset
from processor.errors import SeqmarkError, StopError
from processor.inspection.timeline.wanted import KeyMatcher
from processor.judges.asked_id import asked_words, hash_of
from processor.judges.committed import RememberedRecord, living
from processor.judges.watermark import brought_mark
from processor.kafka.client import KafkaError, TopicPartition
from processor.kafka.group.description import describe_group
from processor.kafka.offsets import bounds
from processor.kafka.reader import ChangelogPartition
from processor.kafka.topics.plan import changelog_topic
from processor.ops.web_port import machine
from processor.state.changelog import brought_rows, rows_under
from processor.wire.decode import Decoder
from processor.wire.receipt_values import RecordRef
from processor.worker.web.others import MOST_WORKERS, bounded, session_to_workers, web_address
from schemas.changelog.ids import ID_BLOCK_KIND, IDS_KEY, IdState
from schemas.changelog.values import BROUGHT_KIND, ORIGIN_KEY, CorruptStateError
from schemas.changelog.watermark import ScopeValue, watermark_key

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from numpy.typing import NDArray

    from processor.engine.batch.columns import Columns
    from processor.judges.asked_id import AskedId
    from processor.kafka.client import Client
    from schemas.config import Pipeline, Settings

    Bar = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]

ASK_S = 2.0
"""For a worker to answer, which takes it milliseconds."""
MOST_VARIANTS = 100
"""Records of one id that collided, of which the last are kept."""
TAIL_OFFSETS = 64
CHANGELOG = "changelog"


class HeldRecord(NamedTuple):
    """A record by which an id is remembered; None where only a filter knows the id.

    Where only the owner is None, a backfill has brought the id. ``kinds``: what its words were taken for.
    """

    owner: RecordRef | None
    reading_ms: int | None
    expires_ms: int | None
    kinds: tuple[str, ...] = ()


@dataclass(frozen=True)
class HeldPartition:
    """What the state of one partition holds.

    Attributes:
        partition: Its number.
        source: Who said so: the address of a worker, or `CHANGELOG`.
        clock_ms: What the partition's clock reads; None: nothing yet, or the mode has none.
        records: In mode insert-id.
        watermark: In mode watermark, of the scope; None: it is not known.
        epoch: Likewise.
    """

    partition: int
    source: str
    clock_ms: int | None = None
    records: tuple[HeldRecord, ...] = ()
    watermark: int | None = None
    epoch: int | None = None

    @property
    def known(self) -> bool:
        """Whether it holds anything of what was asked."""
        return bool(self.records) or self.watermark is not None

    def as_json(self) -> dict[str, Any]:
        """Return it as programs read it."""
        said: dict[str, Any] = {"partition": self.partition, "from": self.source}
        if self.watermark is not None:
            return {**said, "watermark": self.watermark, "epoch": self.epoch}
        records = [
            {
                "owner": None if each.owner is None else each.owner.as_json(),
                "reading": each.reading_ms,
                "expires_at": each.expires_ms,
                "as": each.kinds,
            }
            for each in self.records
        ]
        return {**said, "clock": self.clock_ms, "remembered": records}


@dataclass(frozen=True)
class HeldQuestion:
    """What is asked of the state.

    Attributes:
        pipeline: Whose.
        ids: What the words can mean, in mode insert-id.
        words: They, as they were written.
        scope: In mode watermark.
    """

    pipeline: Pipeline
    ids: tuple[AskedId, ...] = ()
    words: tuple[str, ...] = ()
    scope: bytes | None = None

    @property
    def query(self) -> str:
        """It, for `GET /ids`."""
        asked: list[tuple[str, str]] = [("pipeline", self.pipeline.name)]
        if self.scope is None:
            asked += asked_words(self.words)
        else:
            asked.append(("scope", f"base64:{b64encode(self.scope).decode()}"))
        return urlencode(asked, errors="surrogateescape")


async def held(
    settings: Settings,
    question: HeldQuestion,
    client: Client,
    bar: Bar,
) -> list[HeldPartition]:
    """Return what each partition's state holds, by number; those that nobody has judged in are left out.

    Args:
        settings: With the address of workers.
        question: What is asked.
        client: Knows the changelog.
        bar: Shows how far reading a changelog is, in its offsets.

    Raises:
        StopError: A changelog cannot be read.
        RebuildError: The brokers do not answer.
    """
    found = {each.partition: each for each in await ask_workers(settings, question, client)}
    topic = changelog_topic(settings, question.pipeline)
    missing = sorted(client.partitions(topic) - found.keys())
    limits = await bounds(client, [TopicPartition(topic, number) for number in missing])
    decoder = Decoder()
    with bar("the state", sum(each.stable - each.start for each in limits.values())) as advance:
        for number in missing:
            said = await _from_changelog(client, decoder, topic, number, question, advance)
            if said is not None:
                found[number] = said
    return [found[number] for number in sorted(found)]


# -------------------------------------------------------------------- live workers


async def ask_workers(settings: Settings, question: HeldQuestion, client: Client) -> list[HeldPartition]:
    """Return what the live workers of the group say; nothing where none is reached."""
    addresses = await _addresses(settings, client)
    async with session_to_workers(ASK_S) as session:
        asked = (_ask(session, each, question, settings.worker.application_id) for each in addresses)
        answers = await asyncio.gather(*asked)
    return [each for answer in answers for each in answer]


async def _addresses(settings: Settings, client: Client) -> list[str]:
    """Return where workers answer: as the group says, and as the config does where that says nothing."""
    worker, found = settings.worker, []
    try:
        group = await describe_group(client, worker.application_id, ASK_S)
        own = machine()
        found = [where for each in group.members if (where := web_address(each, own)[0])]
    except (SeqmarkError, KafkaError, TimeoutError):
        pass  # nobody says who is in it: the changelog knows what they know
    if not found and worker.web_port and "web_port" in worker.model_fields_set:
        host = worker.web_host
        found = [f"[{host}]:{worker.web_port}" if ":" in host else f"{host}:{worker.web_port}"]
    return [f"http://{each}" for each in found[:MOST_WORKERS]]


async def _ask(
    session: aiohttp.ClientSession, address: str, question: HeldQuestion, application: str
) -> list[HeldPartition]:
    try:
        async with session.get(f"{address}/ids?{question.query}", allow_redirects=False) as answer:
            if answer.status != 200:
                return []
            said = orjson.loads(await bounded(answer.content))
        if said["application"] != application or said["pipeline"] != question.pipeline.name:
            return []
        return [_parsed(each, address) for each in said["partitions"]]
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError, KeyError, TypeError):
        return []  # it is gone, or an older one, or somebody else


def _parsed(said: dict[str, Any], address: str) -> HeldPartition:
    number = int(said["partition"])
    if "watermark" in said:
        return HeldPartition(number, address, watermark=said["watermark"], epoch=said.get("epoch"))
    records = tuple(
        HeldRecord(
            None if each["owner"] is None else RecordRef(**each["owner"]),
            each["reading"],
            each["expires_at"],
            tuple(each["as"]),
        )
        for each in said["remembered"]
    )
    return HeldPartition(number, address, said["clock"], records)


# -------------------------------------------------------------------- the changelog


async def _from_changelog(
    client: Client,
    decoder: Decoder,
    topic: str,
    number: int,
    question: HeldQuestion,
    advance: Callable[[int], None],
) -> HeldPartition | None:
    changelog = ChangelogPartition(client, decoder, topic, number)
    start, stop, _ = await changelog.bounds()
    secret = None
    if question.scope is None:
        secret = await partition_secret(client, decoder, topic, number)
        if secret is None:
            return None
    search = ChangelogSearch(question, secret)
    at = start
    try:
        async with aclosing(changelog.columns(start, stop)) as pieces:
            async for columns, after in pieces:
                origins = rows_under(columns, ORIGIN_KEY)
                for key, value in columns.items(
                    np.arange(int(origins[-1]) if origins.size else 0, len(columns))
                ):
                    search.take(key, value)
                advance(after - at)
                at = after
    except (CorruptStateError, UnreadableBlockError) as error:
        raise StopError(f"{changelog.name}: {error}") from error
    return search.result(number)


async def partition_secret(client: Client, decoder: Decoder, topic: str, number: int) -> bytes | None:
    """Return the key of the hashes of a partition's ids; None: nobody has judged there yet.

    Raises:
        StopError, RebuildError: The changelog cannot be read.
    """
    tp = TopicPartition(topic, number)
    limits = (await bounds(client, [tp]))[tp]
    count = TAIL_OFFSETS
    while True:
        begin = max(limits.start, limits.stable - count)
        secret = None
        async with aclosing(
            ChangelogPartition(client, decoder, topic, number).columns(begin, limits.stable)
        ) as pieces:
            async for columns, _ in pieces:
                rows = rows_under(columns, IDS_KEY)
                for _, value in columns.items(rows[-1:]):
                    secret = IdState.decode(value or b"").secret
        if secret is not None or begin == limits.start:
            return secret
        count *= TAIL_OFFSETS


@dataclass
class ChangelogSearch:
    """Looks for one id, or one scope, in what a changelog says, in its order."""

    question: HeldQuestion
    secret: bytes | None
    clock_ms: int = NEVER
    watermark: ScopeValue | None = None
    _last: dict[int, RememberedRecord] = field(default_factory=dict)
    """By which of the ids that are asked for."""
    _variants: dict[tuple[int, int], RememberedRecord] = field(default_factory=dict)
    """Likewise, and by the number of its first row."""
    _hashes: list[NDArray[np.uint64]] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.secret is not None:
            self._hashes = [hash_of(each, self.secret) for each in self.question.ids]

    def rows(self, columns: Columns) -> NDArray[np.int64]:
        """Return int64[k], rising: the records that have something to say."""
        if self.question.scope is None:
            return np.arange(len(columns))  # few, of many ids each
        scopes = KeyMatcher(watermark_key(self.question.scope)).rows(columns)
        return np.unique(np.concatenate((rows_under(columns, ORIGIN_KEY), scopes, brought_rows(columns))))

    def take(self, key: bytes, value: bytes | None) -> None:
        """Take one record."""
        if key == ORIGIN_KEY:
            self.clock_ms, self.watermark = NEVER, None
            self._last.clear()
            self._variants.clear()
        elif self.question.scope is not None:
            if key == watermark_key(self.question.scope):
                self.watermark = None if value is None else ScopeValue.decode(key, value)
            elif key.startswith(BROUGHT_KIND):
                mark = brought_mark(self.question.pipeline.dedup, self.question.scope, key, value or b"")
                self.watermark = ScopeValue(mark.sequence, mark.epoch) if mark else self.watermark
        elif key == IDS_KEY and value is not None:
            self.clock_ms = max(self.clock_ms, IdState.decode(value).clock_ms)
        elif key.startswith(ID_BLOCK_KIND) and value is not None:
            self._block(key, value)

    def _block(self, key: bytes, value: bytes) -> None:
        dedup = self.question.pipeline.id_dedup
        rows, clock_ms, _ = decode(value, key, fingerprints=dedup is not None and dedup.fingerprint is not None)
        self.clock_ms = max(self.clock_ms, clock_ms)
        for which, wanted in enumerate(self._hashes):
            for row in np.flatnonzero((rows.hash == wanted).all(axis=1)).tolist():
                found = RememberedRecord(int(rows.owner[row]), int(rows.reading_ms[row]))
                if rows.collision.size and rows.collision[row]:
                    born = int(rows.supersedes[row])
                    self._variants[which, rows.first + row if born < 0 else born] = found
                    if len(self._variants) > MOST_VARIANTS:
                        del self._variants[next(iter(self._variants))]
                else:
                    self._last[which] = found

    def result(self, number: int) -> HeldPartition:
        """Return what the state holds."""
        if self.question.scope is not None:
            mark = self.watermark
            sequence, epoch = (None, None) if mark is None else (mark.sequence, mark.epoch)
            return HeldPartition(number, CHANGELOG, watermark=sequence, epoch=epoch)
        pipeline = self.question.pipeline
        dedup = pipeline.id_dedup
        assert dedup is not None  # noqa: S101 - ids are asked for
        records: list[HeldRecord] = []
        for which, asked in enumerate(self.question.ids):
            of = [found for (each, _), found in self._variants.items() if each == which]
            last = [self._last[which]] if which in self._last else []
            kinds = tuple(part.kind for part in asked)
            records += (
                _record(pipeline, number, each, dedup.window)._replace(kinds=kinds)
                for each in living(last, of, self.clock_ms, dedup.window)
            )
        clock = None if self.clock_ms == NEVER else self.clock_ms
        return HeldPartition(number, CHANGELOG, clock, tuple(records))


def _record(pipeline: Pipeline, number: int, found: RememberedRecord, window_ms: int) -> HeldRecord:
    if found.owner is None or found.reading_ms is None or not pipeline.id_dedup:
        return HeldRecord(None, None, None)
    if pipeline.id_dedup.backend == "bloom":
        # Filters drop by what they say, whosever it was.
        return HeldRecord(None, None, found.reading_ms + window_ms)
    if found.owner == BACKFILLED:
        return HeldRecord(None, found.reading_ms, found.reading_ms + window_ms)
    partition, offset = partition_and_offset(found.owner) if pipeline.routed else (number, found.owner)
    return HeldRecord(
        RecordRef(pipeline.source, partition, offset), found.reading_ms, found.reading_ms + window_ms
    )


def scope_of(pipeline: Pipeline, key: bytes | None) -> bytes | None:
    """Return the scope that a key asks for in mode watermark; None: none that its records' keys tell."""
    dedup = pipeline.dedup
    return key if dedup.mode == "watermark" and dedup.scope == "key" else None


def words_of(pipeline: Pipeline, words: Sequence[str], key: str | None) -> tuple[str, ...]:
    """Return the words that ask for an id, which a key may be; none: it cannot be told."""
    dedup = pipeline.id_dedup
    if key is None or dedup is None:
        return tuple(words)
    return (key,) if [each.from_ for each in dedup.id] == ["key"] else ()
