"""What docs/fingerprints.md shows of four records is what a worker makes of them, action by action."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.worker.process import New, WorkerConfig, new_config, produce, read_topic, run_drain
from tests.support.worker.several import alone, pipelines_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.kafka.broker import Broker
    from tests.support.kafka.topics import Record

pytestmark = pytest.mark.broker

PAGE = (Path(__file__).parents[3] / "docs" / "fingerprints.md").read_text()
LINES = re.MULTILINE | re.DOTALL
CONFIG = re.findall(r"^```toml\n(.*?)^```$", PAGE, LINES)[0]
DEDUP: dict[str, Any] = tomllib.loads(CONFIG)["pipelines"]["dedup"]
SOURCE = re.findall(r"^clicks:0:\d  (\{.*\})$", PAGE, re.MULTILINE)
SHOWN = dict(re.findall(r'^`on_collision = "(\w+)"`.*?^```\n(.*?)^```$', PAGE, LINES))
(NOTE,) = (json.loads(note) for note in re.findall(r"^```json\n(.*?)^```$", PAGE, LINES))
NEW_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
HEADERS = {"seqmark.collision", "seqmark.original_id", "seqmark.error"}


@pytest.fixture(scope="module")
def judged(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> WorkerConfig:
    """Return a pipeline per action that has judged the page's records."""
    config = new_config(broker.bootstrap_servers, tmp_path_factory.mktemp("page"))
    definitions = {action: {**DEDUP, "on_collision": action} for action in SHOWN}
    for action in definitions.keys() - {"rename"}:
        del definitions[action]["rename"]
    config = pipelines_of(config.with_duplicates().with_quarantine(), definitions)
    for each in config.pipelines:
        sent = [New(b"key", value.encode(), (), NOTE["timestamp"]) for value in SOURCE]
        produce(config.bootstrap_servers, each.source, sent)
    ended = run_drain(config)
    assert ended.code == 0, ended.stderr
    # Copies of what is not in the sink collide again.
    assert (ended.stdout.count("collision 1 ("), ended.stdout.count("collision 2 (")) == (3, 2)
    return config


def lines_of(config: WorkerConfig) -> Iterator[str]:
    """Write what was made of the third record and the fourth as the page does."""
    topics = config.sink, config.quarantine, config.duplicates
    sink, quarantine, receipts = (read_topic(config.bootstrap_servers, topic) for topic in topics)
    first, *rest = sink
    assert (first.value or b"").decode() == SOURCE[0]
    yield from (shown("sink", each) for each in rest)
    yield from (shown("quarantine", each) for each in quarantine)
    for said in (json.loads(each.value or b"") for each in receipts):
        if said["verdict"] == "duplicate" and said["offset"] != 1:
            yield f"duplicate   clicks:0:{said['offset']}"
        elif said.get("action") == "drop":
            yield f"dropped     clicks:0:{said['offset']}"


def shown(topic: str, record: Record) -> str:
    value = (record.value or b"").decode()
    headers = [f"  {name}={(told or b'').decode()}" for name, told in record.headers if name in HEADERS]
    # The value says when it was sent, and so which of the four it is.
    return f"{topic:<12}clicks:0:{json.loads(value)['sent_at'] - 1}  {value}{''.join(headers)}"


def alike(text: str, config: WorkerConfig) -> list[str]:
    """Return lines with one name for the source, and one for any new id."""
    return NEW_ID.sub("NEW ID", text.replace(config.source, "clicks")).splitlines()


def test_the_page_shows_every_action() -> None:
    assert SHOWN.keys() == {"pass", "tag", "rename", "quarantine", "drop"}
    assert len(SOURCE) == 4


@pytest.mark.parametrize("action", SHOWN)
def test_the_records_after_an_action_are_those_of_the_page(judged: WorkerConfig, action: str) -> None:
    config = alone(judged, action)
    assert alike("\n".join(lines_of(config)), config) == alike(SHOWN[action], config)


def test_the_note_has_the_fields_of_the_page(judged: WorkerConfig) -> None:
    config = alone(judged, "rename")
    receipts = read_topic(config.bootstrap_servers, config.duplicates)
    (text,) = [each.value.decode() for each in receipts if each.value and b'"collision"' in each.value]
    note = json.loads(text.replace(config.source, "clicks")) | {"pipeline": NOTE["pipeline"]}
    assert list(note) == list(NOTE)
    secret = ("fingerprint", "owner_fingerprint", "new_id")
    assert {name: each for name, each in note.items() if name not in secret} == {
        name: each for name, each in NOTE.items() if name not in secret
    }
    assert all(len(note[name]) == len(NOTE[name]) for name in secret)
