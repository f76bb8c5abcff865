"""What do ids do that somebody has chosen who knows the code, but not the secret?

``python -m benchmarks.chosen_ids [MILLIONS]``: of sixteen times as many ids those are taken that all lie in one
sixteenth of the buckets where the hash has no secret, and that is what they are for: against an index without
one they work, which is shown with a tenth of them. Then they are put into an index and into Bloom filters whose
hash has a secret, and so are random ids, which have to come out the same. CPU nanoseconds are of this thread.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.ids import CHUNK, DAY_MS, HOUR_MS, Clock, ids_with
from processor.engine.bytes.siphash import KEY_BYTES, siphash128, words_of_key
from processor.engine.ids.block import Confirmed, Pages
from processor.engine.ids.bloom.bits import NOWHERE
from processor.engine.ids.bloom.window import BloomWindow
from processor.engine.ids.exact import hash_table
from processor.engine.ids.exact.index import ExactIndex
from processor.engine.jit import kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

MILLION = 1_000_000
SHARE = 16
HOME = np.uint64(1023)
"""The bits of the first word that say which bucket of an extent is an id's home."""
RATE = 1e-3
"""What filters are promised here: at 1e-9 ten million look-ups show nothing but the grossest mistake."""


@kernel
def hashes(numbers: NDArray[np.int64], key: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the hashes of ids of eight bytes, uint64[n, 2]."""
    out = np.empty((numbers.size, 2), np.uint64)
    data = np.empty(8, np.uint8)
    for k in range(numbers.size):
        for byte in range(8):
            data[byte] = np.uint8((numbers[k] >> (8 * byte)) & 255)
        out[k, 0], out[k, 1] = siphash128(data, 0, 8, key)
    return out


def chosen(count: int) -> NDArray[np.int64]:
    """Return ids that meet where the hash has no secret, int64[count]."""
    found: list[NDArray[np.int64]] = []
    start = have = 0
    while have < count:
        numbers = np.arange(start, start + MILLION)
        meeting = numbers[hashes(numbers, words_of_key(bytes(KEY_BYTES)))[:, 0] & HOME < HOME // SHARE + 1]
        found.append(meeting)
        have += meeting.size
        start += MILLION
    return np.concatenate(found)[:count]


def exact(what: str, numbers: NDArray[np.int64], secret: bytes) -> None:
    """Judge ids that are all new, and say what that took and how far they lie from their homes."""
    index, clock, key = ExactIndex(HOUR_MS, refresh=False), Clock(), words_of_key(secret)
    others = 0
    for start in range(0, numbers.size, CHUNK):
        ids = ids_with(hashes(numbers[start : start + CHUNK], key))
        rows = ids.fault.size
        zero = np.zeros(rows, np.int64)
        with clock:
            wanted = index.look_up(ids, zero)
            # Whoever is a candidate is another id, for all are new.
            count = wanted.row.size
            found = Confirmed(np.zeros((count, 2), np.uint64), wanted.number * 0, wanted.number * 0)
            judged = index.judge(ids, zero, zero, wanted, found)
            pages = index.staged().first + np.arange(0, rows, 180)
            index.commit(Pages(pages, pages * 0, pages[:0]), 0)
        others += count
        assert not judged.verdict.any()  # noqa: S101 - a benchmark of wrong verdicts says nothing
    slots, meta = index._slots, index._meta  # noqa: SLF001 - nobody else asks how far ids lie from home
    taken = slots[: int(meta[hash_table.EXTENTS] * meta[hash_table.BUCKETS]) * hash_table.LINE]
    hops = (taken[taken != 0] >> np.uint64(32)) & np.uint64(15)
    clock.say(f"exact, {what}", numbers.size)
    print(
        f"{'':<8}{index.size_bytes / numbers.size:.1f} B an id, {hops.mean():.3f} buckets from home in the "
        f"mean and {hops.max()} at most, {others:,} candidates that were another id"
    )


def bloom(what: str, numbers: NDArray[np.int64], secret: bytes) -> None:
    """Put the first half into eight filters, and look the second half up."""
    half, key = numbers.size // 2, words_of_key(secret)
    window = BloomWindow(7 * DAY_MS, DAY_MS, half // 8, RATE, confirm=False)
    for day in range(8):
        some = hashes(numbers[day * (half // 8) : (day + 1) * (half // 8)], key)
        window.restore(some, np.full(len(some), day * DAY_MS), 0)
    window.commit(7 * DAY_MS)
    wrong = 0
    for start in range(half, numbers.size, CHUNK):
        ids = ids_with(hashes(numbers[start : start + CHUNK], key))
        wrong += int((window.look_up(ids, np.full(ids.fault.size, 7 * DAY_MS)) != NOWHERE).sum())
    tried = numbers.size - half
    print(
        f"bloom, {what}: {wrong:,} of {tried:,} are false positives, {wrong / tried:.2e}; promised {RATE:.0e}"
    )


def main(millions: int) -> None:
    """Compare chosen ids with random ones, under a secret."""
    secret = os.urandom(KEY_BYTES)
    picked = chosen(millions * MILLION)
    print(f"{picked.size:,} ids chosen of {picked[-1] + 1:,}")
    random = np.random.default_rng(1).integers(0, 2**62, picked.size)
    exact("compiling", random[:CHUNK], secret)
    few = max(CHUNK, picked.size // 10)
    exact("random ids, a tenth, with a secret", random[:few], secret)
    exact("chosen ids, a tenth, without a secret", picked[:few], bytes(KEY_BYTES))
    exact("random ids, with a secret", random, secret)
    exact("chosen ids, with a secret", picked, secret)
    bloom("random ids, with a secret", random, secret)
    bloom("chosen ids, with a secret", picked, secret)


if __name__ == "__main__":
    main(*[int(text) for text in sys.argv[1:]] or [10])
