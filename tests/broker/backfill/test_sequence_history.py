"""A pipeline of mode watermark that begins with a topic, by `seqmark backfill`, goes on as a worker over it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.backfill.sequence_fill import HISTORIES, SequenceScene
from tests.support.kafka.topics import dice

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.kafka.broker import Broker

pytestmark = [
    pytest.mark.broker,
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]
COUNT = 120
CUTS = ("--cut", "0:20", "--cut", "1:20")


def test_backfill_and_worker_are_a_worker_over_all_of_it_whatever_the_scope(
    broker: Broker, tmp_path: Path
) -> None:
    scene, chance = SequenceScene(broker, tmp_path, COUNT), dice(1)
    told, spans = {}, {}
    for name in HISTORIES:
        until = [chance.randrange(COUNT // 2, COUNT + 1) for _ in range(2)]
        cuts = [chance.randrange(each + 1) for each in until]
        where = ("--cut", f"0:{cuts[0]}", "--cut", f"1:{cuts[1]}")
        told[name] = scene.loaded(name, "--history", scene.history(name, until), "--run", name, *where)
        spans[name] = until, cuts

    scene.drain()

    for name, (until, cuts) in spans.items():
        known = scene.assert_goes_on(name, until, cuts)
        parts, whole = told[name][:-1], told[name][-1]
        assert [(each["cut"], each["rows"], each["scopes"]) for each in parts] == [
            *zip(cuts, until, known, strict=True)
        ]
        assert (whole["rows"], whole["scopes"], whole["loaded"]) == (sum(until), sum(known), True)
        assert not any(each["sample"]["gap"] for each in parts), "the history comes up to the cut, or beyond"


@pytest.fixture(scope="module")
def scene(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> SequenceScene:
    """Give a pipeline that nothing is loaded into."""
    return SequenceScene(broker, tmp_path_factory.mktemp("sequences"), 40, "keys")


def test_what_is_loaded_is_not_loaded_again_and_no_other_history_under_its_name(scene: SequenceScene) -> None:
    arguments = ("--history", scene.pipeline("keys").source, "--run", "archive")

    looked = scene.run("keys", *arguments, *CUTS, "--dry-run")
    assert looked.exit_code == 0, looked.output
    titles = [each.strip() for each in looked.stdout.splitlines()[1].strip("┃").split("┃")]
    assert titles == ["partition", "rows", "scopes", "cut", "gap", "before the cut", "from the cut on"]
    first = scene.run("keys", *arguments, *CUTS)
    assert first.exit_code == 0, first.output
    assert "backfill archive is staged in" in first.stderr, "the dry run has staged it"
    again = scene.run("keys", *arguments, *CUTS)
    assert again.exit_code == 0
    assert "partition 0 began with 5 scopes at offset 20" in again.stdout
    other = scene.run("keys", *arguments, "--cut", "0:20", "--cut", "1:19")
    assert other.exit_code == 1
    assert "from another history (cut was" in " ".join(other.stderr.split())
