"""What is proposed for a topic is what a person who knows it would write."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from processor.inspection.proposal.choose import Proposal, propose
from processor.inspection.proposal.observed import observe
from schemas.config import Settings
from tests.unit.inspection.proposal.topics import START_MS, STEP_MS, Stream, int32, int64, record

if TYPE_CHECKING:
    from collections.abc import Callable

    from processor.inspection.topic_records import TopicRecord

COUNT = 400
VALUE = "value"


def proposed(records: list[TopicRecord]) -> Proposal:
    found = propose(observe(records))
    assert found is not None
    # Whatever is proposed is a right config.
    dedup = {"name": "p", "source": "t", "sink": "t.clean", "quarantine": "q", "dedup": found.dedup}
    kafka = {"bootstrap_servers": "localhost:9092"}
    Settings.model_validate({"kafka": kafka, "worker": {"application_id": "a"}, "pipelines": [dedup]})
    return found


def by_value(pointer: str, **more: Any) -> dict[str, Any]:
    return {"mode": "insert-id", "id": [{"from": "value", "pointer": pointer}], "window": "1d"} | more


def by_header(name: str) -> dict[str, Any]:
    return {"mode": "insert-id", "id": [{"from": "header", "name": name}], "window": "1d"}


def by_sequence(**sequence: Any) -> dict[str, Any]:
    return {"mode": "watermark", "sequence": sequence}


def topic(make: Callable[[Stream, int, int], dict[str, Any]], **options: int) -> list[TopicRecord]:
    stream = Stream(**options)
    return stream.records(COUNT, lambda number, partition: make(stream, number, partition))


def event_ids(stream: Stream, number: int, _: int) -> dict[str, Any]:
    return {VALUE: {"event_id": stream.new_id(), "user_id": number % 9, "at": number}, "key": f"u{number % 9}"}


def nested(stream: Stream, number: int, _: int) -> dict[str, Any]:
    return {VALUE: {"meta": {"messageId": stream.new_id()}, "data": {"order_id": number % 50}}}


def camel(stream: Stream, number: int, _: int) -> dict[str, Any]:
    return {VALUE: {"insertId": stream.new_id(), "traceId": stream.new_id(), "n": number % 3}}


def plain_id(stream: Stream, number: int, _: int) -> dict[str, Any]:
    return {VALUE: {"type": "click", "id": stream.new_id(), "session_id": f"s{number // 7}", "n": number % 5}}


def order_numbers(stream: Stream, number: int, _: int) -> dict[str, Any]:
    return {VALUE: {"order_no": f"A-{stream.dice.randrange(10**9):09}", "customer": f"c{number % 30}"}}


def unnamed_uuid(stream: Stream, number: int, _: int) -> dict[str, Any]:
    return {VALUE: {"x": stream.new_id(), "text": f"words of all kinds {number}"}}


def header_id(stream: Stream, number: int, _: int) -> dict[str, Any]:
    return {
        "headers": [(b"message-id", stream.new_id().encode())],
        VALUE: b"\0\0\0\0\7binary%d" % (number % 40),
    }


def cloud_event(stream: Stream, number: int, _: int) -> dict[str, Any]:
    headers = [(b"ce_id", stream.new_id().encode()), (b"ce_type", b"click"), (b"ce_source", b"shop")]
    return {"headers": headers, VALUE: {"user": number % 9}}


def header_sequence(stream: Stream, number: int, _: int) -> dict[str, Any]:
    return {"headers": [(b"seq", int64(1000 + number))], VALUE: {"n": number % 7, "ref": stream.new_id()}}


def small_sequence(_: Stream, number: int, partition: int) -> dict[str, Any]:
    return {"headers": [(b"counter", int32(number // 2 * 3 + partition))], VALUE: b"%d" % (number % 30)}


def text_sequence(_: Stream, number: int, partition: int) -> dict[str, Any]:
    return {"headers": [(b"position", b"%d" % (5000 + number))], VALUE: {"p": partition}}


def value_sequence(_: Stream, number: int, __: int) -> dict[str, Any]:
    return {VALUE: {"seq": number // 2, "kind": "a", "amount": number % 17}}


def value_text_sequence(_: Stream, number: int, __: int) -> dict[str, Any]:
    return {VALUE: {"log": {"sequence_number": str(900 + number)}, "kind": "a"}}


def per_producer(_: Stream, number: int, __: int) -> dict[str, Any]:
    producer = number // 2 % 3
    count = number // 6 + (0, 1000, 200)[producer]
    return {"headers": [(b"producer", b"p%d" % producer), (b"seq", int64(count))], VALUE: {"n": number}}


def per_key(_: Stream, number: int, __: int) -> dict[str, Any]:
    device = number // 2 % 8
    return {"key": f"d{device}", VALUE: {"seq": number // 16 + 37 * device, "heat": number % 11}}


def device_and_count(_: Stream, number: int, __: int) -> dict[str, Any]:
    # Every device counts its own events, and they come in any order.
    count = number // 8
    return {VALUE: {"event_id": count ^ 1, "device_id": f"d{number % 8}", "heat": number % 11}}


def unique_keys(stream: Stream, number: int, _: int) -> dict[str, Any]:
    return {"key": stream.new_id(), VALUE: {"amount": number % 13}}


def nothing(_: Stream, number: int, __: int) -> dict[str, Any]:
    return {"key": f"s{number % 4}", VALUE: {"sensor": number % 4, "heat": number / 7}}


def lines(_: Stream, number: int, __: int) -> dict[str, Any]:
    return {VALUE: b"GET /page/%d HTTP/1.1" % number}


def clocked(_: Stream, number: int, __: int) -> dict[str, Any]:
    # Times rise, too: they are no sequence, and two events may have the same.
    at_ms = START_MS + number * STEP_MS
    return {VALUE: {"at": at_ms, "created": at_ms // 1000, "time": "2026-03-01T06:00:00Z", "heat": number % 90}}


def auto_increment(_: Stream, number: int, __: int) -> dict[str, Any]:
    return {VALUE: {"id": 70_000 + number, "state": "paid"}}


KINDS: list[tuple[Callable[[Stream, int, int], dict[str, Any]], dict[str, Any]]] = [
    (event_ids, by_value("/event_id")),
    (nested, by_value("/meta/messageId")),
    (camel, by_value("/insertId")),
    (plain_id, by_value("/id")),
    (order_numbers, by_value("/order_no")),
    (unnamed_uuid, by_value("/x")),
    (auto_increment, by_value("/id")),
    (header_id, by_header("message-id")),
    (
        cloud_event,
        {"mode": "insert-id", "window": "1d",
         "id": [{"from": "header", "name": "ce_id"}, {"from": "header", "name": "ce_source"}]},
    ),
    (header_sequence, by_sequence(**{"from": "header"}, name="seq", format="int64")),
    (small_sequence, by_sequence(**{"from": "header"}, name="counter", format="int32")),
    (text_sequence, by_sequence(**{"from": "header"}, name="position", format="text")),
    (value_sequence, by_sequence(**{"from": "value"}, pointer="/seq")),
    (value_text_sequence, by_sequence(**{"from": "value"}, pointer="/log/sequence_number", format="text")),
    (
        per_producer,
        {"mode": "watermark", "scope": "header:producer",
         "sequence": {"from": "header", "name": "seq", "format": "int64"}},
    ),
    (
        per_key,
        {"mode": "watermark", "scope": "key", "sequence": {"from": "value", "pointer": "/seq"}},
    ),
    (
        device_and_count,
        {"mode": "insert-id", "window": "1d",
         "id": [{"from": "value", "pointer": "/event_id"}, {"from": "value", "pointer": "/device_id"}]},
    ),
    (unique_keys, {"mode": "insert-id", "id": [{"from": "key"}], "window": "1d"}),
    (nothing, {"mode": "insert-id", "id": [{"from": "content"}], "window": "1d"}),
    (lines, {"mode": "insert-id", "id": [{"from": "content", "of": "bytes"}], "window": "1d"}),
    (clocked, {"mode": "insert-id", "id": [{"from": "content"}], "window": "1d"}),
]  # fmt: skip


@pytest.mark.parametrize(("make", "dedup"), KINDS, ids=[make.__name__ for make, _ in KINDS])
def test_a_kind_of_topic_is_recognised(
    make: Callable[[Stream, int, int], dict[str, Any]], dedup: dict[str, Any]
) -> None:
    found = proposed(topic(make))

    assert found.dedup == dedup, found.reasons


def test_null_is_no_id_and_asks_for_no_second_part() -> None:
    records = topic(event_ids)
    nulled = [
        each._replace(value=json.dumps(json.loads(each.value or b"") | {"event_id": None}).encode())
        if at in {70, 270}
        else each
        for at, each in enumerate(records)
    ]

    found = proposed(nulled)

    assert found.dedup == by_value("/event_id")
    assert "2 without it would be quarantined" in found.reasons["mode"]
    assert [str(place) for place in found.chosen] == ["/event_id"]


def change(_: Stream, number: int, __: int) -> dict[str, Any]:
    """Debezium's envelope, of a connector for PostgreSQL."""
    source = {"connector": "postgresql", "ts_ms": number, "txId": 700 + number, "lsn": 9000 + 7 * number}
    transaction = {"id": str(700 + number), "total_order": 1}
    value = {"after": {"state": number % 5}, "source": source, "op": "u", "transaction": transaction}
    return {VALUE: {"before": None} | value}


def wrapped_change(stream: Stream, number: int, partition: int) -> dict[str, Any]:
    return {VALUE: {"schema": {}, "payload": change(stream, number, partition)[VALUE]}}


def flat_change(_: Stream, number: int, __: int) -> dict[str, Any]:
    return {"headers": [(b"__op", b"u")], VALUE: {"state": number % 5, "__lsn": 9000 + 7 * number}}


def keyed_change(_: Stream, number: int, __: int) -> dict[str, Any]:
    """Of a connector for MySQL, whose positions begin anew with each file."""
    source = {"connector": "mysql", "file": "binlog.7", "pos": 4 + 90 * number}
    value = {"after": {"state": number % 5}, "source": source, "op": "u"}
    return {"key": str(number % 7), VALUE: value}


def flat_and_deleted(_: Stream, number: int, __: int) -> dict[str, Any]:
    return {VALUE: {"state": number % 5, "__lsn": 9000 + 7 * number, "__deleted": "false"}}


def transactions_and_times(_: Stream, number: int, __: int) -> dict[str, Any]:
    return {VALUE: {"ts_us": number, "ts_ms_source": number, "xid": number, "heat": number % 90}}


@pytest.mark.parametrize(
    "make", [change, wrapped_change, flat_change, keyed_change, flat_and_deleted, transactions_and_times]
)
def test_numbers_of_a_database_are_no_sequence_of_a_partition(
    make: Callable[[Stream, int, int], dict[str, Any]],
) -> None:
    found = proposed(topic(make))

    assert found.dedup["id"] == [{"from": "content"}], found.reasons


def test_what_else_is_called_source_makes_no_event_a_change_of_a_database() -> None:
    def make(_: Stream, number: int, __: int) -> dict[str, Any]:
        return {VALUE: {"source": {"ip": "192.0.2.7", "file": "app.log"}, "seq": number, "heat": number % 90}}

    assert proposed(topic(make)).dedup["mode"] == "watermark"


def test_without_copies_the_window_is_a_guess_and_says_so() -> None:
    found = proposed(topic(event_ids, again=0))

    assert found.dedup == by_value("/event_id")
    assert "a guess, for no copy was seen" in found.reasons["window"]


@pytest.mark.parametrize(
    ("behind", "window"), [(3, "1d"), (20_000, "7d"), (200_000, "30d"), (9_000_000, "73d")]
)
def test_the_window_is_ten_times_the_longest_gap_between_copies_and_a_day_at_least(
    behind: int, window: str
) -> None:
    stream = Stream(partitions=1, again=0)
    first = stream.records(20, lambda number, partition: event_ids(stream, number, partition))
    later = [first[0]._replace(timestamp=first[0].timestamp + behind * STEP_MS)]

    found = proposed(first + later)

    assert found.dedup["window"] == window
    assert found.reasons["window"].startswith("copies came up to ")


def test_copies_in_another_partition_need_a_route() -> None:
    records = topic(event_ids, again=0)
    moved = [each._replace(partition=1) for each in records if each.partition == 0][:3]

    found = proposed(records + moved)

    assert found.dedup == by_value("/event_id", route="by-id")
    assert found.reasons["route"] == "3 copies came in another partition than the first"


def test_an_id_that_comes_again_with_other_content_is_not_taken() -> None:
    stream = Stream()

    def make(number: int, _: int) -> dict[str, Any]:
        return {VALUE: {"order_id": f"o{number}", "state": "new", "change_id": stream.new_id()}}

    def resent(sent: TopicRecord, _: int) -> TopicRecord:
        changed = json.loads(sent.value or b"") | {"state": "paid", "change_id": stream.new_id()}
        return sent._replace(value=json.dumps(changed).encode())

    found = proposed(stream.records(COUNT, make, resent))

    assert found.dedup == by_value("/change_id")


def test_what_a_resend_writes_anew_becomes_a_fingerprints_exclude() -> None:
    stream = Stream()

    def resent(sent: TopicRecord, at_ms: int) -> TopicRecord:
        return sent._replace(value=json.dumps(json.loads(sent.value or b"") | {"sent_at": at_ms}).encode())

    records = stream.records(
        COUNT, lambda number, _: {VALUE: {"event_id": stream.new_id(), "n": number, "sent_at": 1}}, resent
    )
    found = proposed(records)

    assert found.dedup == by_value("/event_id")
    assert [text for text, _ in found.hints] == ['fingerprint = { exclude = ["/sent_at"] }']


def test_ids_that_come_with_other_content_are_said_with_what_tells_them_apart() -> None:
    records = topic(event_ids)
    ours = json.loads(records[10].value or b"")
    clash = records[12]._replace(value=json.dumps(ours | {"user_id": 99}).encode())

    found = proposed([*records[:12], clash, *records[13:]])

    assert found.dedup == by_value("/event_id")
    assert "1 record with an id that came before with other content" in found.reasons["mode"]
    assert tuple(text for text, _ in found.hints) == ("fingerprint = {}", 'on_collision = "pass"')


def test_the_time_of_sending_is_no_content() -> None:
    stream = Stream()

    def resent(sent: TopicRecord, at_ms: int) -> TopicRecord:
        return sent._replace(value=json.dumps(json.loads(sent.value or b"") | {"sentAt": at_ms}).encode())

    found = proposed(
        stream.records(COUNT, lambda number, _: {VALUE: {"heat": number / 7, "sentAt": number}}, resent)
    )

    assert found.dedup["id"] == [{"from": "content", "exclude": ["/sentAt"]}]
    assert f"{COUNT // 20} have the value of an earlier one" in found.reasons["mode"]


def test_records_without_timestamps_are_judged_by_arrival() -> None:
    found = proposed([each._replace(timestamp=-1) for each in topic(event_ids)])

    assert found.dedup["time"] == "arrival"


def test_numbers_that_come_a_little_late_get_a_reorder_window() -> None:
    records = topic(header_sequence, partitions=1, again=0)
    for at in range(50, 350, 50):
        records[at], records[at + 3] = records[at + 3], records[at]

    found = proposed(records)

    assert found.dedup["reorder_window"] == 16
    assert "came up to 3 numbers late" in found.reasons["reorder_window"]


def test_several_producers_on_one_number_are_no_sequence() -> None:
    records = topic(header_sequence, partitions=1, again=0)
    mixed = records[:COUNT:2] + records[1:COUNT:2]

    found = proposed(mixed)

    assert found.dedup["mode"] == "insert-id"
    assert found.dedup["id"] == [{"from": "value", "pointer": "/ref"}]


def test_a_producer_that_counts_anew_has_no_sequence_without_an_epoch() -> None:
    records = topic(header_sequence, partitions=1, again=0)
    again = [
        each._replace(headers=[(b"seq", int64(at))], value=json.dumps({"ref": f"r{at}"}).encode())
        for at, each in enumerate(records)
    ]

    found, tail = proposed(records + again), proposed(records + again[:20])

    assert found.dedup["id"] == [{"from": "value", "pointer": "/ref"}]
    assert tail.dedup["mode"] == "watermark"
    assert "20 numbers lay below those of the sample" in tail.reasons["mode"]


def test_another_id_that_fits_as_well_is_named_and_one_that_resends_renew_is_not() -> None:
    stream = Stream()

    def make(number: int, _: int) -> dict[str, Any]:
        return {
            VALUE: {"event_id": stream.new_id(), "insert_id": number * 7 % 5003, "send_id": stream.new_id()}
        }

    def resent(sent: TopicRecord, _: int) -> TopicRecord:
        value = json.loads(sent.value or b"") | {"send_id": stream.new_id()}
        return sent._replace(value=json.dumps(value).encode())

    found = proposed(stream.records(COUNT, make, resent))

    assert found.dedup == by_value("/event_id")
    assert [text for text, _ in found.hints if text.startswith("id")] == [
        'id = [{ from = "value", pointer = "/insert_id" }]'
    ]


def test_records_that_lack_an_id_at_first_do_not_hide_what_it_is() -> None:
    records = topic(event_ids, partitions=1, again=0)
    times = [each._replace(value=b"{}") for each in records[:18]]

    assert proposed(times + records[18:]).dedup == by_value("/event_id")


def test_a_sequence_names_the_id_as_the_other_way() -> None:
    found = proposed(topic(header_sequence))

    ((text, _),) = found.hints
    assert text == 'mode = "insert-id", id = [{ from = "value", pointer = "/ref" }], window = "1d"'
    assert "resends do" in found.reasons["mode"]


def test_what_some_records_lack_is_said() -> None:
    records = topic(event_ids)
    some = [
        each._replace(value=b'{"user_id": 3}') if at % 100 == 7 else each for at, each in enumerate(records)
    ]

    found = proposed(some)

    assert found.dedup == by_value("/event_id")
    assert "without it would be quarantined" in found.reasons["mode"]


def test_tombstones_values_that_are_no_json_and_small_samples_are_noted() -> None:
    records = topic(unique_keys)[:30]
    given = [records[0]._replace(value=None), records[1]._replace(value=b"\xff"), *records[2:]]

    notes = " ".join(proposed(given).notes)

    assert "only 30 records there" in notes
    assert "1 value of 29 is no JSON" in notes
    assert "1 record without a value" in notes


def test_one_record_is_enough_for_a_named_id() -> None:
    assert proposed([record(0, START_MS, {"event_id": "a", "n": 1})]).dedup == by_value(
        "/event_id", window="1d"
    )


def test_records_of_nothing_have_no_proposal() -> None:
    assert propose(observe([record(0, START_MS) for _ in range(9)])) is None


@pytest.mark.parametrize(
    "value",
    [
        b"[" * 5000, b"{}", b"[]", b"5", b'"text"', b"null", b'{"a": NaN}', b'{"event_id": "\\ud800"}',
        b'{"\\u0007id": "x"}', b'{"a": ' + b"[" * 200 + b"]" * 200 + b"}", b"{" + b'"a":1,' * 3000 + b'"b":2}',
        b"{" + b",".join(b'"m%d":%d' % (at, at) for at in range(3000)) + b"}",
        b'{"seq": 1e999, "n": 99999999999999999999}',
    ],
)  # fmt: skip
def test_strange_values_are_taken_apart_within_bounds(value: bytes) -> None:
    proposed([record(0, START_MS + at, value, key=f"k{at % 2}") for at in range(20)])
