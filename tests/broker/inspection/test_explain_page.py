"""What docs/commands/explain.md shows is what the command prints."""

from __future__ import annotations

import re
import subprocess
import sys

from tests.broker.commands.test_pages import Place, blocks, commands, place
from tests.support.kafka.topics import New, create_topic, produce

__all__ = ["place"]

PAGE = "docs/commands/explain.md"
WHEN = 1_795_420_800_000
SHOWN = re.compile(r"^\$ (.*)\n((?:[^$\n].*\n)+)", re.MULTILINE)


def prepared(place: Place) -> None:
    """Put the page's config and records there, and let a worker judge them."""
    (config,) = [text for kind, text in blocks(PAGE) if kind == "toml"]
    (place.folder / "my.toml").write_text(place.here(config.replace('name = "clicks"', "name = 'clicks'")))
    create_topic(place.bootstrap, place.here("clicks.raw"), 1)
    values = [
        b'{"event_id": "a1", "user": "user-3", "page": "/home", "sent_at": 1}',
        b'{"event_id": "a2", "user": "user-8", "page": "/pay", "sent_at": 2}',
        b'{"event_id": "a1", "user": "user-3", "page": "/home", "sent_at": 9}',
        b'{"user": "user-3", "page": "/home"}',
    ]
    records = [New(b"user-3", value, (), WHEN + 1000 * at) for at, value in enumerate(values)]
    produce(place.bootstrap, place.here("clicks.raw"), records)
    place.run("seqmark worker -c my.toml --drain")


def words(text: str) -> list[list[str]]:
    """Return the lines of a table without what differs by how long a name is."""
    return [line.split() for line in text.splitlines() if not re.match("[┏┡└]", line)]


def test_the_page_shows_what_the_command_prints_and_its_other_commands_run(place: Place) -> None:
    prepared(place)
    shown = [found for kind, text in blocks(PAGE) if not kind for found in SHOWN.findall(text)]

    for command, printed in shown:
        assert words(place.run(command)[0]) == words(printed), place.run(command)[0]
    for line in commands(PAGE):
        place.run(line)

    assert len(shown) == 3
    (program,) = [text for kind, text in blocks(PAGE) if kind == "python"]
    assert "from seqmark.processor." in program  # as the wheel has it; install/ holds that it has
    here = place.here(program.replace("from seqmark.", "from ")).replace("clicks.", f"{place.name}.")
    done = subprocess.run(
        [sys.executable, "-c", here], cwd=place.folder, capture_output=True, text=True, check=False
    )
    assert place.there(done.stdout) == "duplicate clicks.raw:0:0\n", done.stderr
