"""Streams in which everything happens that can become of a record, one for each kind of pipeline.

Each record is made by a die; what becomes of it the naive models say (`tests.support.explain.truth`). Times are
those of a day in the past, so that nothing depends on when the test runs.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.support.judges.fingerprints import FingerprintRules
from tests.support.judges.id_rules import IdRules
from tests.support.judges.rules import EPOCH_HEADER, SEQ_HEADER, Rules
from tests.support.kafka.topics import New, int64
from tests.support.worker.routed import RoutedRules

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

PARTITIONS = 2
START_MS = 1_790_000_000_000
STEP_MS = 100
SCOPES = 20
ID = ({"from": "value", "pointer": "/id"},)
_FAULTY_VALUES = (None, b"no json", b'{"other": 1}', b'{"id": 5, "seq": "x"}', b'{"id": null, "seq": null}')


@dataclass(frozen=True)
class Stream:
    """One pipeline, and what comes into its source.

    Attributes:
        name: The pipeline's.
        rules: It judges by.
        make: Makes the next records of a partition.
        receipts: Whether it has a topic of duplicates.
        reset: The part of a partition that it is set back by afterwards; 0: not.
        removed: The part that retention removes afterwards.
        compacted: Its source is compacted afterwards.
    """

    name: str
    rules: Rules | IdRules
    make: Callable[[random.Random, int], list[New]]
    receipts: bool = True
    reset: float = 0.0
    removed: float = 0.0
    compacted: bool = False
    partitions: int = field(default=PARTITIONS)

    @property
    def routed(self) -> bool:
        """Whether equal ids share a partition."""
        return isinstance(self.rules, RoutedRules)


def numbered(dice: random.Random, count: int, *, scopes: int = 0, in_value: bool = False) -> list[New]:
    """Return records with sequences: of keys with epochs, or of the whole partition."""
    made: list[New] = []
    state = dict.fromkeys(range(max(scopes, 1)), (1, 0))
    for number in range(count):
        scope = dice.randrange(max(scopes, 1))
        epoch, last = state[scope]
        chance = dice.random()
        if chance < 0.75:
            sequence = last = last + dice.choice((1, 1, 1, 2, 5))
        elif scopes and chance < 0.77:
            epoch, sequence = epoch + 1, dice.randrange(5)
            last = sequence
        else:
            sequence = last - dice.choice((0, 0, 1, 2, 3, 5, 9, 40))
        state[scope] = epoch, last
        sent = epoch - 1 if scopes and dice.random() < 0.02 else epoch
        key = b"key %d" % scope if scopes else None if dice.random() < 0.1 else b"k%d" % (number % 7)
        headers: tuple[tuple[str, bytes | None], ...] = ()
        value: bytes | None = json.dumps({"seq": sequence, "n": number}).encode()
        if not in_value:
            headers = (("other", b"x"), ("seq", int64(sequence)))
        if scopes:
            headers = (*headers, ("epoch", sent.to_bytes(4, "big")))
        if dice.random() < 0.02:
            key, value, headers = _spoilt(dice, key, value, headers, in_value=in_value, scopes=scopes)
        made.append(New(key, value, headers, START_MS + number * STEP_MS))
    return made


def _spoilt(
    dice: random.Random, key: bytes | None, value: bytes | None, headers: Any, *, in_value: bool, scopes: int
) -> Any:
    """Return what cannot be judged."""
    if in_value:
        return key, dice.choice((*_FAULTY_VALUES, b'{"seq": 99999999999999999999}')), headers
    choices: list[Any] = [(), headers[:1], (("seq", b"short"),), (("seq", None),)]
    if scopes and dice.random() < 0.3:
        return None, value, headers
    return key, value, dice.choice(choices)


def identified(dice: random.Random, count: int, *, collide: float = 0.0, absent: float = 0.0) -> list[New]:
    """Return records with ids, of which some come again, some after they have expired."""
    made: list[New] = []
    sent: list[tuple[bytes, dict[str, Any]]] = []
    salt = dice.randrange(2**40)
    for number in range(count):
        at = START_MS + number * STEP_MS - dice.choice((0, 0, 0, 700, 5_000))
        event: dict[str, Any] = {"id": f"id {salt} {number}", "user": f"user {number % 11}", "n": number}
        key = b"user %d" % (number % 11)
        if sent and dice.random() < 0.2:
            key, event = dice.choice(sent[-dice.choice((3, 50, 1000)) :])
            if dice.random() < collide:
                event = {**event, "n": number, "user": "somebody else"}
        sent.append((key, event))
        value: bytes | None = json.dumps(event).encode()
        if dice.random() < 0.02:
            value = dice.choice(_FAULTY_VALUES)
        if dice.random() < absent:
            # The same in all, times included: which of those in the clean topic is it?
            key, value, at = b"nobody", b'{"user": "nobody"}', START_MS + number // 20 * 20 * STEP_MS
        made.append(New(key, value, (("h", b"1"),), at))
    return made


def _collision(action: str, **more: Any) -> FingerprintRules:
    return FingerprintRules(ID, "1m", fingerprint={"of": "value"}, on_collision=action, **more)


def _ids(collide: float = 0.0, absent: float = 0.0) -> Callable[[random.Random, int], list[New]]:
    return lambda dice, count: identified(dice, count, collide=collide, absent=absent)


def _numbers(*, scopes: int = 0, in_value: bool = False) -> Callable[[random.Random, int], list[New]]:
    return lambda dice, count: numbered(dice, count, scopes=scopes, in_value=in_value)


STREAMS = (
    Stream("scopes", Rules("key", SEQ_HEADER, EPOCH_HEADER, 4), _numbers(scopes=SCOPES), reset=0.6),
    Stream(
        "values", Rules(sequence={"from": "value", "pointer": "/seq"}), _numbers(in_value=True), removed=0.3
    ),
    Stream("unreceipted", Rules(), _numbers(), receipts=False),
    Stream("ids", IdRules(ID, "1m"), _ids(), reset=0.4),
    Stream("refreshed", IdRules(ID, "1m", refresh=True), _ids(), removed=0.3),
    Stream("unjudged", IdRules(ID, "1m", on_missing="pass"), _ids(absent=0.1), reset=0.5),
    Stream("passing", _collision("pass"), _ids(0.3)),
    Stream("tagged", _collision("tag"), _ids(0.3), removed=0.3),
    Stream("renamed", _collision("rename", rename={"to": "/id"}), _ids(0.3), reset=0.5),
    Stream("quarantined", _collision("quarantine"), _ids(0.3), reset=0.7),
    Stream("dropped", _collision("drop"), _ids(0.3)),
    Stream("compacted", IdRules(ID, "1m"), _ids(), compacted=True),
    Stream("routed", RoutedRules(ID, "1d"), _ids()),
)
