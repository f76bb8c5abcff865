"""Pipelines of different definitions in one worker leave each other alone, whoever comes and goes.

A pipeline that is added, removed, put back or refused touches no position, output or state of the others: ends
of topics and the group's offsets are compared. Workers that join, leave and are killed lose and repeat nothing,
each record being judged anew by the naive model.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.support.judges.rules import EPOCH_HEADER, Rules
from tests.support.kafka.topics import dice, open_transactions, until
from tests.support.worker.mixed import Mixed
from tests.support.worker.process import Worker, run_drain, start_worker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.kafka.broker import Broker
    from tests.support.worker.feed import Feed

pytestmark = pytest.mark.broker

RULES = {
    "plain": Rules(),
    "keyed": Rules("key", epoch=EPOCH_HEADER, reorder_window=20),
    "valued": Rules("header:producer", sequence={"from": "value", "pointer": "/seq"}),
    "windowed": Rules(reorder_window=100),
}
THREE = ("plain", "keyed", "valued")
SOME = 1_000
"""Records a pipeline and round: each of its scopes comes some times."""


@pytest.fixture
def mixed(broker: Broker, tmp_path: Path) -> Mixed:
    return Mixed(broker.bootstrap_servers, tmp_path, RULES, dice(7))


def test_three_definitions_in_one_worker_are_each_judged_by_their_own_rules(mixed: Mixed) -> None:
    for _ in range(2):
        mixed.send(SOME, *THREE)
        mixed.drain(*THREE)

    mixed.assert_right(*THREE)


def test_a_pipeline_that_is_added_later_touches_none_of_the_others(mixed: Mixed) -> None:
    mixed.send(SOME, *THREE, "windowed")
    mixed.drain(*THREE)
    before = mixed.ends(*THREE)

    mixed.drain(*THREE, "windowed")

    assert mixed.ends(*THREE) == before
    mixed.send(SOME, *THREE, "windowed")
    mixed.drain(*THREE, "windowed")
    mixed.assert_right(*THREE, "windowed")


def test_a_pipeline_that_is_removed_and_put_back_goes_on_where_it_was(mixed: Mixed) -> None:
    removed, others = "keyed", ("plain", "valued")
    mixed.send(SOME, *THREE)
    mixed.drain(*THREE)
    before = mixed.ends(removed)
    mixed.send(SOME, *THREE)
    mixed.drain(*others)
    assert mixed.ends(removed) == before
    without = mixed.ends(*others)

    mixed.drain(*THREE)

    assert mixed.ends(*others) == without
    mixed.assert_right(*THREE)


def test_a_changed_definition_is_refused_with_what_to_do_and_touches_no_state(mixed: Mixed) -> None:
    mixed.send(SOME, *THREE)
    mixed.drain(*THREE)
    before = mixed.ends("keyed")
    mixed.send(SOME, *THREE)
    config = mixed.config(*THREE)
    plain, keyed, valued = config.pipelines
    changed = replace(keyed, dedup={**keyed.dedup, "reorder_window": 21})

    ended = run_drain(replace(config, pipelines=(plain, changed, valued)))

    assert ended.code == 1
    assert "keyed" in ended.stderr
    assert "set" in ended.stderr
    assert "back" in ended.stderr
    assert mixed.ends("keyed") == before

    mixed.drain(*THREE)

    mixed.assert_right(*THREE)


def test_workers_of_one_application_with_different_pipelines_share_what_both_have(mixed: Mixed) -> None:
    with contextlib.ExitStack() as stack:
        left = stack.enter_context(start_worker(mixed.config("plain", "keyed")))
        left.wait_ready()
        right = stack.enter_context(start_worker(mixed.config("keyed", "valued")))
        until(lambda: shares(left, right) == [(2, 0), (1, 1), (0, 2)], "each has what it knows")
        mixed.send(SOME, *THREE)
        mixed.wait_caught_up(*THREE)
        left.terminate()
        assert left.wait() == 0
        # Nobody is left for what only the one that left knew.
        until(lambda: shares(left, right) == [(0, 0), (0, 2), (0, 2)], "the other has the rest")
        plain = mixed.ends("plain")
        mixed.send(SOME, *THREE)
        mixed.wait_caught_up("keyed", "valued")
        assert mixed.ends("plain") == plain
        right.terminate()
        assert right.wait() == 0

    mixed.drain(*THREE)

    mixed.assert_right(*THREE)


def shares(*workers: Worker) -> list[tuple[int, ...]]:
    """Return how many partitions of each of the three pipelines each worker has."""
    has = [worker.metrics() if worker.alive else {} for worker in workers]
    names = [f"seqmark_assigned_partitions{{pipeline={name}}}" for name in THREE]
    return [tuple(int(each.get(name, 0)) for each in has) for name in names]


@contextlib.contextmanager
def feeding(feeds: list[Feed]) -> Iterator[None]:
    """Send into all sources until the block ends."""
    with contextlib.ExitStack() as stack:
        for feed in feeds:
            stack.enter_context(feed)
        yield


@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
def test_workers_that_join_leave_and_are_killed_lose_and_repeat_nothing_of_any_pipeline(
    mixed: Mixed, guarantee: str
) -> None:
    config = mixed.config(*THREE).but(guarantee=guarantee)
    everything = [(1, 1)] * 3
    with contextlib.ExitStack() as stack:
        stack.enter_context(feeding([mixed.feeds[name] for name in THREE]))
        first = stack.enter_context(start_worker(config))
        first.wait_ready(60)
        mixed.wait_progress(*THREE)
        second = stack.enter_context(start_worker(config))
        until(lambda: shares(first, second) == everything, "they share each pipeline")
        mixed.wait_progress(*THREE)
        first.terminate()
        assert first.wait() == 0
        third = stack.enter_context(start_worker(config))
        until(lambda: shares(second, third) == everything, "the next has taken its place")
        mixed.wait_progress(*THREE)
        second.kill()
        until(lambda: shares(third) == [(2,)] * 3, "the one that is left has everything")
        mixed.wait_progress(*THREE)
        third.kill()
    for name in THREE:
        mixed.feeds[name].send_again()

    mixed.drain(*THREE, guarantee=guarantee)

    if guarantee == "exactly_once":
        mixed.assert_right(*THREE)
        assert not open_transactions(config.bootstrap_servers, config.application_id)
    else:
        mixed.assert_nothing_lost(*THREE)
