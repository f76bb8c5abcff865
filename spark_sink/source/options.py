"""Reads the options of ``format("seqmark")``.

topic               the clean topic; with ``verdicts`` the source of its pipeline
verdicts            the topic of verdicts, where the clean stream is read out of the source
event               MODULE:CLASS of the pydantic model; without it records come as they are, key and value
bootstrap_servers   and the other keys of the table [kafka]
metadata            true: columns _partition, _offset, _timestamp and _key beside the event's
unreadable          fail (the default), skip, or keep: a row whose columns are null, with _unreadable, why,
                    and _value
starting            earliest (the default) or latest: where a stream begins that has no checkpoint
accept_loss         true: go on where retention has removed what was not read yet
tasks               how many tasks share the partitions of a batch; a task each where it is not set
time_field          the event's field with its time, where batches are bounded
max_offsets_per_trigger
                    offsets of one batch at most, cut by event time; not set: all there are
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, cast, get_args

from pydantic import ValidationError

from processor.errors import StopError
from schemas.config import Kafka
from schemas.event import EventModel, EventModelError
from spark_sink.source.judged import UncountedPlan
from spark_sink.source.partials import PartialPlan
from spark_sink.source.rules import FieldKind, read_rules, rules_of, why_not
from spark_sink.source.spans import read_spans

if TYPE_CHECKING:
    from collections.abc import Mapping

    from processor.engine.events import FieldRule
    from spark_sink.source.spans import SourceSpan

Unreadable = Literal["fail", "skip", "keep"]
RULES = "rules"
"""Option with the rules as text, in place of ``event``; `spark_sink.clean_topic` sets it."""
PARTIALS = "partials"
"""Option with the aggregates to be made in the source; `spark_sink.job` sets it."""
UNCOUNTED = "uncounted"
"""Option with what was not counted in them; `spark_sink.side_output` sets it."""
SPANS = "spans"
"""Option with what of the topic is read, in place of all; `spark_sink.side_output` sets it."""
BOUND = "max_offsets_per_trigger"
TIME_FIELD = "time_field"
AT_START = "at_start"
"""Option that leaves out what comes after the first batch was planned; `spark_sink.job` sets it."""
_TRUE = {"true": True, "false": False}
_OWN = {
    "topic",
    "verdicts",
    "event",
    "metadata",
    "unreadable",
    "starting",
    "accept_loss",
    "tasks",
    BOUND,
    TIME_FIELD,
    AT_START,
    RULES,
    PARTIALS,
    UNCOUNTED,
    SPANS,
}


class BatchBound(NamedTuple):
    """How much one batch of a stream has."""

    offsets: int
    at_start: bool
    """Whether what came after the first batch was planned is left out."""
    events: PartialPlan
    """Which records are events, and when they were."""


class SourceOptions(NamedTuple):
    """What is read, and how."""

    topic: str
    kafka: Kafka
    rules: list[FieldRule] | None
    """None: records as they are."""
    metadata: bool
    unreadable: Unreadable
    latest: bool
    accept_loss: bool
    tasks: int | None
    partials: PartialPlan | None
    uncounted: UncountedPlan | None
    verdicts: str | None
    """The topic of verdicts; None: the topic is read as it is."""
    spans: list[SourceSpan] | None
    """None: all."""
    bound: BatchBound | None
    """None: a batch is all there is."""

    @classmethod
    def of(cls, options: Mapping[str, str]) -> SourceOptions:
        """Read options.

        Raises:
            StopError: One is missing, unknown or wrong; says which, and what would be right.
        """
        given = {key.lower(): value for key, value in options.items()}
        unknown = sorted(set(given) - _OWN - set(Kafka.model_fields))
        if unknown:
            raise StopError(f"format seqmark knows no option {unknown[0]}; see docs/spark-source.md")
        if "topic" not in given:
            raise StopError('format seqmark needs the option topic: .option("topic", "clicks.clean")')
        unreadable = given.get("unreadable", "fail")
        if unreadable not in get_args(Unreadable):
            raise StopError(f"option unreadable is {unreadable}: fail, skip or keep")
        if given.get("starting", "earliest") not in {"earliest", "latest"}:
            raise StopError(f"option starting is {given['starting']}: earliest or latest")
        rules, partials = _rules(given), PartialPlan.read(given[PARTIALS]) if PARTIALS in given else None
        return cls(
            given["topic"],
            _kafka(given),
            rules,
            _flag(given, "metadata"),
            cast("Unreadable", unreadable),
            given.get("starting") == "latest",
            _flag(given, "accept_loss"),
            _number(given, "tasks"),
            partials,
            UncountedPlan.read(given[UNCOUNTED]) if UNCOUNTED in given else None,
            given.get("verdicts"),
            read_spans(given[SPANS]) if SPANS in given else None,
            _bound(given, partials, rules),
        )


def kafka_options(kafka: Kafka) -> dict[str, str]:
    """Return the table ``[kafka]`` as options. Holds secrets: not for logs."""
    secrets = {name: getattr(kafka, name) for name in ("sasl_plain_password", "ssl_password")}
    plain = kafka.model_dump(mode="json", exclude=set(secrets), exclude_none=True)
    shown = {name: value.get_secret_value() for name, value in secrets.items() if value is not None}
    return {name: str(value) for name, value in {**plain, **shown}.items()}


def _kafka(given: Mapping[str, str]) -> Kafka:
    try:
        return Kafka.model_validate({name: given[name] for name in Kafka.model_fields if name in given})
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(map(str, first["loc"]))
        raise StopError(f"option {name} of format seqmark: {first['msg']}") from None


def _rules(given: Mapping[str, str]) -> list[FieldRule] | None:
    if RULES in given:
        return read_rules(given[RULES])
    if "event" not in given:
        return None
    try:
        model = EventModel.load(given["event"])
    except EventModelError as error:
        raise StopError(f"option event: {error}") from None
    if (why := why_not(model)) is not None:
        raise StopError(
            f"the kernels cannot check {model.name}: {why}. spark_sink.clean_topic(spark, ...) reads it by "
            f"Spark's own JSON reader"
        )
    return rules_of(model)


def _bound(
    given: Mapping[str, str], partials: PartialPlan | None, rules: list[FieldRule] | None
) -> BatchBound | None:
    if (offsets := _number(given, BOUND)) is None:
        return None
    if "verdicts" in given:
        raise StopError(f"option {BOUND} does not go with verdicts: a batch is all that they cover")
    if partials is None:
        name = given.get(TIME_FIELD)
        if rules is None or name is None:
            raise StopError(
                f"option {BOUND} needs the options event and {TIME_FIELD}: batches are cut by the events' times"
            )
        wanted = name, FieldKind.TIMESTAMP
        timed = [at for at, each in enumerate(rules) if (each.name, each.kind) == wanted]
        if not timed:
            raise StopError(f"option {TIME_FIELD} is {name}: a field of the event that is a point in time")
        partials = PartialPlan(rules, timed[0], 0, [], [], None)
    return BatchBound(offsets, _flag(given, AT_START), partials)


def _number(given: Mapping[str, str], name: str) -> int | None:
    value = given.get(name)
    if value is not None and not (value.isdecimal() and int(value)):
        raise StopError(f"option {name} is {value}: a number from 1 on")
    return None if value is None else int(value)


def _flag(given: Mapping[str, str], name: str) -> bool:
    value = given.get(name, "false").lower()
    if value not in _TRUE:
        raise StopError(f"option {name} is {value}: true or false")
    return _TRUE[value]
