"""Finds values that are right alone and wrong together.

The rules read the tables as they were written and look at right values only (`_right`): a wrong one has
its own message, and must not hide the others. A rule yields where it is broken and what would be right.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from pydantic import BaseModel, TypeAdapter, ValidationError

from schemas.config.aggregate_rules import aggregate_violations
from schemas.config.aggregates import Sink
from schemas.config.batch_rules import batch_violations
from schemas.config.batches import FileBatch
from schemas.config.dedup import (
    MOST_VALUE_PARTS,
    BloomOptions,
    Fingerprint,
    HeaderId,
    HeaderSource,
    InsertIdDedup,
    Rename,
    ValueId,
    WatermarkDedup,
)
from schemas.config.kafka import Kafka
from schemas.config.pipeline import InternalTopic, Pipeline
from schemas.config.values import TOPIC_MAX_LENGTH, duration_text
from schemas.config.worker import WorkerOptions

if TYPE_CHECKING:
    from schemas.config.dedup import IdPart

# As in `schemas.config.rules`, which calls this: rules look at right values only, so that a wrong one does
# not hide the others.

Where = tuple[str | int, ...]
Violation = tuple[Where, str]


def fingerprint_violations(
    dedup: Mapping[str, Any], written: Mapping[str, Any], *, quarantine: bool
) -> Iterator[Violation]:
    """Yield every broken rule of the fingerprint, and of what becomes of collisions.

    Args:
        dedup: Right values of a table ``dedup`` of mode insert-id, those of its tables too.
        written: The same as it was written: a key with a wrong value is not a missing one.
        quarantine: Whether its pipeline has a topic for quarantine.
    """
    action = dedup.get("on_collision")
    if "fingerprint" in written:
        if dedup.get("backend") == "bloom":
            message = (
                "Bloom filters keep no fingerprints: leave it out; "
                'or take backend = "exact", without the table bloom'
            )
            yield ("fingerprint",), message
        yield from uncounted_violation(("fingerprint",), written["fingerprint"])
    elif "on_collision" in written:
        yield ("on_collision",), "needs a fingerprint: without one no record is a collision"
    if action == "quarantine" and not quarantine:
        yield ("on_collision",), '"quarantine" needs a quarantine topic, which this pipeline does not have'
    if action == "rename" and "rename" not in written:
        yield ("on_collision",), '"rename" needs rename = { to = "..." }, the part of the id that is replaced'
    if "rename" in written:
        if action not in {"rename", None}:
            yield ("rename",), f'has no effect with on_collision "{action}"; write on_collision = "rename"'
        yield from _rename(dedup["rename"], dedup.get("id"))


def uncounted_violation(where: Where, table: Any) -> Iterator[Violation]:
    """Yield what is wrong where fields are excluded of a value that counts as it stands."""
    if isinstance(table, dict) and table.get("of") == "bytes" and table.get("exclude"):
        yield (*where, "exclude"), 'has no effect with of = "bytes": nothing is read of the value'


def _rename(rename: Mapping[str, Any], parts: Sequence[IdPart] | None) -> Iterator[Violation]:
    to, keep = rename.get("to"), rename.get("keep")
    if to is not None and parts is not None and to not in (can := _renamable(parts)):
        message = "must be a part of the id"
        yield ("rename", "to"), f"{message}: {' or '.join(map(repr, can))}" if can else f"{message}, {_NONE}"
    if to is None or keep in {"header", None} or to.startswith("header:"):
        return
    if f"{keep}/".startswith(f"{to}/") or f"{to}/".startswith(f"{keep}/"):
        yield ("rename", "keep"), "must be another member than rename.to, neither around it nor inside"


_NONE = (
    "and none of this one can be renamed: only headers and fields of the value can, neither normalised, nor in "
    "any, nor through a string"
)


def _renamable(parts: Sequence[IdPart]) -> list[str]:
    plain = [part for part in parts if isinstance(part, ValueId | HeaderId) and not part.normalise]
    pointers = [part.pointer for part in plain if isinstance(part, ValueId) and "|/" not in part.pointer]
    return [*pointers, *(f"header:{part.name}" for part in plain if isinstance(part, HeaderId))]


Right = dict[str, Any]

_INT32_END = 2**31
_ROLES = ("source", "sink", "verdicts", "duplicates", "quarantine")


class Use(NamedTuple):
    """One topic in one role."""

    where: Where
    pipeline: int
    role: str
    topic: str


def violations(raw: Mapping[str, Any]) -> Iterator[Violation]:
    """Yield every broken rule of a config as it was written."""
    worker = _right(WorkerOptions, raw.get("worker"))
    yield from _kafka(_right(Kafka, raw.get("kafka")), _table(raw.get("kafka")))
    yield from _worker(worker)
    pipelines = [_right(Pipeline, each) for each in _tables(raw.get("pipelines"))]
    aggregates = [_right(Sink, each) for each in _tables(raw.get("aggregates"))]
    batches = [_right(FileBatch, each) for each in _tables(raw.get("batches"))]
    if not uses_kafka(raw) and not raw.get("batches"):
        yield ("pipelines",), "at least one [[pipelines]], [[aggregates]] or [[batches]] is needed"
    yield from _unique("batches", "name", batches)
    yield from batch_violations(batches, _tables(raw.get("batches")))
    yield from _unique("pipelines", "name", pipelines)
    yield from _unique("aggregates", "name", aggregates)
    # Two queries on one checkpoint destroy each other's progress.
    yield from _unique("aggregates", "checkpoint", aggregates)
    yield from aggregate_violations(aggregates, _tables(raw.get("aggregates")), pipelines)
    yield from _topics(list(_uses(pipelines)))
    yield from _loops(pipelines)
    yield from _internal(worker, pipelines)
    for index, each in enumerate(_tables(raw.get("pipelines"))):
        where, dedup = ("pipelines", index, "dedup"), _table(each.get("dedup"))
        yield from _dedup(where, dedup)
        yield from _sequence(where, dedup)
        yield from _fingerprint(where, dedup, quarantine="quarantine" in each)
        yield from _output(where[:2], each, worker.get("guarantee"))
    yield from _guarantee(worker, _tables(raw.get("pipelines")))


def uses_kafka(raw: Mapping[str, Any]) -> bool:
    """Return whether a config, as it was written, has anything that reads or writes topics."""
    return bool(raw.get("pipelines") or raw.get("aggregates"))


def reads_a_topic(raw: Mapping[str, Any]) -> bool:
    """Return whether a batch of a config, as it was written, reads a topic."""
    return any(_table(each.get("input")).get("format") == "kafka" for each in _tables(raw.get("batches")))


def _kafka(kafka: Right, written: Mapping[str, Any]) -> Iterator[Violation]:
    protocol = kafka.get("security_protocol")
    if protocol is None:
        return
    if protocol.startswith("SASL"):
        for key in ("sasl_plain_username", "sasl_plain_password"):
            if key not in written:
                yield ("kafka", key), f"is needed with security_protocol {protocol}"
    yield from _unused(protocol, written)
    for key in ("ssl_keyfile", "ssl_password"):
        if key in written and "ssl_certfile" not in written:
            yield ("kafka", key), "belongs to ssl_certfile, which is missing"


def _unused(protocol: str, written: Mapping[str, Any]) -> Iterator[Violation]:
    """Name credentials that would be ignored: they look like protection."""
    asked = {
        "sasl_": (protocol.startswith("SASL"), "SASL_SSL or SASL_PLAINTEXT"),
        "ssl_": (protocol.endswith("SSL"), "SSL or SASL_SSL"),
    }
    for prefix, (used, instead) in asked.items():
        for key in Kafka.model_fields:
            if key.startswith(prefix) and key in written and not used:
                right = f"needs security_protocol {instead}; with {protocol} it has no effect"
                yield ("kafka", key), right


def _worker(worker: Right) -> Iterator[Violation]:
    commit = worker.get("commit_interval_ms")
    for key in ("transaction_timeout_ms", "session_timeout_ms"):
        limit = worker.get(key)
        if commit is not None and limit is not None and limit <= commit:
            yield ("worker", key), f"must be greater than commit_interval_ms ({commit})"


def _output(where: Where, written: Mapping[str, Any], guarantee: str | None) -> Iterator[Violation]:
    output = written.get("output", "records")
    if output not in {"records", "verdicts", "both"}:
        return
    if output != "verdicts" and "sink" not in written:
        yield (*where, "sink"), f"is missing: {Pipeline.model_fields['sink'].description}"
    if output == "records":
        if "verdicts" in written:
            yield (
                (*where, "verdicts"),
                'has no effect with output "records"; write output = "verdicts" or "both"',
            )
        return
    if "verdicts" not in written:
        yield (*where, "verdicts"), f'is missing: with output "{output}" it names the topic that they go to'
    if guarantee == "at_least_once":
        yield (*where, "output"), 'verdicts need guarantee "exactly_once": their ranges must not overlap'
    dedup = _table(written.get("dedup"))
    if dedup.get("mode") != "insert-id":
        return
    if dedup.get("route") is not None:
        message = 'has an order of its own, which verdicts cannot say: write output = "records"'
        yield (*where, "dedup", "route"), message
    action = dedup.get("on_collision")
    if "fingerprint" in dedup and action in {"tag", "rename"}:
        message = f'"{action}" changes records, which verdicts cannot: write "pass", "quarantine" or "drop"'
        yield (*where, "dedup", "on_collision"), message


def _guarantee(worker: Right, pipelines: Sequence[Mapping[str, Any]]) -> Iterator[Violation]:
    with_ids = any(_table(each.get("dedup")).get("mode") == "insert-id" for each in pipelines)
    if with_ids and worker.get("guarantee") == "at_least_once":
        message = 'at_least_once does not work with insert-id yet: use "exactly_once"'
        yield ("worker", "guarantee"), message
    wrapping = any("wraps" in _table(_table(each.get("dedup")).get("sequence")) for each in pipelines)
    if wrapping and worker.get("guarantee") == "at_least_once":
        message = (
            "at_least_once does not work with sequence.wraps: a worker that was paused may write an older "
            'watermark, of which new numbers are not ahead any more: use "exactly_once"'
        )
        yield ("worker", "guarantee"), message


def _unique(table: str, key: str, elements: Sequence[Right]) -> Iterator[Violation]:
    seen: dict[Any, int] = {}
    for index, element in enumerate(elements):
        value = element.get(key)
        if value is None:
            continue
        if value in seen:
            message = f"is the same as {table}.{seen[value]}.{key}; each needs its own"
            yield (table, index, key), message
        seen.setdefault(value, index)


def _uses(pipelines: Sequence[Right]) -> Iterator[Use]:
    for index, pipeline in enumerate(pipelines):
        for role in _ROLES:
            topic = pipeline.get(role)
            if topic is not None:
                yield Use(("pipelines", index, role), index, role, topic)


def _topics(uses: Sequence[Use]) -> Iterator[Violation]:
    """One topic, one role; but a sink may be the next pipeline's source.

    Receipts and quarantined records say where they come from, so that pipelines may share those topics.
    A shared sink could not be checked against its source.
    """
    for position, use in enumerate(uses):
        for earlier in uses[:position]:
            if earlier.topic != use.topic:
                continue
            other = ".".join(map(str, earlier.where))
            roles = {earlier.role, use.role}
            if earlier.pipeline == use.pipeline:
                yield use.where, f"must not be the same topic as {other}"
            elif roles == {"source"}:
                yield use.where, f"is read by {other} already; a source belongs to one pipeline"
            elif roles == {"sink"}:
                yield use.where, f"is written by {other} already; a sink belongs to one pipeline"
            elif roles == {"verdicts"}:
                yield use.where, f"is written by {other} already; a topic of verdicts belongs to one pipeline"
            elif len(roles) == 2 and roles != {"source", "sink"}:
                yield use.where, f"must not be the same topic as {other}"
            else:
                continue
            break


def _loops(pipelines: Sequence[Right]) -> Iterator[Violation]:
    sinks = {each["source"]: each["sink"] for each in pipelines if "source" in each and each.get("sink")}
    for index, pipeline in enumerate(pipelines):
        start = pipeline.get("source")
        topic = sinks.get(start)
        seen: set[str] = set()
        # A pipeline from a topic into the same has its own message.
        while topic is not None and topic not in seen and topic != start:
            seen.add(topic)
            topic = sinks.get(topic)
        if topic == start and seen:
            through = " -> ".join([str(start), *_way(sinks, str(start))])
            yield ("pipelines", index, "source"), f"is fed by its own sink: {through}"
            return


def _way(sinks: Mapping[str, str], start: str) -> Iterator[str]:
    topic = sinks[start]
    while topic != start:
        yield topic
        topic = sinks[topic]
    yield start


def _internal(worker: Right, pipelines: Sequence[Right]) -> Iterator[Violation]:
    application = worker.get("application_id")
    if application is None:
        return
    internal: set[str] = set()
    names = {pipeline.get("name") for pipeline in pipelines}
    for index, pipeline in enumerate(pipelines):
        name = pipeline.get("name")
        if name is None:
            continue
        made = [each.of(application, name) for each in InternalTopic]
        internal.update(made)
        dedup = pipeline.get("dedup")
        if isinstance(dedup, InsertIdDedup) and dedup.route is not None and f"{name}-route" in names:
            message = f"has internal topics of the same names as pipeline {name}-route: rename one of them"
            yield ("pipelines", index, "name"), message
        too_long = max(map(len, made)) - TOPIC_MAX_LENGTH
        if too_long > 0:
            message = (
                f"is {too_long} characters too long: internal topics are named "
                f"APPLICATION_ID-NAME-{InternalTopic.REPARTITION}, at most {TOPIC_MAX_LENGTH} characters"
            )
            yield ("pipelines", index, "name"), message
    for use in _uses(pipelines):
        if use.topic in internal:
            yield use.where, "is the name of an internal topic of this application"


def _dedup(where: Where, written: Mapping[str, Any]) -> Iterator[Violation]:
    if written.get("mode") != "insert-id":
        return
    dedup = _right(InsertIdDedup, written)
    bloom = written.get("bloom")
    if bloom is not None and dedup.get("backend") == "exact":
        instead = "" if "fingerprint" in written else ', or write backend = "bloom"'
        yield (*where, "bloom"), f'has no effect with backend "exact": leave it out{instead}'
    parts = dict(_plain_parts(written.get("id")))
    contents = [below for below, part in parts.items() if part.get("from") == "content"]
    for below in contents[1:]:
        first = ".".join(map(str, ("id", *contents[0][:1], *contents[0][2:])))
        yield (*where, "id", *below), f"is the content once more: {first} is, and it counts as a whole"
    for below in contents:
        yield from uncounted_violation((*where, "id", *below), parts[below])
    excluding = [*(parts[below] for below in contents), _table(written.get("fingerprint"))]
    values = sum(part.get("from") == "value" for part in parts.values()) + sum(map(_excluded, excluding))
    values += str(_table(written.get("rename")).get("keep")).startswith("/")
    if values > MOST_VALUE_PARTS:
        also = ", those of fingerprint and rename included" if "fingerprint" in written else ""
        message = (
            f"has {values} parts and excluded fields in the value{also}, at most {MOST_VALUE_PARTS} "
            "are read of one"
        )
        yield (*where, "id"), message
    bucket = _right(BloomOptions, bloom).get("bucket")
    window = dedup.get("window")
    if "bucket" in _table(bloom) and bucket and window and bucket > window:
        message = f"must not be longer than the window ({duration_text(window)})"
        yield (*where, "bloom", "bucket"), message


def _sequence(where: Where, written: Mapping[str, Any]) -> Iterator[Violation]:
    if written.get("mode") != "watermark":
        return
    source = _right(HeaderSource, written.get("sequence"))
    wraps, window = source.get("wraps"), _right(WatermarkDedup, written).get("reorder_window")
    if wraps and window and 2 * window >= wraps:
        message = (
            f"must be less than half of sequence.wraps ({wraps:,}), at most {(wraps - 1) // 2:,}: what lies "
            "further back is ahead"
        )
        yield (*where, "reorder_window"), message
    if wraps and wraps > _INT32_END and source.get("from_") == "header" and source.get("format") == "int32":
        message = f'is more than int32 holds, which is signed (at most {_INT32_END:,}): use "int64" or "text"'
        yield (*where, "sequence", "wraps"), message
    scope = written.get("scope")
    of_value = sum(
        part.get("from") == "value" or str(part).startswith("value:")
        for _, part in _plain_parts(scope if isinstance(scope, list) else [scope])
    )
    if of_value > MOST_VALUE_PARTS:
        yield (
            (*where, "scope"),
            f"has {of_value} parts in the value, at most {MOST_VALUE_PARTS} are read of one",
        )
    epoch = _table(written.get("epoch"))
    if epoch.get("order") == "change" and "format" in epoch:
        message = 'has no effect with order "change", which compares bytes as they are: leave it out'
        yield (*where, "epoch", "format"), message


def _plain_parts(written: Any) -> Iterator[tuple[Where, Mapping[str, Any]]]:
    """Yield the parts of an id with their places in it, those inside of ``any`` in its place."""
    for number, part in enumerate(_tables(written)):
        if "any" not in part:
            yield (number,), part
        for inner, below in enumerate(_tables(part.get("any"))):
            # The form of the table, then its key of the same name: as pydantic says where an error is.
            yield (number, "any", "any", inner), below


def _excluded(written: Mapping[str, Any]) -> int:
    exclude = written.get("exclude")
    return len(exclude) if isinstance(exclude, list) else 0


def _fingerprint(where: Where, written: Mapping[str, Any], *, quarantine: bool) -> Iterator[Violation]:
    if written.get("mode") != "insert-id":
        return
    dedup = _right(InsertIdDedup, written)
    for key, model in (("fingerprint", Fingerprint), ("rename", Rename)):
        dedup[key] = _right(model, written.get(key))
    for below, message in fingerprint_violations(dedup, written, quarantine=quarantine):
        yield (*where, *below), message


def _right(model: type[BaseModel], written: Any) -> Right:
    """Return the right values of a table, defaults included; wrong and missing ones are left out."""
    values: Right = {}
    table = _table(written)
    for name, field in model.model_fields.items():
        key = field.alias or name
        if key not in table:
            if not field.is_required():
                values[name] = field.get_default(call_default_factory=True)
            continue
        try:
            values[name] = _adapter(model, name).validate_python(table[key])
        except ValidationError:
            continue
    return values


@cache
def _adapter(model: type[BaseModel], name: str) -> TypeAdapter[Any]:
    field = copy(model.model_fields[name])
    field.alias = field.validation_alias = field.serialization_alias = None  # of a table's key alone
    kind: Any = Annotated[field.annotation, field]
    return TypeAdapter(kind)


def _table(written: Any) -> Mapping[str, Any]:
    return written if isinstance(written, Mapping) else {}


def _tables(written: Any) -> list[Mapping[str, Any]]:
    return [_table(each) for each in written] if isinstance(written, list) else []
