"""Readers of verdicts that run beside a worker, and are killed again and again."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Self

from tests.support.kafka.topics import unique, until
from tests.support.worker import forks

if TYPE_CHECKING:
    import random

    from tests.support.worker.process import WorkerConfig

STEPS = ("begun", "output", "offsets", "ended")
EVERY_S = 0.7
"""A reader has a moment to start: one that never comes to read tests nothing."""


class Readers:
    """`seqmark materialize`, and the loop of the page over partition 0, until the block ends."""

    def __init__(self, config: WorkerConfig, dice: random.Random) -> None:
        self._config, self._dice = config, dice
        self._group = unique("reader")
        self._file = config.folder / "offsets"
        self._log, self._refused = config.folder / "reader.log", config.folder / "reader-refused.log"
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._go_on, name="readers")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _go_on(self) -> None:
        while not self._ended.is_set():
            reader = self._reader()
            try:
                self._ended.wait(EVERY_S * self._dice.random() + EVERY_S)
                self.materialize(self._dice.choice(("", *STEPS)))
            finally:
                self._kill(reader)

    def materialize(self, step: str = "") -> int:
        """Run it, and return how it ended: below 0 where it died at a step."""
        words = ("materialize", "-c", str(self._config.write()), "--pipeline", self._config.pipelines[0].name)
        env = {"SEQMARK_FAULT_STEP": f"{step}:{self._dice.randrange(1, 4)}"} if step else {}
        return forks.run(*words, folder=self._config.folder, env=env).returncode

    def _reader(self) -> subprocess.Popen[bytes]:
        config = self._config
        topics = config.bootstrap_servers, config.source, config.verdicts
        words = (*topics, self._group, "0", str(self._file))
        call = [sys.executable, "-m", "tests.support.readers.page", *words]
        with self._log.open("ab") as log:
            return subprocess.Popen(call, stderr=log)

    def _kill(self, reader: subprocess.Popen[bytes]) -> None:
        """End a reader that has not ended by itself: none of them has a reason to."""
        if reader.poll() is not None:
            self._log.rename(self._refused)
        reader.kill()
        reader.wait()

    def all_read(self, count: int) -> list[int]:
        """Return the offsets that the loop has given, each once, in the order of their first time."""
        reader = self._reader()
        try:
            until(lambda: len(self._offsets()) >= count, f"{count} records are read")
            return self._offsets()
        finally:
            self._kill(reader)
            assert not self._refused.exists(), self._refused.read_text()

    def _offsets(self) -> list[int]:
        text = self._file.read_text(encoding="ascii") if self._file.exists() else ""
        # A killed reader may have cut its last line.
        return list(dict.fromkeys(int(line) for line in text.splitlines(keepends=True) if line.endswith("\n")))
