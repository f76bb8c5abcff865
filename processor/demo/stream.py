"""Makes a stream clean whose duplicates are known, kills the worker on its way, and checks all that came of it.

The truth is what `seqmark generate` has written beside the stream. A plain consumer, which shares no code with
the worker, reads the topics; what Spark has aggregated is compared with the records that must pass.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal

import orjson

from processor.demo.script import DemoScript, has, quoted
from processor.demo.truth import COLLISION, FIRST, HOUR_MS, DemoResult
from processor.engine.batch.columns import SIZE
from processor.errors import EXIT_DONE, EXIT_FAILED, EXIT_VIOLATION
from processor.kafka.plain.topic_log import LogSpan, TopicLog, close_topics
from processor.ops.extras import missing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from processor.demo.script import DemoFolder
    from processor.demo.truth import Amounts, Hour
    from processor.kafka.plain.consumer import Seen
    from schemas.config import Pipeline

Mode = Literal["watermark", "insert-id", "fingerprint", "verdicts"]
ID_MEMBER = "event_id"
KILLED_AT = "output:2"
"""In the second transaction: it is open, and its records are in the clean topic, where nobody may see them."""
# A handful: 25 of the 475,000 originals of a run of the usual size.
_MALFORMED = f"{25 / 475_000:.9f}"

_CONFIG = """\
# Written by `seqmark demo`; the other commands take it too while the demo's broker is there.
[kafka]
bootstrap_servers = {servers}

[worker]
application_id = {name}
group_instance_id = "one"        # who goes on for one that is killed has its partitions at once
state_dir = {state}

[[pipelines]]
name = "clicks"
source = {raw}
{output}
duplicates = {duplicates}
quarantine = {quarantine}

[pipelines.dedup]
{dedup}
"""
_AGGREGATE = """
[[aggregates]]                   # an hour is written once, when no click can come for it any more
name = "hourly"
{topic}
event = "schemas.events:ClickEvent"
time_field = "occurred_at"
window = "1h"
watermark = "10m"                # how late a click may be
group_by = ["campaign"]
aggregates = {{ events = "count", revenue = "sum:amount" }}
output = {{ kind = "parquet", path = {files} }}
checkpoint = {checkpoint}
"""
_AUDITED = 5
"""Lines of the audit that are shown: what there is, and the first of what made it."""
_RECORDS = "sink = {clean}", "topic = {clean}"
_VERDICTS = (
    """\
output = "verdicts"              # no clean topic: which offsets of the source to skip
verdicts = {verdicts}""",
    """\
topic = {raw}
verdicts = {verdicts}""",
)
_SEQUENCES = """\
mode = "watermark"
scope = "partition"
sequence = { from = "header", name = "seq", format = "int64" }"""
_IDS = f"""\
mode = "insert-id"
id = [{{ from = "value", pointer = "/{ID_MEMBER}" }}]
"""
_DEDUP: dict[Mode, str] = {
    "watermark": _SEQUENCES,
    "verdicts": _SEQUENCES,
    "insert-id": f"""{_IDS}\
window = "1h"                    # what is sent again later than this passes again""",
    "fingerprint": f"""{_IDS}\
window = "12h"                   # longer than the stream: no id of it expires
fingerprint = {{ exclude = ["/sent_at"] }}   # the same id and content: a resend, whenever it was sent
on_collision = "rename"          # the same id, other content: another click, which passes under a new id
rename = {{ to = "/{ID_MEMBER}", keep = "header" }}""",
}


def stream_config(folder: DemoFolder, servers: str, mode: Mode) -> str:
    """Return the config of a run; without Spark no aggregate is in it."""
    topics = {
        kind: f"{folder.name}.{kind}" for kind in ("raw", "clean", "duplicates", "quarantine", "verdicts")
    }
    places = {"state": folder / "state", "files": folder / "hourly", "checkpoint": folder / "checkpoint"}
    values = quoted(servers=servers, name=folder.name, **topics, **places)
    output, topic = (each.format(**values) for each in (_VERDICTS if mode == "verdicts" else _RECORDS))
    text = _CONFIG.format(output=output, dedup=_DEDUP[mode], **values)
    if missing("spark"):
        return text
    return text + _AGGREGATE.format(topic=topic, **values)


class StreamDemo:
    """One run.

    Args:
        folder: For all its files.
        servers: Of the broker.
        mode: How duplicates are found.
        say: Told of each step.
    """

    def __init__(self, folder: DemoFolder, servers: str, mode: Mode, say: Callable[[str], None]) -> None:
        text = stream_config(folder, servers, mode)
        self._script = DemoScript(folder.path / "demo.toml", text, servers, say)
        self._folder, self._mode, self._say = folder, mode, say
        self._pipeline: Pipeline = self._script.settings.pipelines[0]
        self._clean = f"{folder.name}.clean"
        self._truth = folder.path / "truth.jsonl"
        self._hours: dict[Hour, Amounts] = {}
        self._newest_ms = 0
        self._asked: list[tuple[str, set[str]]] = []
        self.result = DemoResult()

    def run(self, records: int, seed: int) -> DemoResult:
        """Do all steps.

        Raises:
            StopError: A command failed that should not have.
        """
        script, say = self._script, self._say
        say(f"1. {records:,} clicks with known duplicates; the truth: {self._truth}")
        options = ("--records", records, "--seed", seed, "--malformed", _MALFORMED, "--truth", self._truth)
        script.run("generate", *options)
        say("   what an audit finds in that topic, which knows nothing of the truth:")
        for line in script.run("audit")[1].splitlines()[:_AUDITED]:
            say(f"   {line}")
        say("2. a worker, which is killed (SIGKILL) in the middle of a transaction, and one that goes on")
        script.drain(KILLED_AT)
        seconds = script.drain()
        rate = f"{records / seconds:,.0f} records/s, its start included"
        say(f"   done in {seconds:.1f} s, {rate}; its log: {script.log}")
        if self._mode == "verdicts":
            say("   the clean topic that it did not write, for the comparison")
            env = {"SEQMARK_PIPELINES__0__SINK": self._clean}
            script.run("materialize", "--pipeline", self._pipeline.name, env=env)
        say("3. a plain consumer compares every record with the truth")
        self._compare()
        if has("spark", "4. left out: Spark's aggregate by hour and campaign", say):
            what = "the source by its verdicts" if self._mode == "verdicts" else "the clean topic"
            say(f"4. Spark aggregates {what} by hour and campaign; the files: {self._folder / 'hourly'}")
            self._aggregate()
        say("5. the certificate")
        self._certify()
        if has("report", "6. left out: the report", say):
            say("6. the report")
            self._report()
        if self._mode != "verdicts":
            say("7. what became of a record that was dropped, and of one that passed")
            self._explain()
        if self._mode in {"insert-id", "fingerprint"}:
            self._show(script.run("read", self._pipeline.duplicates, "--limit", 4)[1])
        elif self._mode == "verdicts":
            self._weigh(records)
        told = {"records": records, "truth_file": str(self._truth), "config": str(script.config)}
        self.result.fields = told | self.result.fields | {"worker_seconds": round(seconds, 3)}
        return self.result

    def _compare(self) -> None:
        """Compare all partitions, one at a time, which bounds the memory."""
        collided = passed = 0
        with self._truth.open("rb") as file:
            for number, lines in groupby(map(orjson.loads, file), lambda line: line["partition"]):
                truth = list(lines)
                place = f"{self._pipeline.source}:{number}"
                topics = self._script.read_topics(number, self._clean)
                self.result.compare_partition(place, truth, topics)
                kept = [each for each in zip(truth, topics.source, strict=False) if each[0]["passes"]]
                passed += len(kept)
                collided += sum(line["kind"] == COLLISION for line, _ in kept)
                self._add_up(record for _, record in kept)
                self._asked = self._asked or list(_to_ask(place, truth))
        if self._mode == "fingerprint":
            lost = f"{collided:,} of {passed:,} events would have been lost"
            self._show(f"had collisions been dropped as duplicates, {lost}")

    def _add_up(self, records: Iterable[Seen]) -> None:
        """Add records that must pass to the hours that Spark should make of them."""
        for _, value, _, time_ms, _ in records:
            event = orjson.loads(value or b"")
            key = time_ms // HOUR_MS * HOUR_MS, event["campaign"]
            events, cents = self._hours.get(key, (0, 0))
            self._hours[key] = events + 1, cents + int(event["amount"].replace(".", ""))
            self._newest_ms = max(self._newest_ms, time_ms)

    def _aggregate(self) -> None:
        self._script.run("aggregate", "--available-now")
        (aggregate,) = self._script.settings.aggregates
        closed_ms = self._newest_ms - aggregate.watermark
        self.result.compare_hours(_rows(self._folder), self._hours, closed_ms)
        self.result.fields["files"] = str(self._folder / "hourly")

    def _certify(self) -> None:
        code, printed = self._script.run("verify", ends=(EXIT_DONE, EXIT_VIOLATION))
        self._show(printed)
        self.result.differ("", [] if code == EXIT_DONE else ["the certificate: a rule is broken, see above"])
        self.result.fields["certificate"] = code == EXIT_DONE

    def _report(self) -> None:
        page = self._folder.path / "report.html"
        told = self._script.objects("report", "--output", page, ends=(EXIT_DONE, EXIT_FAILED))
        wrong = [*told[-1]["problems"]]
        if unexplained := sum(abs(each["unexplained"]) for each in told if "unexplained" in each):
            wrong.append(f"{unexplained:,} records of the source are in no other topic, or too many there")
        self.result.differ("the report: ", wrong)
        self._show(f"the report, for a browser: {page}")
        self.result.fields["report"] = str(page)

    def _explain(self) -> None:
        explained = []
        for place, outcomes in self._asked:
            (story,) = self._script.objects("explain", place, ends=(EXIT_DONE, EXIT_FAILED, EXIT_VIOLATION))
            explained.append(story)
            self._show(f"$ seqmark explain -c {self._script.config} {place}\n{story['sentence']}")
            if story["outcome"] not in outcomes or story["problems"]:
                said = f"{story['outcome']}, {story['problems']}, must say {' or '.join(sorted(outcomes))}"
                self.result.differ(f"explain of {place}: ", [said])
        self.result.fields["explained"] = explained

    def _weigh(self, records: int) -> None:
        """Show what was written, and what a clean topic would have been beside it."""
        sizes = {
            "source": (_bytes(self._script, self._pipeline.source), "written by producers"),
            "verdicts": (_bytes(self._script, self._pipeline.verdicts or ""), "written by the worker"),
            "clean": (_bytes(self._script, self._clean), "by seqmark materialize afterwards"),
        }
        close_topics()
        lines = [
            f"{name}: {size:,} bytes, {size / records:.2f} per record in, {by}"
            for name, (size, by) in sizes.items()
        ]
        self._show("\n".join(lines))
        self.result.fields["bytes"] = {name: size for name, (size, _) in sizes.items()}

    def _show(self, text: str) -> None:
        self.result.shown.append(text)


def _to_ask(place: str, truth: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, set[str]]]:
    """Yield a record that was dropped and one that passed: where it is, and what must be said of it."""
    fates = {
        "dropped": [each for each in truth if not each["passes"] and "quarantine" not in each],
        "passed": [each for each in truth if each["passes"] and each["kind"] == FIRST],
    }
    for fate, lines in fates.items():
        if lines:
            told = {"passed"} if fate == "passed" else {"duplicate", "late"}
            yield f"{place}:{lines[len(lines) // 2]['offset']}", told


def _rows(folder: DemoFolder) -> Iterator[tuple[Hour, Amounts]]:
    """Yield what Spark has written; in a folder of one run that has ended well every file counts."""
    # They come with Spark, which need not be installed.
    import pyarrow as pa  # noqa: PLC0415 - see above
    from pyarrow import parquet  # noqa: PLC0415 - see above

    for file in (folder / "hourly").rglob("*.parquet"):
        rows = parquet.ParquetFile(file).read(["window_start", "campaign", "events", "revenue"])
        starts = rows["window_start"].cast(pa.timestamp("ms", rows["window_start"].type.tz)).cast(pa.int64())
        columns = (each.to_pylist() for each in (starts, *rows.columns[1:]))
        for start_ms, campaign, events, revenue in zip(*columns, strict=True):
            yield (start_ms, campaign), (events, int(revenue.scaleb(2)))


def _bytes(script: DemoScript, topic: str) -> int:
    """Return the bytes of a topic's record batches, one replica."""
    log = TopicLog.open(script.settings.kafka, topic)
    spans = [LogSpan(number, each.start, each.stable) for number, each in log.bounds().items()]
    return sum(int(piece.batches[:, SIZE].sum()) for span in spans for piece in log.pieces(span))
