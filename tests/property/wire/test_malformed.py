"""Malformed input, 100,000 cases: the right records or a clear error, never a crash, never a wrong read.

Each case is a real chunk of which one batch was damaged: flipped bits, cuts, forged lengths and counts, numbers
that do not end, noise; with a CRC that fits and without. See tests/support/wire/malformed.py.
"""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

from processor.engine.extract.sequence import HeaderSequence, SequenceFormat
from processor.wire.decode import UndecodableError
from tests.support.wire import batches, malformed

CHUNKS, SECTIONS = 60_000, 40_000
WATCHED = 3_000
"""As plain Python a case takes milliseconds."""
ROOT = Path(__file__).parents[3]


@pytest.fixture
def seed() -> int:
    """Return a seed, anew for each run; SEQMARK_TEST_SEED repeats one."""
    chosen = int(os.environ.get("SEQMARK_TEST_SEED", random.SystemRandom().randrange(2**32)))
    print(f"SEQMARK_TEST_SEED={chosen}")  # noqa: T201 - pytest shows it where the test fails
    return chosen


@pytest.mark.core
def test_of_damaged_batches_the_decoder_reads_what_a_naive_reader_reads_and_refuses_what_it_refuses(
    seed: int,
) -> None:
    counts = malformed.compare_chunks(seed, CHUNKS)
    assert min(counts) > CHUNKS / 10, "the damage is too mild, or too strong, to say anything"


def test_scanning_damaged_records_never_depends_on_bytes_outside_of_them(seed: int) -> None:
    counts = malformed.compare_guards(seed, SECTIONS)
    assert min(counts) > SECTIONS / 10


def test_as_plain_python_the_kernels_read_nothing_outside_and_say_the_same(seed: int) -> None:
    env = {**os.environ, "NUMBA_DISABLE_JIT": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tests.support.wire.malformed", str(WATCHED), str(seed)]
    run = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, timeout=500, check=False)
    assert run.returncode == 0, run.stderr[-3_000:]
    assert re.findall(r"^\w+", run.stdout, re.MULTILINE) == ["watched", "compared"]


def test_what_damaged_batches_are_read_as_can_be_judged_without_another_exception(seed: int) -> None:
    extractors = [HeaderSequence(b"seq", form) for form in SequenceFormat]
    for chunk in malformed.chunks(seed, 3_000):
        try:
            for piece in batches.DECODER.pieces(chunk):
                for extractor in extractors:
                    sequence, fault = extractor.extract(piece.columns)
                    assert len(sequence) == len(fault) == len(piece.columns)
        except UndecodableError:
            continue
