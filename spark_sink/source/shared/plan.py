"""Says which aggregates share what is read of a topic, a family. As text it is given to each member's tasks."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import NamedTuple

from spark_sink.source.partials import PartialPlan

_LOCAL_FOLDERS = "SPARK_LOCAL_DIRS"
"""Where Spark tells Python workers which folders are their executor's own; they go with it."""


class SharedRead(NamedTuple):
    """A family, and which of its members reads."""

    run: str
    """Names this run of the job: nothing that another one has left is used."""
    folder: str
    """Where its members leave each other their rows; empty: in a folder of the executor's own."""
    plans: list[PartialPlan]
    """A plan per member; two may have the same."""
    mine: int
    """Number of the member that reads."""

    def written(self) -> str:
        """Return it as text."""
        return json.dumps([self.run, self.folder, [each.written() for each in self.plans], self.mine])

    @classmethod
    def read(cls, text: str) -> SharedRead:
        """Read what `written` gave."""
        run, folder, plans, mine = json.loads(text)
        return cls(run, folder, [PartialPlan.read(each) for each in plans], mine)

    @staticmethod
    def run_folder(folder: str, run: str) -> Path:
        """Return the folder of one run."""
        return Path(folder) / f"seqmark-{run}"

    def place(self, topic: str, topic_id: str) -> Path | None:
        """Return the folder of a topic, made where it is missing; None: there can be none.

        All that rows depend on stands in its name: the run, the topic with its id, and every plan.
        """
        folder = self.folder or os.environ.get(_LOCAL_FOLDERS, "").partition(",")[0]
        if not folder or not topic_id:
            return None
        key = json.dumps([topic, topic_id, [each.written() for each in self.plans]])
        made = self.run_folder(folder, self.run)
        try:
            made.mkdir(0o700, exist_ok=True)
            made /= hashlib.sha256(key.encode()).hexdigest()[:32]
            made.mkdir(0o700, exist_ok=True)
        except OSError:
            return None
        return made
