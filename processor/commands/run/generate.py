"""``seqmark generate`` fills a source topic with a stream whose duplicates are known."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click
from pydantic import TypeAdapter, ValidationError

from processor.commands.chosen import no_such
from processor.commands.console import STYLES, bar, config_option, json_option, result, say
from processor.commands.files import writing
from processor.config.load import load
from processor.errors import ConfigError, Problem
from schemas.config.values import DurationMs, duration_text

if TYPE_CHECKING:
    from processor.generator import StreamOptions
    from processor.generator.truth import Truth
    from schemas.config import Kafka, Pipeline, Settings

_COLLISIONS = 0.01


def _time(text: str) -> int:
    """Return ms since 1970 of an ISO 8601 time, UTC unless it says otherwise."""
    try:
        time_ = datetime.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is not a time such as 2026-03-01T06:00") from None
    if time_.tzinfo is None:
        time_ = time_.replace(tzinfo=UTC)
    return int(time_.timestamp() * 1000)


def _duration(text: str) -> int:
    """Return ms of a time span as the config writes it."""
    try:
        return TypeAdapter(DurationMs).validate_python(text)
    except ValidationError as error:
        raise click.BadParameter(f"{text!r} {error.errors()[0]['msg']}") from None


@click.command()
@config_option
@json_option
@click.option("--pipeline", metavar="N", help="Name of the pipeline; not needed where there is one.")
@click.option(
    "--records", type=click.IntRange(min=1), required=True, help="How many records, duplicates included."
)
@click.option(
    "--duplicates", type=click.FloatRange(0, 0.9), default=0.05, help="Share of duplicates among the records."
)
@click.option(
    "--collisions",
    type=click.FloatRange(0, 0.5),
    help="Share of records that have the id of an earlier one and other content, where the pipeline has a "
    "fingerprint; not set: 0.01 there.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, help="Same seed, same stream.")
@click.option(
    "--rate",
    type=click.FloatRange(min=0, min_open=True),
    help="Records per second in all; not set: as fast as it goes.",
)
@click.option(
    "--truth",
    "truth_path",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="OUT.jsonl",
    help="Where to write what must become of each record.",
)
@click.option(
    "--partitions",
    type=click.IntRange(min=1),
    default=4,
    help="Partitions of the source topic, where it has to be created.",
)
@click.option(
    "--malformed", type=click.FloatRange(0, 1), default=0.0, help="Share of records that cannot be judged."
)
@click.option(
    "--scopes",
    type=click.IntRange(1, 100_000),
    metavar="N",
    help="How many scopes each partition has, where the pipeline's scope is a key or a header; not set: 1000.",
)
@click.option(
    "--start",
    type=_time,
    metavar="TIME",
    help="Event time of the first record, ISO 8601; not set: the last full hour from which on all of the "
    "stream lies in the past.",
)
@click.option(
    "--span",
    type=_duration,
    metavar="DURATION",
    default="6h",
    help="Event time that the stream covers. Mind the topic's retention where it is days.",
)
def generate(  # noqa: PLR0913 - one argument per option
    *,
    config: Path,
    pipeline: str | None,
    records: int,
    duplicates: float,
    collisions: float | None,
    seed: int,
    rate: float | None,
    truth_path: Path | None,
    partitions: int,
    malformed: float,
    scopes: int | None,
    start: int | None,
    span: int,
    as_json: bool,
) -> None:
    """Produce a stream with known duplicates into a pipeline's source topic.

    Four kinds of records: first (sent for the first time), resend (the last few once more, as after a
    time-out), tail (a producer crashed and sends its last hundreds again), late (a restarted connector
    replays a block of the past). Values are clicks in JSON, about 150 bytes.

    The stream follows the pipeline's dedup: the sequence in a header or a field of the value; a sequence for
    each of --scopes keys or header values, interleaved; with an epoch, producers that restart now and then
    with a higher one; with a reorder window, first records that come late and pass, and a few that come too
    late and do not (kind first, passes false).

    In mode insert-id it carries the parts of the id where the config says. What is sent again within the window
    does not pass, and beyond it passes again; some copies come at its very end, and a millisecond before. An id
    expires where --span is longer than the window.

    With a fingerprint some records have the id of an earlier one and other content (kind collision). They are
    sent again too, and so is the first of their id when it has expired and they have not. What is sent again
    has its members in another order, escapes, white space and another time of sending, as far as the
    fingerprint does not count them.
    """
    settings = load(config)
    # numpy and the broker's client are slow to import: a config that is wrong is said at once.
    from processor.generator import SCOPES, StreamOptions, truth  # noqa: PLC0415 - see above

    index = _index(settings, pipeline)
    chosen, key = settings.pipelines[index], f"pipelines.{index}.dedup"
    _require_scopes(chosen, key, scopes)
    options = StreamOptions(
        records, duplicates, seed, partitions, start or 0, span, malformed=malformed, scopes=scopes or SCOPES
    )
    if collisions is not None:
        options = replace(options, collisions=collisions)
    elif chosen.id_dedup is not None and chosen.id_dedup.fingerprint is not None:
        options = replace(options, collisions=_COLLISIONS)
    now_ms = int(time.time() * 1000)
    if start is None:
        options = options.ending_by(now_ms)
    _require_certain(chosen, key, options, now_ms)
    if truth_path is not None:
        with writing(truth_path):
            truth.require_room(truth_path)
    truths, seconds = asyncio.run(_generate(settings.kafka, chosen, key, options, rate))
    if truth_path is not None:
        with writing(truth_path):
            truth.write(truth_path, truths)
    _report(chosen, truths, seconds, truth_path, as_json=as_json)
    for line in _holds(chosen, options):
        say(line)


def _index(settings: Settings, name: str | None) -> int:
    names = [pipeline.name for pipeline in settings.pipelines]
    if name in names:
        return names.index(name)
    if name is None and len(names) == 1:
        return 0
    raise no_such("--pipeline", "pipeline", name, names)


def _require_scopes(pipeline: Pipeline, key: str, scopes: int | None) -> None:
    """Refuse ``--scopes`` for a pipeline without scopes."""
    why = pipeline.dedup.unscoped_by
    if scopes is not None and why is not None:
        wrong = f'{key}.{why} is "{getattr(pipeline.dedup, why)}"'
        raise ConfigError([Problem("--scopes", f"is for a pipeline with scopes; {wrong}")])


def _require_certain(pipeline: Pipeline, key: str, options: StreamOptions, now_ms: int) -> None:
    """Refuse a stream whose verdicts would depend on the clock of the worker that reads it."""
    dedup = pipeline.id_dedup
    if dedup is None or dedup.time != "record":
        return
    if options.start_ms + options.span_ms > now_ms + dedup.max_ahead:
        message = (
            f"the stream would end more than {key}.max_ahead ({duration_text(dedup.max_ahead)}) ahead of this "
            "machine's clock: what becomes of its records would depend on when a worker reads them"
        )
        raise ConfigError([Problem("--start", message)])


async def _generate(
    kafka: Kafka, pipeline: Pipeline, key: str, options: StreamOptions, rate: float | None
) -> tuple[list[Truth], float]:
    """Produce the stream; return the truth of each partition, and how many seconds it took."""
    from processor.generator import check_supported, make_stream  # noqa: PLC0415 - as above
    from processor.kafka.plain.producer import open_source, produce  # noqa: PLC0415 - as above

    check_supported(pipeline.dedup, key, options.collisions)  # before a topic is made
    partitions = await open_source(kafka, pipeline.source, options.partitions)
    if before := await _held(kafka, pipeline.source, partitions):
        say(f"warning: {_again(pipeline, before)}", STYLES["warning"])
    stream = make_stream(pipeline.dedup, replace(options, partitions=partitions), key)
    began = time.monotonic()
    with bar(f"producing into {pipeline.source}", options.records) as advance:
        truths = await produce(kafka, pipeline.source, stream, rate, advance)
    return truths, time.monotonic() - began


async def _held(kafka: Kafka, topic: str, partitions: int) -> int:
    """Return how many offsets of a topic are retained."""
    from processor.kafka.client import TopicPartition, open_client  # noqa: PLC0415 - as above
    from processor.kafka.offsets import bounds  # noqa: PLC0415 - as above

    async with open_client(kafka, "seqmark-generate", [topic]) as client:
        found = await bounds(client, [TopicPartition(topic, number) for number in range(partitions)])
    return sum(limits.end - limits.start for limits in found.values())


def _again(pipeline: Pipeline, records: int) -> str:
    """Say what becomes of a stream behind another one."""
    there = f"{pipeline.source} holds {records:,} records already"
    if pipeline.id_dedup is not None:
        return (
            f"{there}. If they were made with the same --seed, the ids of this stream are theirs: most of it "
            "will be duplicates, and its truth does not hold. Take another --seed"
        )
    return (
        f"{there}, and the sequences of this stream begin where those of every generated stream do: if such a "
        "stream is there, nearly all of this one will be late, and its truth does not hold. For a new one take "
        "another source topic, or delete this one and begin the pipeline anew ('Beginning anew' in "
        "docs/operations.md)"
    )


def _holds(pipeline: Pipeline, options: StreamOptions) -> list[str]:
    """Say what the truth of a stream with ids rests on, and what it cannot show."""
    dedup = pipeline.id_dedup
    if dedup is None:
        return []
    window, span = duration_text(dedup.window), duration_text(options.span_ms)
    if dedup.time == "arrival":
        return [f"ids expire by the worker's clock: the truth holds if it reads all of this within {window}"]
    if dedup.window >= options.span_ms:
        return [f"no id expires: the window is {window}, the stream covers {span}; --span makes it longer"]
    if dedup.backend == "bloom":
        bucket = duration_text(dedup.bloom_options.bucket)
        return [f"with Bloom filters windows end to one bucket ({bucket}); the truth is to the millisecond"]
    return []


def _report(
    pipeline: Pipeline, truths: list[Truth], seconds: float, path: Path | None, *, as_json: bool
) -> None:
    from processor.generator import RecordKind  # noqa: PLC0415 - as above

    records = sum(map(len, truths))
    kinds = [(truth, truth.kind == RecordKind.COLLISION) for truth in truths]
    colliding = sum(int(collides.sum()) for _, collides in kinds)
    again = sum(int((truth.kind > 0).sum()) for truth in truths) - colliding
    passing_again = sum(int((truth.passes & (truth.kind > 0) & ~collides).sum()) for truth, collides in kinds)
    broken = sum(int(((truth.fault > 0) & ~collides).sum()) for truth, collides in kinds)
    passes = sum(int(truth.passes.sum()) for truth in truths)
    rate = records / max(seconds, 1e-9)
    if as_json:
        result(
            pipeline=pipeline.name,
            topic=pipeline.source,
            partitions=len(truths),
            records=records,
            duplicates=again,
            collisions=colliding,
            malformed=broken,
            passes=passes,
            passing_again=passing_again,
            seconds=round(seconds, 3),
            records_per_second=round(rate),
            truth=str(path) if path else None,
        )
        return
    among = f", {passing_again:,} duplicates among them" if passing_again else ""
    click.echo(
        f"{pipeline.source}: {records:,} records in {len(truths)} partitions, {again:,} of them duplicates, "
        f"{colliding:,} collisions, {broken:,} malformed, {passes:,} must pass{among}; "
        f"{seconds:.1f} s, {rate:,.0f} records/s"
    )
    if path:
        click.echo(f"the truth: {path}")
