"""Reads what a receipt says, strictly and within bounds, and says how two of them differ."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from processor.engine.batch.fingerprints import PARTS
from processor.wire.receipt_values import COLLISION, strict_fields
from processor.wire.receipts import OBSERVED

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MOST_JSON_BYTES = 64 * 1024
"""Of a receipt that has other bytes than expected: longer ones are not looked into, and are wrong. Most take
a few hundred bytes: the longest parts are names of at most 249, and ids."""
_MOST_SHOWN = 60
_CUT = {"id", "epoch"}
_FINGERPRINT, _CONTENT = re.compile("[0-9a-f]{16}"), re.compile("[0-9a-f]{32}")
"""The forms of what depends on the partition's secret."""


class ReceiptContent(NamedTuple):
    """What a receipt says: the fields of its value, or why it is none; and whether it left its key out.

    ``observed``: it says that its record has passed all the same; the fields are then those beside that.
    """

    mark: bytes
    fields: dict[str, Any] | None
    problem: str = ""
    keyless: bool = False
    observed: bool = False

    @property
    def word(self) -> str:
        """What people call it."""
        return "note" if (self.fields or {}).get("verdict") == COLLISION else "receipt"


def parsed(mark: bytes, data: NDArray[np.uint8], at: int, size: int, most_bytes: int) -> ReceiptContent:
    """Return what a receipt says, of ``size`` bytes at ``at``; ``mark`` is its record's fingerprint."""
    if size < 0:
        return ReceiptContent(mark, None, "it has no value")
    if size > most_bytes:
        return ReceiptContent(mark, None, f"its value takes {size:,} bytes")
    try:
        fields = strict_fields(data[at : at + size].tobytes())
    except (ValueError, RecursionError) as error:
        return ReceiptContent(mark, None, f"its value is not valid JSON: {str(error)[:_MOST_SHOWN]}")
    if not isinstance(fields, dict):
        return ReceiptContent(mark, None, "its value is no JSON object")
    return ReceiptContent(mark, fields)


def without_observed(receipt: ReceiptContent) -> ReceiptContent:
    """Return what a receipt says beside that its record has passed, observed."""
    if receipt.fields is None or receipt.fields.get(OBSERVED) is not True:
        return receipt
    fields = {name: said for name, said in receipt.fields.items() if name != OBSERVED}
    return receipt._replace(fields=fields, observed=True)


def differences(expected: ReceiptContent, found: ReceiptContent) -> list[str]:
    """Say what differs, with both values."""
    if expected.mark == found.mark:
        return []
    # Only what has a key can have lost it.
    keyless = found.keyless and expected.mark[PARTS["key"]] != found.mark[PARTS["key"]]
    wrong = [
        name
        for name in (("timestamp",) if keyless else ("timestamp", "key", "headers"))
        if expected.mark[PARTS[name]] != found.mark[PARTS[name]]
    ]
    said_wrong = [f"the record's {name} differs from what it must be" for name in wrong]
    if expected.mark[PARTS["value"]] == found.mark[PARTS["value"]]:
        return said_wrong
    if found.fields is None:
        return [*said_wrong, found.problem]
    assert expected.fields is not None  # noqa: S101 - our own kernel wrote it
    for name in [*expected.fields, *(found.fields.keys() - expected.fields.keys())]:
        right, said = _shown(expected.fields, name), _shown(found.fields, name)
        cut = name in _CUT and _cut(expected.fields.get(name), found.fields.get(name))
        if right != said and not cut:
            said_wrong.append(f"{name[:_MOST_SHOWN]} is {said}, must be {right}")
    return said_wrong


def public(fields: dict[str, Any]) -> dict[str, Any]:
    """Return what a receipt says, with nothing but its form of what depends on the partition's secret."""
    shown = dict(fields)
    for name in ("fingerprint", "owner_fingerprint"):
        if isinstance(said := fields.get(name), str) and _FINGERPRINT.fullmatch(said):
            shown[name] = _FINGERPRINT.pattern
    if isinstance(parts := fields.get("id"), list):
        shown["id"] = [{"content": _CONTENT.pattern} if _is_content(part) else part for part in parts]
    return shown


def _is_content(part: object) -> bool:
    said = part.get("content") if isinstance(part, dict) and len(part) == 1 else None
    return isinstance(said, str) and _CONTENT.fullmatch(said) is not None


def _cut(expected: object, found: object) -> bool:
    """Whether an id, or an epoch, which is a part by itself, is the expected one, cut to its digests."""
    if not isinstance(expected, list) and not isinstance(found, list):
        expected, found = [expected], [found]
    if not isinstance(expected, list) or not isinstance(found, list) or len(expected) != len(found):
        return False
    return all(
        json.dumps(said, sort_keys=True)
        in {json.dumps(each, sort_keys=True) for each in (right, _digest(right))}
        # A receipt of a version that cut nothing.
        or (_whole(said) is not None and _digest(said) == right)
        for right, said in zip(expected, found, strict=True)
    )


def _digest(part: object) -> object:
    """Return a part of an id as it looks when it is cut; what is no whole one as it is."""
    content = _whole(part)
    return part if content is None else {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}


def _whole(part: object) -> bytes | None:
    """Return the bytes of a part that is not cut; None: it is, or is none."""
    if isinstance(part, str):
        return part.encode(errors="surrogatepass")
    if not isinstance(part, dict) or part.keys() != {"base64"} or not isinstance(part["base64"], str):
        return None
    try:
        return base64.b64decode(part["base64"], validate=True)
    except ValueError:
        return None


def _shown(fields: dict[str, Any], name: str) -> str:
    """Return a field as JSON, so that 1, 1.0, "1" and true differ."""
    if name not in fields:
        return "missing"
    text = json.dumps(fields[name], sort_keys=True)
    return text if len(text) <= MOST_JSON_BYTES else text[:MOST_JSON_BYTES]
