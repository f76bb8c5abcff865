"""Keeps what the last certificate of each pipeline covered, for `seqmark explain`.

One small file per pipeline, ``state_dir/application_id/certificates/PIPELINE.json``, readable by its owner and
replaced as a whole. It says of each source partition from which offset on up to which every record was
compared. Invariant: a note is no proof and nothing is judged by it; who cannot write it proves all the same,
and who cannot read it says that there is none.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import orjson

from processor.judges.factory import mode_of
from processor.paths import PRIVATE_FILE, PRIVATE_FOLDER

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from processor.verify.report import VerifyReport
    from schemas.config import Pipeline, Settings

FOLDER = "certificates"
MOST_BYTES = 16 * 1024 * 1024
"""A partition takes about 120 bytes: 100,000 of them. A longer file is nobody's note."""
_VERSION = 1


@dataclass(frozen=True, slots=True)
class CoveredSpan:
    """What was compared of one source partition.

    Attributes:
        partition: Its number.
        start: The first source offset.
        stop: The source offset behind the last.
        judged_from: Verdicts are proved from here on; before it receipts were trusted.
        unproved: Dropped records of which that is not proved.
    """

    partition: int
    start: int
    stop: int
    judged_from: int
    unproved: int


@dataclass(frozen=True, slots=True)
class CertificateNote:
    """The last certificate of one pipeline on this machine.

    Attributes:
        pipeline: Its name.
        at_ms: When it was done, ms.
        proved: Whether nothing was wrong.
        definition: By which rules, in hexadecimal digits, see `processor.state.definition`.
        topic_ids: By name, the ids that the topics had, in hexadecimal digits; empty where brokers say none.
        spans: By partition.
        states: By partition, the id of the state that was proved, in hexadecimal digits; without those that had
            none, and empty in notes of before that was noted.
    """

    pipeline: str
    at_ms: int
    proved: bool
    definition: str
    topic_ids: Mapping[str, str]
    spans: Mapping[int, CoveredSpan]
    states: Mapping[int, str]


def keep_note(
    settings: Settings,
    pipeline: Pipeline,
    reports: Sequence[VerifyReport],
    topic_ids: Mapping[str, bytes],
    at_ms: int,
) -> None:
    """Replace the note of a pipeline.

    Args:
        settings: With the folder.
        pipeline: Whose.
        reports: Of all its partitions.
        topic_ids: By name, of its topics.
        at_ms: When the comparison was done.

    Raises:
        OSError: The folder is another user's, or cannot be written.
    """
    named = (pipeline.source, *pipeline.outputs)
    spans = [
        CoveredSpan(each.partition, each.start, each.stop, each.judged_from, each.unproved) for each in reports
    ]
    content = orjson.dumps(
        {
            "version": _VERSION,
            "pipeline": pipeline.name,
            "at_ms": at_ms,
            "proved": all(each.ok for each in reports),
            "definition": mode_of(pipeline).definition().hex(),
            "topic_ids": {name: topic_ids[name].hex() for name in named if any(topic_ids.get(name, b""))},
            "partitions": [asdict(each) for each in spans],
            "states": {str(each.partition): each.state_id.hex() for each in reports if each.state_id},
        }
    )
    path = _path(settings, pipeline.name)
    _make_folder(settings, path.parent)
    fresh = path.with_suffix(f".{os.getpid()}.part")
    try:
        handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE_FILE)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    finally:
        with suppress(OSError):
            fresh.unlink(missing_ok=True)


def read_note(settings: Settings, pipeline: str) -> CertificateNote | None:
    """Return the last note of a pipeline; None where there is none that can be read."""
    try:
        path = _path(settings, pipeline)
        if path.stat().st_size > MOST_BYTES:
            return None
        return _parsed(orjson.loads(path.read_bytes()), pipeline)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def _parsed(found: dict[str, Any], pipeline: str) -> CertificateNote | None:
    if found["version"] != _VERSION or found["pipeline"] != pipeline:
        return None
    spans = [CoveredSpan(**each) for each in found["partitions"]]
    numbers = [getattr(each, name) for each in spans for name in CoveredSpan.__slots__]
    if not all(type(each) is int for each in (found["at_ms"], *numbers)):
        return None
    ids = {str(name): str(topic_id) for name, topic_id in found["topic_ids"].items()}
    by_number = {each.partition: each for each in spans}
    states = {int(number): str(state_id) for number, state_id in found.get("states", {}).items()}
    proved = found["proved"] is True
    return CertificateNote(pipeline, found["at_ms"], proved, str(found["definition"]), ids, by_number, states)


def _path(settings: Settings, pipeline: str) -> Path:
    worker = settings.worker
    return worker.state_dir / worker.application_id / FOLDER / f"{pipeline}.json"


def _make_folder(settings: Settings, folder: Path) -> None:
    """Make what is missing; a worker of another user must find nothing of ours in its way.

    Raises:
        OSError: The application's folder is another user's, or cannot be written.
    """
    own = folder.parent
    settings.worker.state_dir.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
    own.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)
    owner = own.stat().st_uid
    if owner != os.geteuid():
        raise PermissionError(f"{own} is of user {owner}, and this is user {os.geteuid()}")
    folder.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)
