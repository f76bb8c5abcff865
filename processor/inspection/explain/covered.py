"""Says whether the last certificate of a pipeline covers a record of its source."""

from __future__ import annotations

from typing import TYPE_CHECKING

from processor.inspection.read.sentences import time_text
from processor.judges.factory import mode_of
from processor.verify.noted import read_note

if TYPE_CHECKING:
    from collections.abc import Mapping

    from processor.verify.noted import CertificateNote
    from processor.wire.receipt_values import RecordRef
    from schemas.changelog.position import Position
    from schemas.config import Pipeline, Settings

NONE = "no certificate on this machine"


class LastCertificate:
    """What the last certificate of a pipeline on this machine says of records.

    Args:
        settings: With the folder where it is noted.
        pipeline: Whose.
        topic_ids: By name, the ids that the topics have now; zeros where they are not known.
    """

    def __init__(self, settings: Settings, pipeline: Pipeline, topic_ids: Mapping[str, bytes]) -> None:
        self._note = read_note(settings, pipeline.name)
        self._general = NONE if self._note is None else _about(self._note, pipeline, topic_ids)

    def of(self, ref: RecordRef, state: Position | None) -> str:
        """Return a clause about a position in the source, such as ``covered by that of ...``.

        Args:
            ref: The position.
            state: The last one of its partition's state of now; None: there is none, or it cannot be read.
        """
        note = self._note
        if note is None or self._general:
            return self._general
        span, when = note.spans.get(ref.partition), time_text(note.at_ms)
        if span is None or ref.offset >= span.stop:
            return f"not covered: the last certificate, of {when}, ended before it"
        if other := self._of_another_run(note, ref.partition, state):
            return other
        if ref.offset < span.start:
            return f"not covered: the last certificate, of {when}, began behind it, at offset {span.start}"
        if ref.offset < span.judged_from:
            return f"covered by that of {when}, which trusted receipts up to offset {span.judged_from}"
        return f"covered by that of {when}"

    @staticmethod
    def _of_another_run(note: CertificateNote, partition: int, state: Position | None) -> str:
        """Say that another run than that of now was proved, or may have been; empty: it was that of now."""
        proved, when = note.states.get(partition), time_text(note.at_ms)
        if state is None:
            # Without a state then and now there was no reset.
            return "" if proved is None else f"not known: the state that was proved at {when} is not found"
        if proved is None and not state.since_ms:
            return f"not known: the last certificate, of {when}, does not say which run it proved"
        # Older certificates do not say which state was proved: it was that of now, if that was there.
        before = state.since_ms > note.at_ms if proved is None else state.state_id.hex() != proved
        return f"not covered: the last certificate, of {when}, proved a run before a reset" if before else ""


def _about(note: CertificateNote, pipeline: Pipeline, topic_ids: Mapping[str, bytes]) -> str:
    """Say why it covers nothing at all; empty: it may cover something."""
    when = time_text(note.at_ms)
    if not note.proved:
        return f"not covered: `seqmark verify` found violations at {when}"
    for name, known in note.topic_ids.items():
        now = topic_ids.get(name, b"")
        if name in {pipeline.source, *pipeline.outputs} and any(now) and now.hex() != known:
            return f"not covered: {name} was made anew after the last certificate, of {when}"
    if note.definition != mode_of(pipeline).definition().hex():
        return f"not covered: the last certificate, of {when}, judged by other rules"
    return ""
