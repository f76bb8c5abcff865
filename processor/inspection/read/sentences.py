"""Says in a sentence what a receipt, a note of a collision or a quarantined record tells.

What stands in a topic may have been written by anybody: what lacks a field has no sentence, and nothing here is
escaped for a terminal yet.
"""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import orjson

from processor.wire.quarantine import is_observed, said_by
from processor.wire.receipt_values import receipt_fields
from processor.wire.receipts import OBSERVED
from schemas.redriven import is_note
from schemas.verdicts.record import FAULTS, CorruptVerdictError, VerdictRecord

if TYPE_CHECKING:
    from collections.abc import Sequence

    from processor.wire.quarantine import Header

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_OFFSETS_SHOWN = 5
_ID_CHARACTERS = 100
"""Of an id in a sentence; the receipt has up to 4 KiB of each part."""
_DONE = {
    "pass": "it passed as it came",
    "tag": "it passed with the header seqmark.collision",
    "rename": "it passed",
    "quarantine": "it is in quarantine",
    "drop": "it was dropped",
}
_WOULD_BE_DONE = {
    "pass": "it passed as it came",
    "tag": "it passed as it came, observed, and would have got the header seqmark.collision",
    "rename": "it passed as it came, observed, and would have passed",
    "quarantine": "it passed, observed, and would have gone into quarantine",
    "drop": "it passed, observed, and would have been dropped",
}


def time_text(timestamp_ms: int) -> str:
    """Return a time as ``2026-03-01T06:00:00.123Z``; ``-`` where there is none, or none of this calendar."""
    try:
        if timestamp_ms < 0:
            return "-"
        time = _EPOCH + timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        return "-"
    return time.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def epoch_text(epoch: object) -> str:
    """Return an epoch as a receipt has it, shortened."""
    return _cut(orjson.dumps(epoch).decode())


def begun(epoch: object) -> str:
    """Return what ends an epoch: a number a higher one, any other another one."""
    return "a higher one" if isinstance(epoch, int) else "another one"


def late_why(behind: str, over: str, epoch: object, *, above: bool, wraps: bool) -> str:
    """Return why a record was late, of two clauses: its number was behind, or its epoch was over.

    Args:
        behind: The one.
        over: The other.
        epoch: Its own; None: there are none.
        above: Whether its number is above the watermark: it is the epoch then, unless numbers wrap.
        wraps: Whether they do. Below it is the number, unless they wrap or epochs have no order.
    """
    if epoch is None:
        return behind
    if above and not wraps:
        return over
    return f"{behind}, or {over}" if wraps or not isinstance(epoch, int) else behind


def receipt_sentence(value: bytes | None, *, wraps: bool = False) -> str | None:
    """Return what a record of a duplicates topic says; None: it is no receipt.

    Args:
        value: Its value.
        wraps: Whether sequences may begin again.
    """
    if (receipt := receipt_fields(value)) is None:
        return None
    try:
        verdict = receipt["verdict"]
        judged = _judged(verdict, receipt, wraps)
        of = f"{receipt['topic']}:{receipt['partition']}:{receipt['offset']}"
        name = f", id {_id(receipt['id'])}" if "id" in receipt else ""
    except (KeyError, TypeError, AttributeError):
        return None
    return f"{judged} ({of}{name})"


def quarantine_sentence(headers: Sequence[Header]) -> str | None:
    """Return why a record of a quarantine topic is there; None: it does not say so as a worker does."""
    if is_note(headers):
        at = (headers[-1][1] or b"").decode(errors="replace")
        return f"says which records before it were judged again, at {at}"
    if (said := said_by(headers)) is None:
        return None
    code, detail, source = said
    what = "would have been quarantined" if is_observed(headers) else "quarantined"
    return f"{what}: {code}: {detail}, came from {source}"


def verdict_sentence(value: bytes | None) -> str | None:
    """Return what a record of a topic of verdicts says; None: it is none."""
    try:
        found = VerdictRecord.decode(value)
    except CorruptVerdictError:
        return None
    if found.base == found.end:
        return f"the ranges begin at offset {found.base}"
    begins = ", the ranges begin here" if found.begins else ""
    skipped = f", skipped: {_offsets(found.skipped.tolist())}" if found.skipped.size else ""
    aside = Counter(FAULTS[code] for code in found.faults.tolist())
    faults = f"; in quarantine: {', '.join(f'{n} {code}' for code, n in aside.items())}" if aside else ""
    return (
        f"offsets {found.base} to {found.end - 1}{begins}: of {found.sums.records} records {found.passed} pass"
        f"{skipped}{faults}"
    )


def _offsets(some: list[int]) -> str:
    """Return the first of some offsets, and how many more there are."""
    shown = ", ".join(map(str, some[:_OFFSETS_SHOWN]))
    return shown if len(some) <= _OFFSETS_SHOWN else f"{shown} and {len(some) - _OFFSETS_SHOWN} more"


def _judged(verdict: str, receipt: dict[str, Any], wraps: bool) -> str:  # noqa: FBT001 - handed on
    if verdict == "collision":
        return _collision(receipt)
    if receipt["mode"] == "watermark":
        return _by_sequence(verdict, receipt, wraps)
    if (owner := receipt.get("owner")) is None:
        return f"{_dropped(receipt)}: duplicate of a record inside the window, which one is not known"
    return f"{_dropped(receipt)}: duplicate of {_owner(owner)}, which passed{_again(receipt)}"


def _dropped(receipt: dict[str, Any]) -> str:
    return "would have been dropped" if receipt.get(OBSERVED) is True else "dropped"


def _by_sequence(verdict: str, receipt: dict[str, Any], wraps: bool) -> str:  # noqa: FBT001 - likewise
    sequence, watermark = receipt["sequence"], receipt["watermark"]
    dropped = _dropped(receipt)
    if verdict == "duplicate":
        if sequence == watermark:
            return f"{dropped}: duplicate: sequence {sequence} is the sequence watermark, it came before"
        return f"{dropped}: duplicate: sequence {sequence} came before (the sequence watermark is {watermark})"
    behind = f"sequence {sequence} is not above the sequence watermark {watermark}"
    epoch = receipt.get("epoch")
    over = f"epoch {epoch_text(epoch)} is over, {begun(epoch)} has begun"
    return f"{dropped}: late: {late_why(behind, over, epoch, above=sequence > watermark, wraps=wraps)}"


def _collision(receipt: dict[str, Any]) -> str:
    action = receipt["action"]
    done = (_WOULD_BE_DONE if receipt.get(OBSERVED) is True else _DONE).get(action, action)
    if "new_id" in receipt:
        done += f" with the new id {receipt['new_id']}"
    remembered = _again(receipt)
    return f"collision: {_owner(receipt['owner'])} passed with this id and other content; {done}{remembered}"


def _owner(owner: dict[str, Any]) -> str:
    if "backfill" in owner:
        return f"a record of backfill {owner['backfill']}"
    return f"{owner['topic']}:{owner['partition']}:{owner['offset']}"


def _again(receipt: dict[str, Any]) -> str:
    if "expires_at" not in receipt:
        return ""
    what = "this content" if receipt["verdict"] == "collision" else "its id"
    return f"; {what} passes again from {time_text(receipt['expires_at'])}"


def _id(parts: list[Any]) -> str:
    """Return an id as it stands in the receipt, shortened."""
    text = ", ".join(orjson.dumps(part).decode() for part in parts)
    return _cut(text)


def _cut(text: str) -> str:
    return text if len(text) <= _ID_CHARACTERS else f"{text[: _ID_CHARACTERS - 1]}…"
