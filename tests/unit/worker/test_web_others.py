"""Which other workers does a worker ask for its page, and what does it believe of what they answer?"""

from __future__ import annotations

import asyncio
import json
import socket
import time
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlencode

import pytest
from aiohttp.web import Application, AppRunner, HTTPFound, Request, Response, TCPSite
from multidict import MultiDict
from yarl import URL

from processor.engine.ids.page import BACKFILLED
from processor.judges.asked_id import asked_words, words_of
from processor.judges.committed import RememberedRecord, living
from processor.kafka.group.assignor import WebAddress
from processor.kafka.group.description import DescribedMember
from processor.ops.web_port import machine
from processor.worker.web.others import ANSWER_S, MOST_BYTES, MOST_WORKERS, OtherWorkers, web_address
from processor.worker.web.site import _passed_on, _require_utf8, _without_workers
from schemas.config import Pipeline

if TYPE_CHECKING:
    from processor.worker.web.board import Board
    from processor.worker.worker import Worker

HERE, ELSEWHERE = machine(), "of another machine"


def others() -> OtherWorkers:
    """Return those of application ``mine``, asked for no member: neither worker nor board has a part in it."""
    return OtherWorkers("mine", [], cast("Worker", None), cast("Board", None))


def member(host: str, web: WebAddress | None) -> DescribedMember:
    return DescribedMember("m", "c", host, web=web)


ME = DescribedMember("me", "c", "127.0.0.1")


def rows(*members: DescribedMember) -> list[dict[str, Any]]:
    async def ask() -> list[dict[str, Any]]:
        return await others()._others([ME, *members], ME.name)

    return asyncio.run(ask())


@pytest.mark.parametrize(
    ("host", "web", "asked"),
    [
        ("10.0.0.7", WebAddress("", 6066, ELSEWHERE), "10.0.0.7:6066"),
        ("10.0.0.7", WebAddress("10.0.0.7", 6066, ELSEWHERE), "10.0.0.7:6066"),
        ("fd00:0:0:0:0:0:0:7", WebAddress("fd00::7", 6066, ELSEWHERE), "[fd00::7]:6066"),
        ("0:0:0:0:0:ffff:a00:7", WebAddress("10.0.0.7", 6066, ELSEWHERE), "10.0.0.7:6066"),
        ("10.0.0.7", WebAddress("127.0.0.1", 6066, HERE), "127.0.0.1:6066"),
        ("127.0.0.1", WebAddress("", 6066, HERE), "127.0.0.1:6066"),
        ("10.0.0.7", WebAddress("127.0.0.1", 6066, ELSEWHERE), ""),
        ("127.0.0.1", WebAddress("", 6066, ELSEWHERE), ""),
        ("10.0.0.7", WebAddress("169.254.169.254", 80, HERE), ""),
        ("10.0.0.7", WebAddress("10.0.0.8", 6066, HERE), ""),
        ("10.0.0.7", WebAddress("evil.example", 6066, HERE), ""),
        ("evil.example", WebAddress("", 6066, HERE), ""),
        ("10.0.0.7", None, ""),
    ],
)
def test_only_addresses_that_the_broker_sees_or_of_this_machine_are_asked(
    host: str, web: WebAddress | None, asked: str
) -> None:
    where, why = web_address(member(host, web), HERE)

    assert where == asked
    assert bool(why) is not bool(asked)


@pytest.mark.parametrize(
    ("host", "own", "asked"),
    [
        ("10.0.0.7", "10.0.0.7", True),
        ("0:0:0:0:0:ffff:a00:7", "10.0.0.7", True),
        ("127.0.0.1", "127.0.0.1", True),
        ("203.0.113.9", "10.0.0.7", False),
        ("127.0.0.1", "10.0.0.7", False),
        ("10.0.0.7", "127.0.0.1", False),
        ("10.0.0.7", "", False),
        ("evil.example", "evil.example", False),
    ],
)
def test_a_loopback_address_is_asked_only_for_a_member_that_the_broker_sees_where_it_sees_this_worker(
    host: str,
    own: str,
    asked: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    # What a machine is called each member of the group can read, and say.
    where, why = web_address(member(host, WebAddress("127.0.0.1", 9200, HERE)), HERE, own)

    assert where == ("127.0.0.1:9200" if asked else "")
    assert bool(why) is not asked


def test_what_is_no_status_of_this_application_is_not_believed() -> None:
    paths: list[str] = []

    async def answered(body: bytes | None) -> dict[str, Any]:
        async def answer(request: Request) -> Response:
            paths.append(request.path_qs)
            if body is None:
                raise HTTPFound("/elsewhere")
            return Response(body=body, content_type="application/json")

        application = Application()
        application.router.add_get("/{path:.*}", answer)
        runner = AppRunner(application, access_log=None)
        await runner.setup()
        await TCPSite(runner, "127.0.0.1", 0).start()
        web = WebAddress("127.0.0.1", runner.addresses[0][1], HERE)
        try:
            (row,) = await others()._others([ME, member("127.0.0.1", web)], ME.name)
        finally:
            await runner.cleanup()
        return row

    right = json.dumps({"application": "mine", "x": 1}).encode()
    said = {
        body: asyncio.run(answered(body))
        for body in (right, b'{"application": "other"}', b"[]", b"<html>", b" " * MOST_BYTES + right, None)
    }

    assert said.pop(right)["status"] == {"application": "mine", "x": 1}
    assert [row["status"] for row in said.values()] == [None] * 5
    assert all(row["why"] for row in said.values())
    # Who is asked asks nobody, and no redirect is followed.
    assert set(paths) == {"/status.json"}


def test_one_that_is_gone_or_silent_is_shown_with_what_the_group_knows() -> None:
    # The system takes the connection, and nobody speaks.
    with socket.create_server(("127.0.0.1", 0)) as halted:
        ports = (halted.getsockname()[1], 1)
        began_s = time.monotonic()
        silent, gone = rows(*(member("127.0.0.1", WebAddress("", port, HERE)) for port in ports))

    assert time.monotonic() - began_s < 5 * ANSWER_S
    assert "has not answered within" in silent["why"]
    assert "cannot be reached" in gone["why"]
    assert (silent["status"], gone["status"], gone["name"]) == (None, None, "m")


def test_of_a_crowd_only_some_are_asked() -> None:
    found = rows(*[member("127.0.0.1", None)] * (MOST_WORKERS + 1))

    assert len(found) == MOST_WORKERS + 1
    assert found[-1]["why"] == f"only {MOST_WORKERS} workers are asked"


def test_of_what_others_say_of_an_id_only_positions_and_times_are_passed_on() -> None:
    pipeline = Pipeline.model_validate(
        {
            "name": "p",
            "source": "raw",
            "sink": "clean",
            "dedup": {"mode": "insert-id", "id": [{"from": "key"}], "window": "1h"},
        }
    )
    owner = {"topic": "<b>", "partition": 1, "offset": 7, "key": "secret"}
    one = {"as": ["bytes", "secret"], "owner": owner, "reading": 5, "expires_at": 9, "id": "secret"}
    row = {"partition": 1, "clock": 8, "remembered": [one], "value": "secret"}

    passed = _passed_on({"pipeline": "p", "partitions": [row], "key": "secret"}, pipeline)

    right = {
        "as": ["bytes"],
        "owner": {"topic": "raw", "partition": 1, "offset": 7},
        "reading": 5,
        "expires_at": 9,
    }
    assert passed == [{"partition": 1, "clock": 8, "remembered": [right]}]
    assert _passed_on({"pipeline": "q", "partitions": []}, pipeline) is None
    assert _passed_on({"pipeline": "p", "partitions": [{"partition": "secret"}]}, pipeline) is None
    assert _passed_on({"pipeline": "p", "partitions": [{**row, "clock": "secret"}]}, pipeline) is None
    assert _without_workers(MultiDict([("workers", "all"), ("id", "a b"), ("id", "&")])) == "id=a+b&id=%26"


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["a b", "&é"], ["id", "id"]),
        (["\udcff\udcfe", "base64:"], ["id64", "id64"]),
        (["\ufffd"], ["id"]),
    ],
)
def test_an_id_that_is_no_text_is_asked_for_as_it_is(words: list[str], names: list[str]) -> None:
    # As a server decodes a query: what is no UTF-8 becomes U+FFFD there.
    query = URL.build(path="/ids", query_string=urlencode(asked_words(words)), encoded=True).query
    assert [name for name, _ in query.items()] == names
    assert (words_of(query.getall("id64")) if "id64" in query else query.getall("id")) == words
    assert _without_workers(MultiDict([*query.items(), ("workers", "all")])) == urlencode(list(query.items()))


def test_a_query_that_is_no_text_is_refused() -> None:
    _require_utf8("id=a%20b&id=%EF%BF%BD&id=\u00e9")
    with pytest.raises(ValueError, match="ask for other bytes by id64"):
        _require_utf8("id=%FF%FE")


def test_what_a_backfill_has_brought_is_told_variant_by_variant() -> None:
    first, second, third = (RememberedRecord(BACKFILLED, reading) for reading in (10, 20, 20))
    streamed = RememberedRecord(7, 30)
    assert living([first], [first, second, third, streamed], 50, 100) == [first, second, third, streamed]
    # One that was renewed is told once, and one that is alone has no variants.
    assert living([first], [second, streamed], 50, 100) == [second, streamed]
    assert living([first], [], 50, 100) == [first]
    assert living([first], [second, third], 115, 100) == [second, third]
    assert living([streamed], [streamed._replace(reading_ms=40)], 50, 100) == [streamed._replace(reading_ms=40)]
