"""New ids are UUIDs that follow from secret, id and fingerprint, yesterday's and tomorrow's alike."""

from __future__ import annotations

import uuid

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from processor.engine.collision_edits import Renamer
from processor.engine.extract.parts import HeaderPart, KeyPart, ValuePart
from processor.engine.ids.new_ids import new_ids
from tests.support.judges import collisions as model

words = st.integers(0, 2**64 - 1)


def text(secret: bytes, low: int, high: int, fingerprint: int) -> str:
    hashes, fingerprints = np.array([[low, high]], np.uint64), np.array([fingerprint], np.uint64)
    return new_ids(secret, hashes, fingerprints).tobytes().decode()


@given(st.binary(min_size=16, max_size=16), words, words, words)
def test_a_new_id_is_the_siphash_of_id_and_fingerprint_with_the_bits_of_version_8(
    secret: bytes, low: int, high: int, fingerprint: int
) -> None:
    made = text(secret, low, high, fingerprint)
    hashed = low.to_bytes(8, "little") + high.to_bytes(8, "little")
    assert made == model.new_id(hashed, fingerprint, secret)
    assert (uuid.UUID(made).version, uuid.UUID(made).variant) == (8, uuid.RFC_4122)
    assert made == str(uuid.UUID(made)), "lower case, with its hyphens"


def test_a_new_id_is_what_it_was_yesterday() -> None:
    # These stand in sinks, and a replay has to write the same again. By `openssl mac SIPHASH`, over the layout
    # that `processor.engine.ids.new_ids` draws.
    secret = bytes(range(16))
    some = [(0, 0, 0), (1, 2, 3), (2**64 - 1, 0x0123456789ABCDEF, 0xFEDCBA9876543210)]
    hashes = np.array([each[:2] for each in some], np.uint64)
    fingerprints = np.array([each[2] for each in some], np.uint64)
    made = [row.tobytes().decode() for row in new_ids(secret, hashes, fingerprints)]
    assert made == YESTERDAY


YESTERDAY = [
    "5eb4ac29-d5cc-8efb-b13d-66f2d90c3a07",
    "2350648a-cce5-8de3-be20-853d8fc60adb",
    "860e76a0-86d4-817e-aef9-22ffcb3679c4",
]


@given(words, words, words, st.integers(0, 63))
def test_another_id_fingerprint_or_secret_makes_another_new_id(
    low: int, high: int, fingerprint: int, bit: int
) -> None:
    made = {
        text(bytes(16), low, high, fingerprint),
        text(bytes(16), low ^ 1 << bit, high, fingerprint),
        text(bytes(16), low, high ^ 1 << bit, fingerprint),
        text(bytes(16), low, high, fingerprint ^ 1 << bit),
        text(bytes(15) + b"\x01", low, high, fingerprint),
    }
    assert len(made) == 5


@pytest.mark.parametrize(
    ("to", "keep", "secret"),
    [
        (HeaderPart(b"other"), None, bytes(16)),
        (ValuePart("/other"), None, bytes(16)),
        (HeaderPart(b"id"), "", bytes(16)),
        (HeaderPart(b"id"), "kept", bytes(16)),
        (HeaderPart(b"id"), "/kept~2", bytes(16)),
        (HeaderPart(b"id"), None, bytes(15)),
    ],
)
def test_what_cannot_be_renamed_is_refused(to: HeaderPart | ValuePart, keep: str | None, secret: bytes) -> None:
    with pytest.raises(ValueError, match=r"list\.index|pointer|member|16 bytes|not in list"):
        Renamer([KeyPart(), HeaderPart(b"id")], to, keep, secret)
