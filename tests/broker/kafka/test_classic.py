"""The field's classic example comes out right.

Three incidents A, B and C share one partition; their updates carry ids 1 to 11. After a downtime the producer
sends 4 to 7 again, as it does not know whether they arrived. Eleven must come out, in order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.worker.process import contents, deduplicated, new, new_config, produce, read_topic, run_drain

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.kafka.broker import Broker

pytestmark = pytest.mark.broker

INCIDENTS = {
    number: incident
    for incident, numbers in {"A": (1, 4, 6, 10), "B": (2, 5, 8), "C": (3, 7, 9, 11)}.items()
    for number in numbers
}


@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
def test_four_updates_sent_again_after_a_downtime_are_dropped(
    broker: Broker, tmp_path: Path, guarantee: str
) -> None:
    config = new_config(broker.bootstrap_servers, tmp_path, guarantee=guarantee)
    sent = [*range(1, 8), *range(4, 8), *range(8, 12)]
    updates = [new(number, INCIDENTS[number].encode(), b"update %d" % number) for number in sent]
    produce(config.bootstrap_servers, config.source, updates[:7], updates[7:11], updates[11:])

    assert run_drain(config).code == 0

    clean = read_topic(config.bootstrap_servers, config.sink)
    assert [record.sequence for record in clean] == list(range(1, 12))
    assert contents(clean) == contents(deduplicated(read_topic(config.bootstrap_servers, config.source)))
