"""``seqmark generate`` fills a source topic with a stream whose duplicates are known."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click
from pydantic import TypeAdapter, ValidationError

from processor.commands.console import config_option, json_option, result, say
from processor.commands.progress import bar
from processor.config.load import load
from processor.errors import ConfigError, Problem
from schemas.config.values import DurationMs, duration_text

if TYPE_CHECKING:
    from processor.generator import StreamOptions
    from processor.generator.truth import Truth
    from processor.kafka.plain.producer import Sending
    from schemas.config import Pipeline, Settings

_COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")


class _Time(click.ParamType):
    """An ISO 8601 time, UTC unless it says otherwise; comes out as ms since 1970."""

    name = "time"

    def convert(self, value: str | int, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        try:
            time_ = datetime.fromisoformat(value)
        except ValueError:
            self.fail(f"{value!r} is not a time such as 2026-03-01T06:00", param, ctx)
        if time_.tzinfo is None:
            time_ = time_.replace(tzinfo=UTC)
        return int(time_.timestamp() * 1000)


class _Duration(click.ParamType):
    """A time span as the config writes it; comes out as ms."""

    name = "duration"

    def convert(self, value: str | int, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        try:
            return TypeAdapter(DurationMs).validate_python(value)
        except ValidationError as error:
            self.fail(f"{value!r} {error.errors()[0]['msg']}", param, ctx)


@dataclass(frozen=True, slots=True)
class _Produced:
    """What a run has produced."""

    topic: str
    truths: list[Truth]
    seconds: float


@click.command()
@config_option
@json_option
@click.option("--pipeline", metavar="N", help="Name of the pipeline; not needed where there is one.")
@click.option(
    "--records", type=click.IntRange(min=1), required=True, help="How many records, duplicates included."
)
@click.option(
    "--duplicates",
    type=click.FloatRange(0, 0.9),
    default=0.05,
    show_default=True,
    help="Share of duplicates among the records.",
)
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Same seed, same stream."
)
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
    show_default=True,
    help="Partitions of the source topic, where it has to be created.",
)
@click.option(
    "--malformed",
    type=click.FloatRange(0, 1),
    default=0.0,
    show_default=True,
    help="Share of records that cannot be judged.",
)
@click.option(
    "--scopes",
    type=click.IntRange(1, 100_000),
    metavar="N",
    help="How many scopes each partition has, where the pipeline's scope is a key or a header; not set: 1000.",
)
@click.option(
    "--start",
    type=_Time(),
    help="Event time of the first record, ISO 8601; not set: the last full hour from which on all of the "
    "stream lies in the past.",
)
@click.option(
    "--span",
    type=_Duration(),
    default="6h",
    show_default=True,
    help="Event time that the stream covers. Mind the topic's retention where it is days.",
)
@click.option(
    "--compression",
    type=click.Choice(_COMPRESSIONS),
    default="lz4",
    show_default=True,
    help="Compression of the batches.",
)
@click.option(
    "--batch-bytes",
    type=click.IntRange(1024, 16 * 1024 * 1024),
    default=262_144,
    show_default=True,
    help="Size of a batch, before compression.",
)
def generate(  # noqa: PLR0913 - one argument per option
    *,
    config: Path,
    pipeline: str | None,
    records: int,
    duplicates: float,
    seed: int,
    rate: float | None,
    truth_path: Path | None,
    partitions: int,
    malformed: float,
    scopes: int | None,
    start: int | None,
    span: int,
    compression: str,
    batch_bytes: int,
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
    """
    settings = load(config)
    # numpy and the broker's client are slow to import: a config that is wrong is said at once.
    from processor.generator import SCOPES, StreamOptions  # noqa: PLC0415 - see above
    from processor.kafka.plain.producer import Sending  # noqa: PLC0415 - see above

    index = _pipeline(settings, pipeline)
    _require_scopes(settings, index, scopes)
    options = StreamOptions(
        records,
        duplicates,
        seed,
        partitions,
        0 if start is None else start,
        span,
        malformed=malformed,
        scopes=scopes or SCOPES,
    )
    now_ms = int(time.time() * 1000)
    if start is None:
        options = options.ending_by(now_ms)
    _require_certain(settings, index, options, now_ms)
    made = asyncio.run(_generate(settings, index, options, Sending(compression, batch_bytes, rate)))
    if truth_path is not None:
        from processor.generator import truth  # noqa: PLC0415 - see above

        truth.write(truth_path, made.truths)
    _report(settings.pipelines[index].name, made, truth_path, as_json=as_json)
    for line in _holds(settings.pipelines[index], options):
        say(line)


def _pipeline(settings: Settings, name: str | None) -> int:
    names = [pipeline.name for pipeline in settings.pipelines]
    if name in names:
        return names.index(name)
    if name is None and len(names) == 1:
        return 0
    known = ", ".join(names) or "none"
    wrong = "name one" if name is None else f"there is no pipeline {name}"
    raise ConfigError([Problem("--pipeline", f"{wrong}; in this config: {known}")])


def _require_scopes(settings: Settings, index: int, scopes: int | None) -> None:
    """Refuse ``--scopes`` for a pipeline without scopes."""
    dedup, key = settings.pipelines[index].dedup, f"pipelines.{index}.dedup"
    if scopes is None:
        return
    wrong = f'mode is "{dedup.mode}"' if dedup.mode != "watermark" else 'scope is "partition"'
    if dedup.mode != "watermark" or dedup.scope == "partition":
        raise ConfigError([Problem("--scopes", f"is for a pipeline with scopes; {key}.{wrong}")])


def _require_certain(settings: Settings, index: int, options: StreamOptions, now_ms: int) -> None:
    """Refuse a stream whose verdicts would depend on the clock of the worker that reads it."""
    dedup = settings.pipelines[index].id_dedup
    if dedup is None or dedup.time != "record":
        return
    if options.start_ms + options.span_ms > now_ms + dedup.max_ahead:
        most = f"pipelines.{index}.dedup.max_ahead ({duration_text(dedup.max_ahead)})"
        message = (
            f"the stream would end more than {most} ahead of this machine's clock: what becomes of its records "
            "would depend on when a worker reads them"
        )
        raise ConfigError([Problem("--start", message)])


async def _generate(settings: Settings, index: int, options: StreamOptions, sending: Sending) -> _Produced:
    from processor.generator import check_supported, make_stream  # noqa: PLC0415 - as above
    from processor.kafka.plain.producer import open_source, produce  # noqa: PLC0415 - as above

    pipeline = settings.pipelines[index]
    key = f"pipelines.{index}.dedup"
    check_supported(pipeline.dedup, key)  # before a topic is made
    partitions = await open_source(settings.kafka, pipeline.source, options.partitions)
    stream = make_stream(pipeline.dedup, options.over(partitions), key)
    began = time.monotonic()
    with bar(f"producing into {pipeline.source}", options.records) as advance:
        truths = await produce(settings.kafka, pipeline.source, stream, sending, advance)
    return _Produced(pipeline.source, truths, time.monotonic() - began)


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
    if dedup.backend == "bloom" and not dedup.bloom_options.confirm:
        bucket = duration_text(dedup.bloom_options.bucket)
        return [f"without confirmation windows end to one bucket ({bucket}); the truth is to the millisecond"]
    return []


def _report(pipeline: str, made: _Produced, path: Path | None, *, as_json: bool) -> None:
    records = sum(len(truth) for truth in made.truths)
    again = sum(int((truth.kind > 0).sum()) for truth in made.truths)
    passing_again = sum(int((truth.passes & (truth.kind > 0)).sum()) for truth in made.truths)
    broken = sum(int((truth.fault > 0).sum()) for truth in made.truths)
    passes = sum(int(truth.passes.sum()) for truth in made.truths)
    rate = records / max(made.seconds, 1e-9)
    if as_json:
        result(
            pipeline=pipeline,
            topic=made.topic,
            partitions=len(made.truths),
            records=records,
            duplicates=again,
            malformed=broken,
            passes=passes,
            passing_again=passing_again,
            seconds=round(made.seconds, 3),
            records_per_second=round(rate),
            truth=str(path) if path else None,
        )
        return
    say(
        f"{made.topic}: {records:,} records in {len(made.truths)} partitions, {again:,} of them "
        f"duplicates, {broken:,} malformed, {passes:,} must pass"
        + (f", {passing_again:,} duplicates among them" if passing_again else "")
        + f"; {made.seconds:.1f} s, {rate:,.0f} records/s"
    )
    if path:
        say(f"the truth: {path}")
