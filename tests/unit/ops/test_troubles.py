"""What is kept of warnings and errors is bounded, hides secrets, and cannot command a terminal."""

from __future__ import annotations

import logging

from processor.ops.troubles import KEPT, MASK, TEXT_CHARACTERS, Troubles, secrets_of
from schemas.config.kafka import Kafka

log = logging.getLogger("processor.somewhere")


def heard(*said: str, secrets: frozenset[str] = frozenset()) -> list[tuple[str, int]]:
    troubles = Troubles(secrets)
    with troubles.heard():
        for text in said:
            log.warning("%s", text)
    return [(each.text, each.times) for each in troubles.newest()]


def test_what_is_said_again_counts_and_comes_first() -> None:
    assert heard("a", "b", "a") == [("a", 2), ("b", 1)]


def test_the_newest_are_kept_and_each_is_cut() -> None:
    kept = heard(*(f"{number} {'x' * 5_000}" for number in range(KEPT + 5)))

    assert len(kept) == KEPT
    assert kept[0][0].startswith(f"{KEPT + 4} x")
    assert {len(text) for text, _ in kept} == {TEXT_CHARACTERS + 1}


def test_secrets_of_the_config_are_hidden_wherever_they_stand() -> None:
    passwords = {"sasl_plain_password": "p4ssw0rd", "ssl_password": "p4ssw0rd-longer"}
    secrets = secrets_of(Kafka.model_validate({"bootstrap_servers": "b:1", **passwords}))

    long = "x" * (TEXT_CHARACTERS - 4)
    said = heard("refused: p4ssw0rd", "of the key: p4ssw0rd-longer.", f"{long}p4ssw0rd", secrets=secrets)

    assert secrets == {"p4ssw0rd", "p4ssw0rd-longer"}
    assert [text for text, _ in said] == [f"{long}{MASK[:4]}…", f"of the key: {MASK}.", f"refused: {MASK}"]


def test_control_characters_are_escaped_and_exceptions_said_by_their_kind_alone() -> None:
    troubles = Troubles()
    with troubles.heard():
        log.error("\x1b[2J gone", exc_info=ValueError("an id"))
        log.info("not worth it")
        logging.getLogger("somebody.else").warning("not ours")

    (trouble,) = troubles.newest()
    assert trouble.text == "\\x1b[2J gone (ValueError; the log has more)"
    assert trouble.level == "error"
