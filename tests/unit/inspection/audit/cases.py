"""Topics as people have them, and which of their records are copies and nothing else."""

from __future__ import annotations

import json
import struct
import uuid
from itertools import chain
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


START_MS = 1_772_344_800_000


class Sent(NamedTuple):
    """A record.

    Attributes:
        value: Bytes, or what JSON is made of.
        copies: The place among those sent of the record that it is a copy of; None: it is none.
    """

    value: Any
    key: str | None = None
    at_ms: int = 0
    partition: int = 0
    headers: Sequence[tuple[str, bytes | None]] = ()
    copies: int | None = None

    @property
    def raw(self) -> bytes:
        """The value's bytes."""
        return self.value if isinstance(self.value, bytes) else json.dumps(self.value).encode()


def again(sent: Sequence[Sent], places: Iterable[int], after_ms: int = 5_000) -> list[Sent]:
    """Return records and, behind them, some of them again."""
    end = sent[-1].at_ms + after_ms
    return [*sent, *(sent[at]._replace(at_ms=end + n, copies=at) for n, at in enumerate(places))]


def uuid_of(seed: str) -> str:
    """Return an id, the same for the same seed."""
    return str(uuid.UUID(int=Random(seed).getrandbits(128), version=4))


def not_a_number() -> list[Sent]:
    """Sensors whose failed readings are NaN, as Python writes them."""
    return again(
        [
            Sent(
                {"event_id": f"{n:032x}", "t": float("nan") if n % 5 == 0 else n / 10, "up": float("-inf")},
                at_ms=n,
            )
            for n in range(200)
        ],
        (5, 6, 10, 199),
    )


def dirty() -> list[Sent]:
    """Ids in ASCII beside names in Latin-1, values with a BOM, or a NUL behind them."""
    values = [
        json.dumps({"id": f"m{n:07d}", "name": "Straße" if n % 4 == 2 else "x"}, ensure_ascii=False).encode(
            "latin-1" if n % 4 == 2 else "utf-8"
        )
        for n in range(80)
    ]
    marks = {1: (b"", b"\0"), 3: (b"\xef\xbb\xbf", b"")}
    dirty = [marks.get(n % 4, (b"", b"\n")) for n in range(80)]
    return again(
        [Sent(one + value + other) for value, (one, other) in zip(values, dirty, strict=True)], range(4)
    )


def behind_a_schema() -> list[Sent]:
    """JSON behind the five bytes of a registry; its number goes up between a record and its copy."""

    def value(n: int, schema: int) -> bytes:
        return (
            b"\0" + struct.pack(">I", schema) + json.dumps({"event_id": uuid_of(f"{n}"), "n": n % 13}).encode()
        )

    old, new = ([Sent(value(n, schema), f"u{n % 9}", n * 100) for n in range(120)] for schema in (12, 13))
    return [*old[:80], *(new[n]._replace(copies=n) for n in range(75, 80)), *new[80:]]


def within_a_string() -> list[Sent]:
    """Events that a collector wraps as text, with its own id and the time of each try."""

    def value(n: int, sent: int) -> dict[str, Any]:
        inner = {"event": "view", "who": f"u{n % 7}", "properties": {"$insert_id": f"k3{n:06x}zq", "p": n % 11}}
        now = f"2026-03-01T06:{sent // 60:02d}:{sent % 60:02d}.900+00:00"
        return {"uuid": uuid_of(f"{n} {sent}"), "data": json.dumps(inner), "now": now, "token": "phc_example"}

    first = [Sent(value(n, n), f"u{n % 7}", n * 1000) for n in range(150)]
    retries = [Sent(value(n, 200 + n), f"u{n % 7}", (200 + n) * 1000, copies=n) for n in (3, 40, 77, 149)]
    return first + retries


def columns() -> list[Sent]:
    """Tab-separated text whose seventh column is the id, and whose third is renewed by each run."""

    def value(n: int, run: int) -> bytes:
        times = f"2026-03-01 06:{run:02d}:11.000", f"2026-03-01 06:00:{n % 60:02d}.000"
        return "\t".join(
            ("shop", "web", *times, "", "view", uuid_of(f"{n}"), "", f"203.0.113.{n % 9}")
        ).encode()

    return [Sent(value(n, 1), at_ms=n * 100) for n in range(100)] + [
        Sent(value(n, 2), at_ms=11_000 + n, copies=n) for n in range(95, 100)
    ]


def counted_by_member() -> list[Sent]:
    """A count per sensor, which is named in the value, while the key is a gateway's."""
    sent = [
        Sent({"sensor": f"s{s}", "seq": n + 50 * s, "v": (n * 7 + s) % 50}, f"gw{s % 2}", n * 100 + s)
        for n in range(200)
        for s in range(4)
    ]
    return again(sent, range(762, 800, 4))


def arrays() -> list[Sent]:
    """Several events in a record, and a retry that parts them in another way."""
    events = [{"name": "counters", "timestamp": 1680417104877454555 + n * 10**10} for n in range(120)]
    return again([Sent(events[n : n + 3], at_ms=n * 100) for n in chain(range(0, 118, 3), (1, 4))], (3,))


def lines() -> list[Sent]:
    """Under load several documents in a record, a line each."""
    each = [json.dumps({"id": f"o-{n:06d}", "qty": n % 3}).encode() + b"\n" for n in range(80)]
    return again([*map(Sent, each[:40]), *(Sent(b"".join(each[n : n + 4])) for n in range(40, 80, 4))], (3, 45))


def states() -> list[Sent]:
    """A state that is sent again and again: only its changes are wanted, which no rule knows."""
    return [
        Sent({"door": n % 2, "state": "open" if n // 6 % 3 else "closed"}, f"door-{n % 2}", n * 500)
        for n in range(160)
    ]


def rotated() -> list[Sent]:
    """Lines of a log with their place in the file, which begins again with each file of the same name."""
    offsets = chain(*(range(0, 90 * size, 90) for size in (700, 500, 800)))
    sent = [
        Sent({"log": {"offset": at, "file": "/var/log/app.log"}, "message": f"{n} done"}, at_ms=n * 10)
        for n, at in enumerate(offsets)
    ]
    return again(sent, range(1_950, 1_990))


def wrapped() -> list[Sent]:
    """A counter of 14 bits, and readings that are often the same."""
    sent = [
        Sent({"counter": n % 16_384, "v": Random(n).randrange(10**6)}, "dev-1", n * 20) for n in range(20_000)
    ]
    return again(sent, range(19_900, 19_950))


def changes() -> list[Sent]:
    """Changes of a database by several connections: their places in its log do not rise in one partition."""
    dice = Random(3)
    lsns = [1_000_000 + 56 * n + dice.choice((0, 0, 0, -9_000)) for n in range(600)]

    def value(n: int, tried: int) -> dict[str, Any]:
        row = {"id": n % 50, "amount": n}
        source = {
            "connector": "postgresql",
            "lsn": lsns[n],
            "txId": 500 + n // 3,
            "ts_ms": 1_772_344_800_000 + n,
        }
        return {"op": "u", "after": row, "source": source, "ts_ms": 1_772_344_900_000 + n + 40_000 * tried}

    sent = [Sent(value(n, 0), json.dumps({"id": n % 50}), n * 100) for n in range(600)]
    return [*sent, *(Sent(value(n, 1), sent[n].key, 61_000 + n, copies=n) for n in range(560, 600))]


def spelled_anew() -> list[Sent]:
    """Ids that another program writes in capitals and without dashes when it sends again."""
    sent = [Sent({"order_id": uuid_of(f"{n}"), "n": n % 7}, at_ms=n * 100) for n in range(200)]
    retries = [
        Sent({"order_id": uuid_of(f"{n}").upper().replace("-", ""), "n": n % 7}, at_ms=30_000 + n, copies=n)
        for n in (3, 50, 199)
    ]
    return sent + retries


def numbered_anew() -> list[Sent]:
    """Numbers that a retry writes as text, or with zeros in front."""
    sent = [Sent({"id": n, "n": n % 7}, at_ms=n * 100) for n in range(1, 200)]
    texts = {3: "3", 50: "0050", 120: "120"}
    retries = [Sent({"id": text, "n": n % 7}, at_ms=30_000 + n, copies=n - 1) for n, text in texts.items()]
    return sent + retries


def cloud_events() -> list[Sent]:
    """CloudEvents whose ids are unique per source alone, as the standard has it."""
    sent = [
        Sent({"n": n}, headers=[("ce_id", b"%d" % (n // 2)), ("ce_source", b"/s/%d" % (n % 2))], at_ms=n)
        for n in range(300)
    ]
    return again(sent, (4, 7, 250))
