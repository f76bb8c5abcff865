"""Is the truth file what the contract says, and whole at any time?"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest

from processor.generator import truth
from processor.generator.truth import Truth

if TYPE_CHECKING:
    from pathlib import Path


def column(offset: int, count: int) -> Truth:
    kind = np.arange(count, dtype=np.uint8) % 4
    fault = (np.arange(count) == 4).astype(np.uint8)
    return Truth(np.arange(offset, offset + count), (kind == 0) & (fault == 0), kind, fault)


def test_a_line_is_as_the_contract_says(tmp_path: Path) -> None:
    truth.write(tmp_path / "t.jsonl", [column(7, 5)])
    lines = [json.loads(line) for line in (tmp_path / "t.jsonl").read_text().splitlines()]
    assert lines == [
        {"partition": 0, "offset": 7, "passes": True, "kind": "first"},
        {"partition": 0, "offset": 8, "passes": False, "kind": "resend"},
        {"partition": 0, "offset": 9, "passes": False, "kind": "tail"},
        {"partition": 0, "offset": 10, "passes": False, "kind": "late"},
        {
            "partition": 0,
            "offset": 11,
            "passes": False,
            "kind": "first",
            "quarantine": "header_missing",
        },
    ]


def test_every_row_of_every_partition_has_its_line_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(truth, "_LINES_AT_ONCE", 7)
    written = [column(0, 9), column(5, 0), column(3, 40)]
    truth.write(tmp_path / "sub" / "t.jsonl", written)
    lines = [json.loads(line) for line in (tmp_path / "sub" / "t.jsonl").read_text().splitlines()]
    assert [(line["partition"], line["offset"], line["passes"]) for line in lines] == [
        (partition, *row)
        for partition, each in enumerate(written)
        for row in zip(each.offset.tolist(), each.passes.tolist(), strict=True)
    ]


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    truth.write(path, [column(0, 3)])
    before = path.read_bytes()
    broken = Truth(np.arange(2), np.ones(2, np.bool_), np.zeros(1, np.uint8), np.zeros(2, np.uint8))
    with pytest.raises(ValueError, match="shorter"):
        truth.write(path, [column(0, 3), broken])
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
