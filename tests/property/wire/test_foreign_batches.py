"""Batches that Kafka's Java client and librdkafka wrote, every codec, against the records they were given."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest

from processor.wire.encode import Encoder
from tests.support.wire import batches, vectors
from tests.support.wire.batches import HEADER, chunk, decoded
from tests.support.wire.vectors import CLIENTS, CODECS, FOLDER, Known, vector

if TYPE_CHECKING:
    from processor.wire.decode import Chunk

GROUPS = vectors.known()
RECORDS = [record for group in GROUPS for record in group]
ROOMY = 10_000_000

every_vector = pytest.mark.parametrize(
    ("client", "codec"), [(client, codec) for client in CLIENTS for codec in range(len(CODECS))]
)


def written(client: str, codec: int) -> Chunk:
    return chunk(vector(client, CODECS[codec]).read_bytes())


def plain(records: list[batches.Record]) -> list[Known]:
    return [Known(*record[1:]) for record in records]


def encoded(what: Chunk, *, drop_every: int) -> list[batches.Parsed]:
    """Encode without every n-th record (0: all stay) and read it by aiokafka's parser."""
    (piece,) = batches.DECODER.pieces(what)
    verdict = np.zeros(len(piece.columns), np.uint8)
    if drop_every:
        verdict[::drop_every] = 1
    made = Encoder().encode(piece, verdict, ROOMY)
    return batches.parsed(batch.build(1, 1, 1, transactional=True) for batch in made)


@every_vector
def test_the_vector_is_of_the_codec_and_the_batches_that_it_stands_for(client: str, codec: int) -> None:
    (piece,) = batches.DECODER.pieces(written(client, codec))
    counts = np.diff(piece.first_row).tolist()
    assert counts == [len(group) for group in GROUPS]
    header = HEADER.unpack_from(vector(client, CODECS[codec]).read_bytes())
    assert header[5] & 7 == codec


@every_vector
def test_its_records_are_those_that_the_client_was_given(client: str, codec: int) -> None:
    records, position = decoded(written(client, codec))
    assert plain(records) == RECORDS
    assert [record.offset for record in records] == list(range(position))


@every_vector
def test_forwarded_and_joined_they_are_the_same_records(client: str, codec: int) -> None:
    out = encoded(written(client, codec), drop_every=0)
    assert all(batch.crc_is_valid for batch in out)
    assert [record for batch in out for record in plain(batch.records)] == RECORDS


@every_vector
@pytest.mark.parametrize("drop_every", [2, 7])
def test_written_again_without_some_they_are_the_others(client: str, codec: int, drop_every: int) -> None:
    out = encoded(written(client, codec), drop_every=drop_every)
    codecs = {batch.batch.compression_type for batch in out}
    assert codecs in ({codec}, {batches.NONE, codec})  # librdkafka leaves what does not shrink as it is
    found = [record for batch in out for record in plain(batch.records)]
    assert found == [record for index, record in enumerate(RECORDS) if index % drop_every]


def test_of_librdkafkas_transactions_the_committed_ones_are_read() -> None:
    aborted = [tuple(entry) for entry in json.loads((FOLDER / "aborted.json").read_text("ascii"))]
    raw = vector("librdkafka", "transactions").read_bytes()
    assert len(aborted) == len(GROUPS)
    records, position = decoded(chunk(raw, aborted=aborted))
    assert plain(records) == RECORDS
    assert position == 2 * (len(RECORDS) + len(GROUPS))  # a marker ends each


def test_without_the_brokers_list_the_aborted_ones_are_read_as_well() -> None:
    raw = vector("librdkafka", "transactions").read_bytes()
    assert plain(decoded(chunk(raw))[0]) == [record for group in GROUPS for record in group + group]
