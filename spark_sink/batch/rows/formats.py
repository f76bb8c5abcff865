"""Tells by its name and its first bytes of which format an input file is."""

from __future__ import annotations

import gzip
import json
import zlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_ENDS = {
    "parquet": (".parquet", ".parq", ".pq"),
    "json": (".json", ".jsonl", ".ndjson", ".json.gz", ".jsonl.gz", ".ndjson.gz"),
}
_PARQUET = (b"PAR1", b"PARE")
_GZIP = b"\x1f\x8b"
_HEAD_BYTES = 1 << 16
"""Of a file, in which its first line begins, and ends where it is a whole array."""
_NO_JSON = (
    *_PARQUET,
    _GZIP,  # twice packed
    b"\x28\xb5\x2f\xfd",  # zstd
    b"\xfd7zXZ\x00",
    b"\x04\x22\x4d\x18",  # LZ4
    b"\xff\x06\x00\x00sNaPpY",
    b"BZh",
    b"PK\x03\x04",
    b"ORC",
    b"Obj\x01",  # Avro
    b"\xff\xfe",  # UTF-16
    b"\xfe\xff",
)
"""What other files begin with, whatever they are called."""


def is_of_format(file: Path, kind: str, *, named: bool) -> bool:
    """Return whether a file is one of a format, by its name or by its first bytes, and of no other."""
    named = named or file.name.lower().endswith(_ENDS[kind])
    if named and kind == "parquet":  # whose footer tells more
        return True
    with file.open("rb") as stream:
        head = stream.read(_HEAD_BYTES)
        if kind == "parquet":
            return head.startswith(_PARQUET)
        if head.startswith(_GZIP):
            stream.seek(0)
            try:
                head = gzip.GzipFile(fileobj=stream).read(_HEAD_BYTES)
            except (EOFError, zlib.error, gzip.BadGzipFile):
                return named  # the run says that it is cut
    head = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if head.startswith(_NO_JSON) or (head.startswith(b"[") and not _is_whole(head.partition(b"\n")[0])):
        return False
    return named or head.startswith(b"{")


def _is_whole(line: bytes) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True
