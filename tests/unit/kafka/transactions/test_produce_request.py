"""The bytes of a produce request are those that aiokafka's own encoding would send."""

from __future__ import annotations

from typing import Any

import pytest
from aiokafka.errors import IncompatibleBrokerVersion
from aiokafka.protocol.produce import ProduceRequest

from processor.kafka.transactions.producer import BatchesRequest


def sent(request: Any, version: int) -> bytes:
    """What a connection would send behind the header, to a broker that knows versions up to this one."""
    data: bytes = request.prepare({0: (0, version)}).encode()
    return data


@pytest.mark.parametrize("version", range(3, 9))
@pytest.mark.parametrize("transactional_id", [None, "app-p-0-of-4", "\u00e9"])
@pytest.mark.parametrize(
    "topics",
    [
        [],
        [("clean", [(0, (b"header", b"payload"))])],
        [
            ("clean", [(3, (b"a", memoryview(b"bcd"))), (1, (bytearray(b"header"), b""))]),
            ("\u00fcbrig", [(0, (b"x" * 70_000,))]),
            ("none", []),
        ],
    ],
    ids=["nothing", "one", "several"],
)
def test_all_versions_are_as_aiokafka_encodes_them(
    version: int, transactional_id: str | None, topics: Any
) -> None:
    whole = [(topic, [(n, b"".join(parts)) for n, parts in some]) for topic, some in topics]
    expected = sent(ProduceRequest(transactional_id, -1, 24_000, whole), version)
    assert sent(BatchesRequest(transactional_id, -1, 24_000, topics), version) == expected


def test_a_broker_that_takes_no_batches_is_refused() -> None:
    with pytest.raises(IncompatibleBrokerVersion, match="v3 or later"):
        sent(BatchesRequest(None, -1, 1, []), 2)


def test_what_a_log_would_say_of_it_has_no_batches_in_it() -> None:
    request = BatchesRequest("id", -1, 1, [("clean", [(0, (b"secret",))])])
    assert "secret" not in repr(request.prepare({0: (0, 7)}))
