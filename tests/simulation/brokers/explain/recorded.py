"""Topics as simulated workers have left them, and all that is said of them: recorded once, compared for good.

    python -m tests.simulation.brokers.explain.recorded          records anew
    python -m tests.simulation.brokers.explain.recorded --answers  says anew what is said of what is recorded

What is recorded are bytes, so that it does not depend on what workers write today; answers are those of
`seqmark explain`, `verify`, `read` and `report`.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import io
import json
import logging
import lzma
import random
import sys
from base64 import b64decode, b64encode
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from processor.commands.look.verify import _tell
from processor.errors import SeqmarkError
from processor.inspection.explain.explainer import Explainer
from processor.inspection.read.lines import PeopleLines, json_line
from processor.inspection.read.order import Begin, ReadOrder
from processor.inspection.read.readable import ReadableTopic
from processor.inspection.read.records import read_topic
from processor.inspection.report.read import read_flows
from processor.kafka.client import TopicPartition
from processor.verify.certificate import Certificate
from processor.wire.receipt_values import RecordRef
from schemas.config import Settings
from seqmark.in_memory.cluster import MemoryLog
from tests.simulation.brokers import episode as episodes
from tests.simulation.brokers import incidents
from tests.simulation.brokers.kafka.cluster import Brokers, Topic
from tests.simulation.brokers.kafka.connection import connected
from tests.simulation.brokers.processes import Process, adopt
from tests.simulation.brokers.routes.episode import RoutedEpisode
from tests.simulation.brokers.troubles import BrokerOdds
from tests.simulation.clockwork import clockwork
from tests.simulation.faults import Fate

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator

    from processor.inspection.report.hours import Flow
    from processor.inspection.topic_records import TopicRecord
    from tests.simulation.brokers.episode import WorkerEpisode

FILE = Path(__file__).parents[3] / "golden" / "answers.json.xz"
END = "the end"
SCENES = {
    "collisions that are dropped, in topics made again": (41, END),
    "new ids, and an empty new clean topic": (69, "the next run is to come"),
    "collisions in quarantine, ids that are refreshed": (91, END),
    "observed": (113, END),
    "what a reset has judged again": (107, END),
    "what a reset is to judge again": (107, "a reset is done"),
    "epochs and a reorder window, behind a history": (101, END),
    "written without transactions": (99, "a run is over"),
    "sequences by records and verdicts": (147, END),
    "sequences by verdicts alone": (139, END),
    "ids by records and verdicts": (149, END),
    "filters that know no owner": (49, END),
    "a route": (55, END),
}
"""By name, the seed of an episode, and a moment of it: the last that is called so."""
ALL, OF_OUTPUTS = 200, 3
"""Of so many offsets of a source all are asked for, of more every second; of what is written every third."""
LIMIT_S = 100_000.0

Moments = dict[str, dict[str, Any]]


class EnoughError(Exception):
    """Nothing more is wanted of an episode."""


def moments(seed: int) -> Moments:
    """Run an episode, in which nobody is asked anything; return what stood in the topics at some moments."""
    found: Moments = {}

    async def look(episode: WorkerEpisode, when: str = END) -> None:
        if not any(log.open for log in episode.brokers.logs.values()):
            found[when] = _taken(episode.brokers, episode.now)

    async def end(episode: WorkerEpisode) -> None:
        await look(episode)
        raise EnoughError

    def between(episode: RoutedEpisode) -> None:
        found[END] = _taken(episode.brokers, episode.now)

    kind = RoutedEpisode if seed % 8 == 7 else episodes.WorkerEpisode
    with pytest.MonkeyPatch.context() as patch, contextlib.suppress(EnoughError):
        for module in (episodes, incidents):
            patch.setattr(module, "explained", look)
        patch.setattr(episodes, "meddled", end)
        patch.setattr(RoutedEpisode, "_require_judged", between)
        kind(seed).run()
    return found


def _taken(brokers: Brokers, settings: Settings) -> dict[str, Any]:
    """Return what brokers hold, as JSON has it."""
    made: dict[str, Any] = settings.model_dump(mode="json", by_alias=True, exclude_unset=True)
    for each in made["pipelines"]:
        dedup = each["dedup"]
        for table, name in ((dedup, "window"), (dedup, "max_ahead"), (dedup.get("bloom", {}), "bucket")):
            if name in table:
                table[name] = f"{table[name] // 1000}s"
    return {
        "settings": made,
        "topics": {
            name: [each.topic_id.hex(), each.partitions, dict(each.configs)]
            for name, each in sorted(brokers.topics.items())
        },
        "offsets": [[*tp, offset] for tp, offset in sorted(brokers.offsets.items())],
        "logs": [
            [*tp, log.start, log.end, log.aborted, [[end, b64encode(b).decode()] for end, b in log._batches]]
            for tp, log in sorted(brokers.logs.items())
        ],
    }


def put_back(scene: dict[str, Any]) -> Brokers:
    """Return brokers that hold what was recorded."""
    brokers = Brokers(random.Random(0))
    for name, (topic_id, partitions, configs) in scene["topics"].items():
        brokers.topics[name] = Topic(bytes.fromhex(topic_id), partitions, configs)
    for topic, number, start, end, aborted, some in scene["logs"]:
        kept = [(after, b64decode(batch)) for after, batch in some]
        gone = [(who, first, last) for who, first, last in aborted]
        brokers.logs[TopicPartition(topic, number)] = MemoryLog(start, end, {}, gone, kept)
    brokers.offsets = {TopicPartition(topic, number): offset for topic, number, offset in scene["offsets"]}
    return brokers


def answers(scene: dict[str, Any]) -> dict[str, Any]:
    """Ask everything there is to ask of what was recorded."""
    brokers, settings = put_back(scene), Settings.model_validate(scene["settings"])
    dice = random.Random(0)

    def made(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any], **options: Any) -> Any:
        return adopt(asyncio.Task(work, loop=loop, **options))

    async def run() -> dict[str, Any]:
        process = Process(brokers, Fate(dice, BrokerOdds(), 0, 0))
        try:
            found: dict[str, Any] = await process.begin(_said(brokers, settings))
            return found
        finally:
            await process.gone()

    with clockwork(dice, LIMIT_S) as runner, connected(dice):
        runner.get_loop().set_task_factory(made)  # type: ignore[arg-type] # typeshed wants Task[T]
        said: dict[str, Any] = json.loads(json.dumps(runner.run(run())))
    return said


async def _said(brokers: Brokers, settings: Settings) -> dict[str, Any]:
    (pipeline,) = settings.pipelines
    topics = [pipeline.source, *pipeline.outputs, *filter(None, [pipeline.verdicts])]
    many = sum(log.end for tp, log in brokers.logs.items() if tp.topic == pipeline.source) > ALL
    steps = {pipeline.source: 1 + many} | dict.fromkeys(pipeline.outputs, OF_OUTPUTS)
    asked = [
        RecordRef(topic, number, offset)
        for topic, step in steps.items()
        for number in range(brokers.topics[topic].partitions)
        for offset in range(0, brokers.logs[TopicPartition(topic, number)].end + 1, step)
    ]
    async with Explainer.open(settings) as explainer:
        stories = {str(ref): (await explainer.explain(ref)).as_json() for ref in asked}
    return {
        "explain": stories,
        "verify": await _or_why_not(_certified(settings)),
        "read": {topic: await _lines(settings, topic) for topic in topics},
        "report": [_flow(each) for each in await read_flows(settings, lambda _: lambda _: None)],
    }


async def _or_why_not(work: Coroutine[Any, Any, list[str]]) -> list[str]:
    try:
        return await work
    except SeqmarkError as error:
        return [str(error)]


async def _certified(settings: Settings) -> list[str]:
    certificate = Certificate(settings, settings.pipelines)
    await certificate.open()
    reports = await certificate.run(lambda _: None, lambda _: None)
    with contextlib.redirect_stdout(io.StringIO()) as out:
        for each in reports:
            _tell(each)
    return [*out.getvalue().splitlines(), *(each.state_id.hex() for each in reports)]


async def _lines(settings: Settings, topic: str) -> list[str]:
    lines, people = list[str](), PeopleLines(ReadableTopic.of(settings, topic))
    order = ReadOrder(topic, Begin(), None, None, None, follow=False)

    def take(records: list[TopicRecord]) -> None:
        lines.extend((json_line(each) + b" " + people.line(each)).decode() for each in records)

    await read_topic(settings.kafka, order, take, lines.append)
    return lines


def _flow(flow: Flow) -> Any:
    return json.loads(json.dumps(dataclasses.asdict(flow), default=vars))


# ---------------------------------------------------------------- the file


def read() -> list[dict[str, Any]]:
    """Return the scenes: what was recorded, with the answers."""
    scenes: list[dict[str, Any]] = json.loads(lzma.decompress(FILE.read_bytes()))
    return scenes


def differing(before: Any, now: Any, at: str = "") -> Iterator[str]:
    """Yield where two answers differ, and what each says."""
    if isinstance(before, dict) and isinstance(now, dict):
        for name in before.keys() | now.keys():
            yield from differing(before.get(name), now.get(name), f"{at}/{name}")
    elif before != now:
        yield f"{at}: was {before!r}, is {now!r}"


def _write(scenes: list[dict[str, Any]]) -> None:
    FILE.write_bytes(lzma.compress(json.dumps(scenes).encode(), preset=9 | lzma.PRESET_EXTREME))


def main() -> None:
    """Record, or say anew."""
    logging.disable(logging.CRITICAL)
    if "--answers" in sys.argv:
        scenes = read()
    else:
        scenes = [{"name": name, **moments(seed)[when]} for name, (seed, when) in SCENES.items()]
    _write([{**each, "answers": answers(each)} for each in scenes])


if __name__ == "__main__":
    main()
