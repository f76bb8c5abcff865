"""The rights that docs/operations.md asks for are enough, and without any of them nothing is lost.

At a broker that allows nothing by itself. The rights are read from the page: what is there is what is tried.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from processor.commands.cli import main
from tests.support.kafka.broker import UNVERIFIED
from tests.support.kafka.hanging import leave_hanging
from tests.support.kafka.security.grants import CLUSTER, GROUP, IDS, PAGE, Grant, Rights, documented
from tests.support.kafka.security.guarded import FIRST, Guarded, guarded_broker
from tests.support.kafka.topics import New, group_offsets, open_transactions, sequences
from tests.support.worker.process import (
    WorkerConfig,
    new,
    new_config,
    produce,
    read_topic,
    run_drain,
    start_worker,
    until,
)
from tests.support.worker.reset import run_reset
from tests.support.worker.routed import RoutedRules

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.broker

GRANTS = documented()
WINDOW_MS = 60_000
WHEN_IT_HANGS = {("read", "sink"), ("read", "duplicates"), ("read", "quarantine")}
"""Rights that a worker needs in the case of "A transaction that hangs" alone, as that to alter the cluster."""
NEVER_USED = {("read", "index"), ("read", "route-index")}
"""Rights that commands need alone, on what a worker does without."""
APART = {"create", "delete"}
"""Rights with a test of their own."""


def named(grant: Grant) -> str:
    return f"{grant.right} on {grant.on}"


def says(text: str, grant: Grant, name: str) -> bool:
    """Say whether a line of a text, with the one below it, names a right and what it is on.

    A name that others begin with is not taken for theirs; of transactional ids any with the prefix is named.
    """
    behind = r".*transactional ids" if grant.on == IDS else r"(?![\w-])(?!\.\w)"
    where, right = re.compile(rf"(?<![\w.-]){re.escape(name)}{behind}"), re.compile(rf"\b{grant.operation}\b")
    lines = text.splitlines()
    pairs = (" ".join(lines[at : at + 2]) for at in range(len(lines)))
    return any(where.search(pair) and right.search(pair) for pair in pairs)


class Application:
    """A routed pipeline, all that was sent to it, and what its user may do."""

    def __init__(self, guarded: Guarded, folder: Path) -> None:
        folder.mkdir()
        plain = new_config(guarded.bootstrap_servers, folder).with_quarantine().with_duplicates()
        rules = RoutedRules(window=f"{WINDOW_MS // 1000}s")
        self.config: WorkerConfig = replace(plain, pipelines=(rules.applied(plain.pipelines[0]),))
        self.env = guarded.env(FIRST)
        self.rights = Rights(guarded.bootstrap_servers, FIRST, self.config)
        self._counts: list[int] = []

    @property
    def sent(self) -> list[bytes]:
        """The ids that have to be in the sink."""
        return [b"%d-%d" % (number, each) for number, count in enumerate(self._counts) for each in range(count)]

    def send(self, count: int = 2) -> None:
        """Send so many records, each twice, and one without an id; what was sent before expires."""
        number = len(self._counts)
        when = 1_700_000_000_000 + number * 3 * WINDOW_MS
        ids = [b"%d-%d" % (number, each) for each in range(count)]
        records = [New(b"k", b"v", (("id", each),), when) for each in [*ids, *ids]]
        produce(self.config.bootstrap_servers, self.config.source, [*records, New(b"k", b"v", (), when)])
        self._counts.append(count)

    def passed(self) -> Counter[bytes | None]:
        """Return how often each id is in the sink."""
        found = read_topic(self.config.bootstrap_servers, self.config.sink)
        return Counter(dict(each.headers)["id"] for each in found)

    def commits(self) -> dict[tuple[str, int], int]:
        """Return what the group has committed."""
        return group_offsets(self.config.bootstrap_servers, self.config.application_id)

    def drain(self) -> None:
        """Drain, and see that each id has passed once, each copy was dropped, each other record put aside."""
        ended = run_drain(self.config, env=self.env)
        assert ended.code == 0, ended.stderr
        self.require_all()

    def require_all(self) -> None:
        """See that nothing was lost, and nothing passed twice."""
        servers = self.config.bootstrap_servers
        assert self.passed() == Counter(self.sent)
        assert len(read_topic(servers, self.config.duplicates)) == sum(self._counts)
        assert len(read_topic(servers, self.config.quarantine)) == len(self._counts)
        assert open_transactions(servers, self.config.application_id) == []

    def doctor(self) -> str:
        """Return what `seqmark doctor` says is missing."""
        shown = CliRunner().invoke(main, ["doctor", "--json", "-c", str(self.config.write())], env=self.env)
        rows = [json.loads(line) for line in shown.stdout.splitlines()]
        return "\n".join(str(row) for row in rows if row["outcome"] in {"problem", "warning"})


@pytest.fixture(scope="module")
def guarded() -> Iterator[Guarded]:
    with guarded_broker(strict=True, overrides=UNVERIFIED) as broker:
        yield broker


@pytest.fixture(scope="module")
def application(guarded: Guarded, tmp_path_factory: pytest.TempPathFactory) -> Application:
    """Give one whose user has the documented rights, that has made its topics and drained once."""
    made = Application(guarded, tmp_path_factory.mktemp("grants") / "a")
    made.rights.give(GRANTS)
    made.send()
    made.drain()
    return made


def test_the_documented_rights_are_enough(application: Application) -> None:
    application.send()
    application.drain()


@pytest.mark.parametrize("grant", [each for each in GRANTS if each.right not in APART], ids=named)
def test_without_a_right_nothing_is_lost_and_what_is_missing_is_said(
    application: Application, grant: Grant
) -> None:
    before = application.passed()
    name = grant.name(application.config)
    unsaid = {(grant.right, grant.on)} & (WHEN_IT_HANGS | NEVER_USED) or grant.on == CLUSTER
    told = partial(says, grant=grant, name=name)
    application.rights.take(grant)
    try:
        application.send()
        assert told(application.doctor())
        with start_worker(application.config, env=application.env, drain=True) as worker:
            if grant.optional or unsaid:
                assert worker.wait() == 0, worker.stderr
                application.require_all()
                assert unsaid or told(worker.stderr), worker.stderr
            else:
                # It ends, or waits for somebody to allow it.
                until(lambda: not worker.alive or told(worker.stderr), f"it says why:\n{worker.stderr}", 75)
                assert worker.alive or worker.wait() == 1, worker.stderr
                assert told(worker.stderr), worker.stderr
                assert application.passed() == before
            assert "Traceback" not in worker.stderr
    finally:
        application.rights.give_back(grant)
    application.drain()


@pytest.mark.parametrize("grant", [each for each in GRANTS if each.right == "delete"], ids=named)
def test_without_the_right_to_delete_a_topic_grows_and_the_log_says_so(
    application: Application, grant: Grant
) -> None:
    name = grant.name(application.config)
    application.rights.take(grant)
    try:
        assert says(application.doctor(), grant, name)
        places = {"SEQMARK_TEST_PLACE_IDS": "100"}  # of which it knows where the changelog has them
        with start_worker(application.config, env={**application.env, **places}) as worker:
            # Ids expire by the page; what a commit finds expired is deleted once the next one stands.
            for _ in range(8):
                application.send(300)
                until(lambda: application.passed() == Counter(application.sent), "all is in the sink")
            worker.wait_says(f"what is expired stays in {name}")
            assert says(worker.stderr, grant, name)
            worker.terminate()
            assert worker.wait() == 0, worker.stderr
        application.require_all()
    finally:
        application.rights.give_back(grant)
    application.drain()


@pytest.mark.parametrize("grant", [each for each in GRANTS if each.right == "create"], ids=named)
def test_without_the_right_to_create_a_topic_nothing_is_lost_and_it_is_said(
    guarded: Guarded, tmp_path: Path, grant: Grant
) -> None:
    application = Application(guarded, tmp_path / "a")
    name = grant.name(application.config)
    application.rights.give(each for each in GRANTS if each != grant)
    application.send()
    assert says(application.doctor(), grant, name)

    ended = run_drain(application.config, env=application.env)

    assert ended.code == (0 if grant.optional else 1), ended.stderr
    assert name in ended.stderr
    assert "CREATE" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert grant.optional or not application.commits()
    application.rights.give([grant])
    application.drain()


def test_each_right_for_a_transaction_that_hangs_is_one_that_the_page_names() -> None:
    assert {(each.right, each.on) for each in GRANTS} >= {*WHEN_IT_HANGS, *NEVER_USED}


@pytest.mark.parametrize(
    ("right", "on"), [("read", "sink"), ("alter", CLUSTER)], ids=["read the sink", "alter the cluster"]
)
def test_without_the_rights_to_end_a_transaction_that_hangs_the_worker_waits_and_says_so(
    guarded: Guarded, tmp_path: Path, right: str, on: str
) -> None:
    servers = guarded.bootstrap_servers
    config = new_config(servers, tmp_path).with_quarantine().with_duplicates()
    rights = Rights(servers, FIRST, config)
    (grant,) = [each for each in GRANTS if (each.right, each.on) == (right, on)]
    rights.give(GRANTS)
    produce(servers, config.source, [new(1), new(1)])
    assert run_drain(config, env=guarded.env(FIRST)).code == 0
    leave_hanging(servers, config.sink, f"{config.application_id}-p-0-of-4", new(1000))
    rights.take(grant)
    produce(servers, config.source, [new(2), new(2)])
    with start_worker(config, env=guarded.env(FIRST), drain=True) as worker:
        lacks = f"topic {config.sink}" if on == "sink" else "the cluster"
        worker.wait_says(f"grant this principal {right.upper()} on {lacks}")
        assert worker.alive
        written = read_topic(servers, config.sink, "read_uncommitted")
        assert sequences(written) == [1, 1000]

        rights.give_back(grant)

        assert worker.wait() == 0, worker.stderr
    assert sequences(read_topic(servers, config.sink)) == [1, 1000, 2]


def test_a_reset_needs_what_a_worker_needs_and_to_look_at_the_group(guarded: Guarded, tmp_path: Path) -> None:
    assert (
        "**Rights**, on a broker with ACLs: those of a worker, and describe on the group." in PAGE.read_text()
    )
    servers, env = guarded.bootstrap_servers, guarded.env(FIRST)
    config = new_config(servers, tmp_path).with_quarantine().with_duplicates()
    rights, grant = Rights(servers, FIRST, config), Grant("describe", GROUP, optional=False)
    rights.give([*GRANTS, grant])
    produce(servers, config.source, [new(1), new(1), new(2)])
    assert run_drain(config, env=env).code == 0
    rights.take(grant)

    refused = run_reset(config, "--to-offset", "0:2", env=env)

    assert refused.code == 1
    assert says(refused.stderr, grant, config.application_id)
    assert group_offsets(servers, config.application_id) == {(config.source, 0): 3}
    rights.give_back(grant)
    assert run_reset(config, "--to-offset", "0:2", env=env).code == 0
    assert group_offsets(servers, config.application_id) == {(config.source, 0): 2}
