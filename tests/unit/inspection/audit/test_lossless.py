"""Records that are alike and no copies are not taken for some, however their parts are called."""

from __future__ import annotations

from datetime import UTC, datetime
from random import Random
from typing import TYPE_CHECKING

import pytest

from tests.unit.inspection.audit.audited import audited
from tests.unit.inspection.audit.cases import Sent, uuid_of
from tests.unit.inspection.audit.test_field import judged

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

DICE = Random(1)
USERS = [DICE.randrange(2_500) for _ in range(800)]


def day(number: int) -> str:
    return datetime.fromtimestamp(1_772_344_800 + number, UTC).isoformat()


def columns(number: int) -> bytes:
    texts = [f"c{at}" for at in range(70)]
    texts[2], texts[64] = uuid_of(f"{number if number % 100 else 0}"), f"v{number}"
    return "\t".join(texts).encode()


TOPICS: dict[str, Callable[[], list[Sent]]] = {
    "ids of events beside keys that differ": lambda: [
        Sent({"event_id": uuid_of(f"e{n}"), "amount": n * 7 % 300}, uuid_of(f"k{n}"), n * 1_000)
        for n in range(1_000)
    ],
    "logins of a user": lambda: [
        Sent({"user_id": f"u{user}", "type": "login", "at": day(n * 60)}, f"u{user}", n * 60_000)
        for n, user in enumerate(USERS)
    ],
    "logins with ids, of users with UUIDs": lambda: [
        Sent({"event_id": uuid_of(f"e{n}"), "user_id": uuid_of(f"u{user}"), "at": day(n)}, None, n * 1_000)
        for n, user in enumerate(USERS)
    ],
    "a parcel that was not delivered, and is": lambda: [
        Sent({"parcel": f"P{n // 2:05d}", "delivered": bool(n % 2)}, f"P{n // 2:05d}", n * 60_000)
        for n in range(400)
    ],
    "attempts to log in": lambda: [
        Sent({"account": f"a{n % 60}", "attempt": n // 60 + 1, "ok": False}, f"a{n % 60}", n * 60_000)
        for n in range(90)
    ],
    "idempotency keys in all but one": lambda: [
        *(
            Sent({"amount": n % 150}, None, n * 1_000, headers=[("idempotency-key", b"i-%d" % n)])
            for n in range(200)
        ),
        Sent({"amount": 151}, None, 300_000),
    ],
    "ids of events in a header, of orders in the value": lambda: [
        Sent(
            {"order_id": f"o{n % 300}", "status": "failed"},
            f"o{n % 300}",
            n * 1_000,
            headers=[("event-id", b"ev-%d" % n)],
        )
        for n in range(310)
    ],
    "one request of two accounts": lambda: [
        Sent({"amount": n}, f"{whose}{n}", n * 1_000, headers=[("request_id", b"r-%d" % n)])
        for whose, numbers in (("A", range(300)), ("B", (7, 107)))
        for n in numbers
    ],
    "members that are named by data": lambda: [
        Sent({"event_id": f"e{n}", "delivery": {f"sku{n}": 1}}, None, n) for n in range(63)
    ],
    "texts of many columns": lambda: [Sent(columns(n), None, n * 100) for n in range(600)],
}


@pytest.mark.parametrize("topic", TOPICS)
def test_nothing_is_lost(topic: str, tmp_path: Path) -> None:
    sent = TOPICS[topic]()
    found = audited(sent)
    assert found.chosen is not None, found.why_none
    assert judged(sent, found.chosen.proposal.dedup, tmp_path)[0] == set()
    assert found.copies.count == 0
