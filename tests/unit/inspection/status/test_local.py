"""A page of metrics is believed where it is of a worker that has partitions of these pipelines."""

from __future__ import annotations

from processor.inspection.status.local import is_local, reading
from processor.ops.metrics import Metrics


def page(pipeline: str, assigned: int) -> str:
    metrics = Metrics()
    metrics.records.labels(pipeline, "pass").inc(30)
    metrics.records.labels(pipeline, "duplicate").inc(4)
    metrics.assigned.labels(pipeline).set(assigned)
    return metrics.render().decode()


def test_records_are_counted_over_all_verdicts() -> None:
    found = reading(page("clicks", 2), "127.0.0.1:6066", {"clicks", "orders"})

    assert found is not None
    assert found.records == {"clicks": 34}


def test_another_applications_worker_an_idle_one_and_another_program_are_not_believed() -> None:
    assert reading(page("other", 2), "", {"clicks"}) is None
    assert reading(page("clicks", 0), "", {"clicks"}) is None
    assert reading("<html>", "", {"clicks"}) is None
    assert reading("", "", {"clicks"}) is None


def test_addresses_of_this_machine_are_told_from_others() -> None:
    assert is_local("127.0.0.1")
    assert not is_local("192.0.2.1")  # documentation's own (RFC 5737)
    assert not is_local("no address")
