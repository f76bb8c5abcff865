"""Compiled kernels and the same functions as plain Python say the same.

The properties that hold for compiled kernels are checked again in a process with ``NUMBA_DISABLE_JIT=1``: what
holds for both is not an accident of compiling, and the kernels can be debugged as Python.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PROPERTIES = {
    "watermarks": (
        "property/judges/test_watermark_model.py",
        "property/judges/test_scopes_model.py",
        "property/judges/test_dropped.py",
        "property/judges/test_real_numbers_model.py",
        "property/verify/test_certificate.py",
    ),
    "reading": (
        "property/engine/test_extract_model.py",
        "property/engine/test_lenient_json.py",
        "unit/engine/test_ids.py",
        "unit/engine/test_new_ids.py",
        # test_json_differential.py does the same by itself, with guarded bytes.
        "unit/engine/test_json_scan.py",
    ),
    "wire": (
        "property/wire/test_batches.py",
        "property/wire/test_lz4.py",
        "property/wire/test_lz4_records.py",
        "property/wire/test_repartition.py",
        "unit/wire/test_collision_edits.py",
    ),
    "ids": (
        "property/engine/test_insert_id_model.py",
        "property/engine/test_bulk_restore.py",
        "unit/engine/test_id_block.py",
    ),
    "events": (
        "property/engine/test_events.py",
        "property/engine/test_registers.py",
        "property/spark_sink/test_partials.py",
    ),
    "rest": (
        "property/engine/rest/test_row_ids.py",
        "property/engine/rest/test_judge_model.py",
        "property/engine/rest/test_probe.py",
    ),
}


@pytest.mark.core
@pytest.mark.drawn("kernels")
@pytest.mark.parametrize("kernels", PROPERTIES)
def test_the_properties_of_the_kernels_hold_as_plain_python_too(kernels: str) -> None:
    files = [f"tests/{name}" for name in PROPERTIES[kernels]]
    # Integers wrap in both; plain numpy warns of it, which is no mistake here.
    # Limits and transactions are not decided in kernels, and slow without compiling, as many checksums are.
    options = [
        "-q",
        "-k",
        "not limit and not transactions and not full and not 24_bytes and not flipped and not many_ids",
        "-W",
        "ignore::RuntimeWarning",
        "-p",
        "no:cacheprovider",
    ]
    env = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    command = [sys.executable, "-m", "pytest", *options, *files]
    run = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=570, check=False)
    assert run.returncode == 0, run.stdout[-3_000:]
