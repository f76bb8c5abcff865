"""Holds the answer to what became of one record.

Pure: `processor.inspection.explain.explainer` fills it; sentence, table and JSON are made of it. What stands in
records (keys, values, ids, headers) is in `ShownRecord` and `JudgedBy` alone, so that it can be left out.
"""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from processor.errors import EXIT_DONE, EXIT_FAILED, EXIT_VIOLATION

if TYPE_CHECKING:
    from processor.kafka.offsets import Bounds
    from processor.wire.quarantine import QuarantineNote
    from processor.wire.receipt_values import Epoch, ReceiptValue, RecordRef

_PLACES = ("source", "clean", "verdict", "receipt", "quarantine")
MOST_SHOWN_BYTES = 4096
"""Of a key or a value, also for programs: `seqmark read` prints whole records."""


class Outcome(StrEnum):
    """What can have become of a position in a source."""

    PASSED = "passed"
    DUPLICATE = "duplicate"
    LATE = "late"
    COLLISION = "collision"
    """Its id had passed with other content; ``grounds.action`` says what was done."""
    QUARANTINED = "quarantined"
    PENDING = "pending"
    """Nobody has judged it yet."""
    SKIPPED = "skipped"
    """The state begins behind it: nobody will judge it."""
    NO_RECORD = "no_record"
    """No record is at this offset: a transaction's end, an aborted record, one that compaction removed."""
    NOT_RETAINED = "not_retained"
    NOT_THERE_YET = "not_there_yet"
    """The partition ends before it."""
    FOREIGN = "foreign"
    """It is a receipt, or a copy in quarantine, of a pipeline that does not write there by the config."""
    CONTRADICTION = "contradiction"
    """The topics do not hold what the rules say."""


@dataclass(frozen=True)
class ShownRecord:
    """A record, as far as it is shown; key and value whole, headers with bytes for names."""

    ref: RecordRef
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...] = ()

    def as_json(self, *, contents: bool = True) -> dict[str, Any]:
        """Return it as programs read it; without ``contents`` only where it is, and when it was."""
        shown: dict[str, Any] = {**self.ref.as_json(), "timestamp": self.timestamp_ms}
        if contents:
            shown |= {
                "key": _text(self.key),
                "value": _text(self.value),
                "headers": [[_text(name), _text(content)] for name, content in self.headers],
            }
        return shown


@dataclass(frozen=True)
class JudgedBy:
    """What a record was judged by; None: the mode has no such thing, or it is not known.

    Attributes:
        sequence: Its own.
        watermark: As it stood before it.
        epoch: Its own.
        scope: The key or header that scopes it, as bytes.
        id: Its parts, as receipts write them.
        fingerprint: 16 hex digits.
        owner_fingerprint: Of the record that had passed.
        action: What became of a collision.
        new_id: What it was renamed to.
        code: Why it is in quarantine.
        detail: The same for people.
    """

    sequence: int | None = None
    watermark: int | None = None
    epoch: Epoch | None = None
    scope: bytes | None = None
    id: list[Any] | None = None
    fingerprint: str | None = None
    owner_fingerprint: str | None = None
    action: str | None = None
    new_id: str | None = None
    code: str | None = None
    detail: str | None = None

    @classmethod
    def of(cls, entry: ReceiptValue | QuarantineNote) -> JudgedBy:
        """Return what a receipt, or a copy in quarantine, says of it."""
        said = vars(entry)
        return cls(**{each.name: said[each.name] for each in fields(cls) if each.name in said})

    def as_json(self, *, contents: bool = True) -> dict[str, Any]:
        """Return what is known; without ``contents`` nothing that came out of records."""
        shown = {name: value for name, value in vars(self).items() if value is not None}
        if not contents:
            return {name: shown[name] for name in ("action", "code") if name in shown}
        if self.scope is not None:
            shown["scope"] = _text(self.scope)
        return shown


@dataclass(frozen=True)
class PassedOwner:
    """The record that had passed, and that this one was compared with.

    Attributes:
        ref: Where it stands in the source; None: that is not known, or a backfill brought it.
        backfill: The run that brought it.
        record: None: it is not retained any more, or was not found.
        clean: Where it stands in the clean topic.
        differs: JSON pointers, or ``key``, ``value`` and ``header NAME``, in which both records differ;
        empty: same
            bytes; None: they were not compared.
        note: Why something is missing here.
    """

    ref: RecordRef | None = None
    backfill: str | None = None
    record: ShownRecord | None = None
    clean: RecordRef | None = None
    differs: tuple[str, ...] | None = None
    note: str = ""

    def as_json(self, *, contents: bool = True) -> dict[str, Any]:
        """Return it as programs read it."""
        shown: dict[str, Any] = {} if self.ref is None else self.ref.as_json()
        if self.backfill is not None:
            shown["backfill"] = self.backfill
        if self.record is not None:
            shown |= self.record.as_json(contents=contents)
        shown["clean"] = None if self.clean is None else self.clean.as_json()
        shown["differs"] = None if self.differs is None or not contents else list(self.differs)
        if self.note:
            shown["note"] = self.note
        return shown


@dataclass(frozen=True)
class EarlierAnswer:
    """What an earlier run over the same source had decided, before a reset."""

    outcome: Outcome
    ref: RecordRef
    """Its receipt, or where it stands in quarantine or in the clean topic."""

    def as_json(self) -> dict[str, Any]:
        """Return it as programs read it."""
        return {"outcome": self.outcome.value, **self.ref.as_json()}


@dataclass
class Story:
    """What became of one record.

    Attributes:
        asked: The position that was asked for.
        role: What its topic is: source, sink, duplicates or quarantine.
        pipeline: Its name.
        outcome: What became of it.
        source: The position in the source; None: it could not be traced back.
        record: As it stands in the source; None: it is not there, or not any more.
        mode: By which rules: watermark or insert-id.
        wraps: Whether its sequences begin again.
        grounds: What it was judged by.
        owner: The record that had passed, of a duplicate, late or colliding one.
        observed: It was judged, and passed all the same: the pipeline observes.
        clock_ms: What the partition's clock read when the id was remembered; None: not known.
        expires_ms: From which reading of the clock on its id passes again; None: not known.
        expires_least: ``expires_ms`` is the earliest that it can be.
        clean: Where it stands in the clean topic; of a pipeline of verdicts alone: in the source.
        verdict: Where the verdict record stands that says so, of such a pipeline.
        receipt: Where its receipt, or its note, stands.
        quarantine: Where it stands in quarantine.
        position: How far the source partition has been judged: the first offset that is not.
        earliest: The first offset that is still retained of what was asked for, and its time in ms.
        earlier: What runs before a reset had decided, newest first.
        elsewhere: By kind of output (sink, duplicates, quarantine): the topic that something of it was written
            to, as a noun, where that is not the one of now.
        certificate: Whether the last certificate covers it, in words; None: nobody looked.
        why: Of outcomes without a verdict: the reason, as a clause.
        sentence: What became of it, in one; `processor.inspection.explain.sentence` makes it.
        bare_sentence: The same without anything that came out of records.
        notes: What else a person should know.
        problems: Where the topics contradict the rules.
    """

    asked: RecordRef
    role: str
    pipeline: str
    outcome: Outcome = Outcome.PENDING
    source: RecordRef | None = None
    record: ShownRecord | None = None
    mode: str = ""
    wraps: bool = False
    grounds: JudgedBy = field(default_factory=JudgedBy)
    owner: PassedOwner | None = None
    observed: bool = False
    clock_ms: int | None = None
    expires_ms: int | None = None
    expires_least: bool = False
    clean: RecordRef | None = None
    verdict: RecordRef | None = None
    receipt: RecordRef | None = None
    quarantine: RecordRef | None = None
    position: int | None = None
    earliest: tuple[int, int | None] | None = None
    earlier: list[EarlierAnswer] = field(default_factory=list)
    elsewhere: dict[str, str] = field(default_factory=dict)
    certificate: str | None = None
    why: str = ""
    sentence: str = ""
    bare_sentence: str = ""
    notes: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """0 answered; 1 the record is not there, or not any more; 3 the topics contradict the rules."""
        if self.problems or self.outcome is Outcome.CONTRADICTION:
            return EXIT_VIOLATION
        if self.outcome in {Outcome.NOT_RETAINED, Outcome.NOT_THERE_YET}:
            return EXIT_FAILED
        return EXIT_DONE

    def all_elsewhere(self) -> str:
        """Return the topics that something of it was written to, where they are not those of now."""
        return " and ".join(self.elsewhere[each] for each in ("sink", "duplicates") if each in self.elsewhere)

    def is_to_come(self, ref: RecordRef, limits: Bounds) -> bool:
        """Whether a position is not to be read yet; this says why then."""
        if ref.offset >= limits.end:
            self.outcome = Outcome.NOT_THERE_YET
            self.why = f"{ref.topic}:{ref.partition} ends before offset {limits.end}"
        elif ref.offset >= limits.stable:
            self.why = "a transaction is open there, and its end decides whether there is a record at all"
        return ref.offset >= limits.stable

    def contradict(self, problem: str) -> None:
        """Note that the topics do not hold what the rules say."""
        self.outcome = Outcome.CONTRADICTION
        self.problems.append(problem)

    def as_json(self, *, contents: bool = True) -> dict[str, Any]:
        """Return one object, for programs.

        Args:
            contents: Whether keys, values, headers, ids and sequences may be in it.
        """
        places = {name: getattr(self, name) for name in _PLACES}
        return {
            "asked": {**self.asked.as_json(), "role": self.role},
            "pipeline": self.pipeline,
            "outcome": self.outcome.value,
            "sentence": self.sentence if contents else self.bare_sentence,
            **{name: None if ref is None else ref.as_json() for name, ref in places.items()},
            "record": None if self.record is None else self.record.as_json(contents=contents),
            "mode": self.mode,
            "grounds": self.grounds.as_json(contents=contents),
            "owner": None if self.owner is None else self.owner.as_json(contents=contents),
            "observed": self.observed,
            "clock": self.clock_ms,
            "expires_at": self.expires_ms,
            "expires_at_least": self.expires_least,
            "position": self.position,
            "earliest": None
            if self.earliest is None
            else {"offset": self.earliest[0], "timestamp": self.earliest[1]},
            "earlier": [each.as_json() for each in self.earlier],
            "elsewhere": self.elsewhere,
            "certificate": self.certificate,
            "notes": self.notes,
            "problems": self.problems,
        }


def _text(raw: bytes | None) -> Any:
    """Return bytes as text, or what is no UTF-8 in base64; cut, and saying so, where they are many."""
    if raw is None:
        return None
    some = raw[:MOST_SHOWN_BYTES]
    try:
        text: Any = some.decode()
    except UnicodeDecodeError as error:
        # A character may have been cut.
        cut = len(some) < len(raw) and error.start >= len(some) - 3
        text = some[: error.start].decode() if cut else {"base64": b64encode(some).decode()}
    return text if len(some) == len(raw) else {"cut": text, "bytes": len(raw)}
