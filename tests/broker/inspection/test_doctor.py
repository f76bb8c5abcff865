"""`seqmark doctor` names what a broker does not allow, each with what to do, and leaves nothing behind."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from confluent_kafka.admin import AclOperation, ResourceType

from processor.commands.cli import main
from tests.support.kafka.security.guarded import FIRST, LOST, SECOND, Guarded, guarded_broker
from tests.support.kafka.topics import CALL_S, admin, group_offsets, open_transactions
from tests.support.worker.marks import index_of
from tests.support.worker.process import WorkerConfig, new, new_config, produce, read_topic, run_drain

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from click.testing import Result

pytestmark = pytest.mark.broker


@dataclass(frozen=True)
class Row:
    """What `--json` says of one trial."""

    part: str
    tried: str
    outcome: str
    says: str
    advice: str


@pytest.fixture(scope="module")
def guarded() -> Iterator[Guarded]:
    with guarded_broker() as broker:
        yield broker


@pytest.fixture(scope="module")
def config(guarded: Guarded, tmp_path_factory: pytest.TempPathFactory) -> WorkerConfig:
    """Give an application that has been drained once."""
    config = new_config(guarded.bootstrap_servers, tmp_path_factory.mktemp("doctor"), 2).with_quarantine()
    produce(config.bootstrap_servers, config.source, [new(1), new(1)])
    assert run_drain(config).code == 0
    return config


def seqmark(config: WorkerConfig, *words: str, env: Mapping[str, str] | None = None) -> Result:
    return CliRunner().invoke(main, [*words, "-c", str(config.write())], env=env)


def examined(config: WorkerConfig, env: Mapping[str, str], code: int) -> list[Row]:
    result = seqmark(config, "doctor", "--json", env=env)
    assert result.exit_code == code, result.output
    return [Row(**json.loads(line)) for line in result.stdout.splitlines()]


def problems(rows: list[Row]) -> list[Row]:
    return [row for row in rows if row.outcome == "problem"]


def bootstrap(servers: str) -> dict[str, str]:
    return {"SEQMARK_KAFKA__BOOTSTRAP_SERVERS": servers}


def test_a_user_who_may_do_everything_is_told_so(guarded: Guarded, config: WorkerConfig) -> None:
    rows = examined(config, guarded.env(FIRST), 0)

    assert {row.outcome for row in rows} <= {"ok", "warning"}
    assert [row.says for row in rows if row.tried.startswith("credentials")] == [f"{FIRST} by PLAIN"]
    assert any(row.tried.startswith("clock difference") and row.outcome == "ok" for row in rows)


def test_nothing_stays_of_what_was_tried(guarded: Guarded, config: WorkerConfig) -> None:
    def there() -> list[object]:
        servers = guarded.bootstrap_servers
        topics = (config.source, config.sink, config.quarantine, config.changelog)
        read = [read_topic(servers, topic) for topic in topics]
        return [*read, group_offsets(servers, config.application_id)]

    before = there()
    examined(config, guarded.env(FIRST), 0)

    assert there() == before
    assert open_transactions(guarded.bootstrap_servers, config.application_id) == []
    assert run_drain(config).code == 0


def test_a_topic_that_may_only_be_read_names_the_right_to_write(guarded: Guarded, config: WorkerConfig) -> None:
    guarded.only(ResourceType.TOPIC, config.sink, FIRST, operation=AclOperation.READ)
    try:
        found = problems(examined(config, guarded.env(FIRST), 1))
    finally:
        guarded.anybody(ResourceType.TOPIC, config.sink)

    (row,) = [row for row in found if row.part == "rights"]
    assert "WRITE" in row.says
    assert "READ" not in row.says
    assert f"on {config.sink}" in row.advice


def test_what_is_missing_on_an_index_topic_is_a_warning(guarded: Guarded, config: WorkerConfig) -> None:
    index = index_of(config)
    guarded.only(ResourceType.TOPIC, index, FIRST, operation=AclOperation.READ)
    try:
        rows = examined(config, guarded.env(FIRST), 0)
    finally:
        guarded.anybody(ResourceType.TOPIC, index)

    (row,) = [row for row in rows if row.outcome == "warning" and f"on {index}" in row.advice]
    assert "WRITE" in row.says


def test_a_group_and_transactional_ids_of_others_are_named(guarded: Guarded, config: WorkerConfig) -> None:
    group, slot = config.application_id, f"{config.application_id}-p-0-of-4"
    guarded.only(ResourceType.GROUP, group, SECOND)
    guarded.only(ResourceType.TRANSACTIONAL_ID, slot, SECOND)
    try:
        found = problems(examined(config, guarded.env(FIRST), 1))
        status = seqmark(config, "status", env=guarded.env(FIRST))
    finally:
        guarded.anybody(ResourceType.GROUP, group)
        guarded.anybody(ResourceType.TRANSACTIONAL_ID, slot)

    assert [row.tried.partition(",")[0] for row in found] == [
        f"READ on the group {group}",
        "DESCRIBE on transactional ids",
    ]
    assert all("grant this principal" in row.advice for row in found)
    # And status shows what it may see.
    assert status.exit_code == 0
    assert "p: who works on it is not known" in status.stdout
    assert f"not known: the group {group} cannot be looked at" in status.stdout


def test_a_changelog_that_is_trimmed_is_tried_without_deleting_anything(
    guarded: Guarded, tmp_path: Path
) -> None:
    plain = new_config(guarded.bootstrap_servers, tmp_path)
    ids = {"mode": "insert-id", "id": [{"from": "key"}], "window": "1h"}
    config = replace(plain, pipelines=(replace(plain.pipelines[0], dedup=ids),))
    assert seqmark(config, "topics").exit_code == 0
    tried = f"DeleteRecords on {config.changelog}, before its first record"

    def outcome() -> list[str]:
        return [row.outcome for row in examined(config, guarded.env(FIRST), 0) if row.tried == tried]

    assert outcome() == ["ok"]
    guarded.only(ResourceType.TOPIC, config.changelog, FIRST, operation=AclOperation.READ)
    try:
        rows = examined(config, guarded.env(FIRST), 1)
    finally:
        guarded.anybody(ResourceType.TOPIC, config.changelog)
    (row,) = [row for row in rows if row.tried == tried]
    assert (row.outcome, "grant this principal DELETE" in row.says) == ("warning", True)


def test_at_least_once_is_tried_without_a_transaction(guarded: Guarded, config: WorkerConfig) -> None:
    env = {**guarded.env(FIRST), "SEQMARK_WORKER__GUARANTEE": "at_least_once"}

    rows = examined(config, env, 0)

    assert [row.outcome for row in rows if row.tried.startswith("IDEMPOTENT_WRITE")] == ["ok"]
    assert {row.says for row in rows if row.part == "transactions"} == {"guarantee is at_least_once"}


def test_one_of_several_addresses_that_does_not_answer_is_a_warning(
    guarded: Guarded, config: WorkerConfig
) -> None:
    env = {**guarded.env(FIRST), **bootstrap(f"127.0.0.1:9,{guarded.guarded_servers}")}

    rows = examined(config, env, 0)

    assert [row.tried for row in rows if row.outcome == "warning"] == ["connection: bootstrap 127.0.0.1:9"]


def test_topics_that_are_not_there_are_only_asked_for(guarded: Guarded, config: WorkerConfig) -> None:
    rows = examined(config, {"SEQMARK_PIPELINES__0__DUPLICATES": "receipts"}, 0)

    assert [row.outcome for row in rows if row.tried.startswith("CREATE receipts")] == ["ok"]
    assert "receipts" not in admin(guarded.bootstrap_servers).list_topics(timeout=CALL_S).topics


def test_a_wrong_password_is_told_from_all_else_and_what_follows_was_not_tried(
    guarded: Guarded, config: WorkerConfig
) -> None:
    wrong = {**guarded.env(FIRST), "SEQMARK_KAFKA__SASL_PLAIN_PASSWORD": "mistyped"}

    rows = examined(config, wrong, 1)

    (row,) = problems(rows)
    assert (row.tried.startswith("credentials"), "wrong user or password" in row.says) == (True, True)
    assert {each.outcome for each in rows if each.part in {"rights", "transactions"}} == {"not tried"}
    assert {each.says for each in rows if each.part == "rights"} == {"no connection"}
    assert "mistyped" not in str(rows)


@pytest.mark.parametrize(
    ("changed", "says", "advice"),
    [
        (
            {"SASL_MECHANISM": "SCRAM-SHA-256"},
            "does not offer SCRAM-SHA-256; it offers PLAIN",
            "sasl_mechanism",
        ),
        ({"SECURITY_PROTOCOL": "SASL_SSL"}, "speaks no TLS", "kafka.security_protocol"),
        ({"BOOTSTRAP_SERVERS": "127.0.0.1:9"}, "refused", "start the broker"),
        ({"BOOTSTRAP_SERVERS": "nohost.invalid:9092"}, "nohost.invalid does not resolve", "typing error"),
    ],
)
def test_what_does_not_fit_the_listener_is_told_apart(
    guarded: Guarded, config: WorkerConfig, changed: dict[str, str], says: str, advice: str
) -> None:
    env = {**guarded.env(FIRST), **{f"SEQMARK_KAFKA__{key}": value for key, value in changed.items()}}

    (row,) = problems(examined(config, env, 1))

    assert says in row.says
    assert advice in row.advice


def test_a_listener_that_wants_credentials_which_the_config_has_not_is_told(
    guarded: Guarded, config: WorkerConfig
) -> None:
    (row,) = problems(examined(config, bootstrap(guarded.guarded_servers), 1))

    assert "ends the connection without an answer" in row.says
    assert "may want credentials" in row.advice


def test_credentials_for_a_listener_that_asks_for_none_are_a_problem(
    guarded: Guarded, config: WorkerConfig
) -> None:
    env = {**guarded.env(FIRST), **bootstrap(guarded.bootstrap_servers)}

    (row,) = problems(examined(config, env, 1))

    assert row.says == "the listener asks for no credentials"


def test_an_address_that_only_the_brokers_network_knows_is_found(
    guarded: Guarded, config: WorkerConfig
) -> None:
    rows = examined(config, bootstrap(guarded.lost_servers), 1)

    (found,) = problems(rows)
    assert found.tried == f"name: broker 1 at {LOST}"
    assert "advertised.listeners" in found.advice
    assert [row.outcome for row in rows if "bootstrap" in row.tried] == ["ok"] * 4
    assert {row.outcome for row in rows if row.part == "rights"} == {"not tried"}


def test_people_read_the_count_first(guarded: Guarded, config: WorkerConfig) -> None:
    well = seqmark(config, "doctor", env=guarded.env(FIRST))
    ill = seqmark(config, "doctor", env={**guarded.env(FIRST), **bootstrap("127.0.0.1:9")})

    assert well.stdout.startswith(("all is well\n", "1 warning\n"))
    assert ill.stdout.startswith("1 problem\n")
    assert "not tried" in ill.stdout


def test_a_file_of_certificates_that_is_not_there_is_a_wrong_config(config: WorkerConfig) -> None:
    env = {"SEQMARK_KAFKA__SECURITY_PROTOCOL": "SSL", "SEQMARK_KAFKA__SSL_CAFILE": "/no/such.pem"}

    assert seqmark(config, "doctor", env=env).exit_code == 2
