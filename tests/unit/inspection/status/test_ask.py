"""What live workers say of pipelines is taken as they say it, whole or not at all."""

from __future__ import annotations

from typing import Any

from processor.inspection.status.ask import MOST_CHARACTERS, WorkerWords
from processor.kafka.group.description import DescribedMember
from processor.worker.web.others import Heard


def pipeline(name: str = "clicks", state: str = "ready", rate: float = 10.0, **more: Any) -> dict[str, Any]:
    return {"name": name, "pipeline": "clicks", "state": state, "records_per_s": rate, "escaped": None, **more}


def heard(number: int, *pipelines: dict[str, Any], reason: str = "") -> Heard:
    said = {"worker": {"reason": reason}, "pipelines": list(pipelines)}
    return Heard(DescribedMember(f"c-{number}", "c", "10.0.0.1"), f"10.0.0.{number}:6066", said, "")


def words(*said: Heard) -> WorkerWords:
    found = WorkerWords()
    for each in said:
        found.add(each)
    return found


def test_rates_are_those_of_all_workers_by_hop() -> None:
    one = words(heard(1, pipeline("clicks.route", rate=30.0), pipeline(rate=4.5)))
    assert dict(one.rates) == {"clicks.route": 30.0, "clicks": 4.5}
    assert one.measured_by(3) == "the worker at 10.0.0.1:6066, not 2 others"

    both = words(heard(1, pipeline(rate=4.5)), heard(2, pipeline(rate=3.5)))
    assert (both.rates["clicks"], both.measured_by(2)) == (8.0, "2 workers")


def test_a_worker_that_does_not_work_says_what_it_does_instead() -> None:
    found = words(heard(1, pipeline(state="no contact"), reason="\x1b" + "x" * 999), heard(2, pipeline()))
    assert found.states["clicks"] == [f"worker 1: no contact: \\x1b{'x' * (MOST_CHARACTERS - 1)}"]


def test_of_what_has_escaped_each_worker_has_a_few_sentences() -> None:
    found = words(heard(1, pipeline(escaped={"says": ["one", "two", "three"]})))
    assert found.escaped["clicks"] == ["worker 1: one", "worker 1: two"]


def test_of_what_is_of_another_form_nothing_is_taken() -> None:
    broken = pipeline()
    del broken["escaped"]
    silent = Heard(heard(3).member, "", None, "it says no address")
    found = words(heard(1, pipeline(state="no contact"), broken), silent)
    assert (found.states, found.rates, found.where) == ({}, {}, [])
