"""What becomes of records by the naive models: what stands in the sink, in quarantine and in duplicates."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.support.judges import collisions
from tests.support.judges.fingerprints import FingerprintModel, FingerprintRules, fingerprint_of
from tests.support.judges.id_rules import IdRules, IdSaid, id_of, shown
from tests.support.kafka.topics import New
from tests.support.wire import batches

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.support.judges.id_rules import IdModel
    from tests.support.judges.rules import Model, Rules
    from tests.support.kafka.topics import Record
    from tests.support.worker.process import PipelineConfig

ONLY_NOTED = {"fingerprint", "owner_fingerprint", "new_id"}
"""What of a note only who has the secret can foretell."""


class Outcomes(NamedTuple):
    """What becomes of the records of one partition.

    Attributes:
        passed: What is in the sink.
        quarantined: With the headers ``seqmark.error`` and ``seqmark.source``, without the detail.
        told: Values of receipts and notes, without `ONLY_NOTED`; mode insert-id alone.
        verdicts: The model's, a record.
    """

    passed: list[New]
    quarantined: list[New]
    told: list[dict[str, Any]]
    verdicts: list[str]


def outcomes(
    model: Model | IdModel,
    rules: Rules | IdRules,
    pipeline: PipelineConfig,
    records: Sequence[Record],
    new_ids: Mapping[int, str],
) -> Outcomes:
    """Apply the contract's rules to one partition.

    Args:
        model: Of it, with no state yet.
        rules: The model's.
        pipeline: Which judges by them.
        records: Of the partition, in order.
        new_ids: By offset, as the notes say.
    """
    found, source = Outcomes([], [], [], []), pipeline.source
    for record in records:
        said = model.judge(record)
        found.verdicts.append(said.verdict)
        action = "pass"
        if isinstance(said, IdSaid) and isinstance(rules, IdRules):
            if said.verdict in {"duplicate", "collision"}:
                found.told.append(receipt_value(rules, pipeline.name, source, record, said))
            if said.verdict == "collision":
                assert isinstance(rules, FingerprintRules)
                action = rules.on_collision
                if action not in {"quarantine", "drop"}:
                    found.passed.append(edited(record, said.owner, rules, source, new_ids.get(record.offset)))
                    continue
        if said.verdict == "pass":
            found.passed.append(plain(record))
        elif action == "quarantine" or said.verdict not in {"duplicate", "late", "collision"}:
            code = "id_collision" if action == "quarantine" else said.verdict
            where = f"{source}:{record.partition}:{record.offset}".encode()
            added = (("seqmark.error", code.encode()), ("seqmark.source", where))
            found.quarantined.append(plain(record)._replace(headers=record.headers + added))
    return found


def plain(record: Record) -> New:
    """Return what comes through of a record that passes as it came."""
    return New(record.key, record.value, record.headers, record.timestamp)


def without_detail(record: New) -> New:
    """Return a record of quarantine without what is for people."""
    names = [name for name, _ in record.headers[-3:]]
    assert names == ["seqmark.error", "seqmark.detail", "seqmark.source"], names
    return record._replace(headers=tuple(each for each in record.headers if each[0] != "seqmark.detail"))


def edited(record: Record, owner: int, rules: FingerprintRules, source: str, new_id: str | None) -> New:
    """Return a collision as it is in the sink.

    Args:
        record: As it came.
        owner: The offset of the earliest one of its id.
        rules: What becomes of it.
        source: The topic.
        new_id: As the note says; None: it says none.
    """
    changed = batches.on_wire(record)
    if rules.on_collision == "tag":
        changed = collisions.tagged(changed, f"{source}:{record.partition}:{owner}")
    if rules.rename is not None:
        assert new_id is not None, f"the note of {record.offset} has no new id"
        to, keep = rules.rename["to"], rules.rename.get("keep", "header")
        kept = None if keep == "header" else keep
        if to.startswith("header:"):
            name = to.removeprefix("header:").encode()
            changed = collisions.renamed_in_header(changed, name, kept, new_id)
        else:
            changed = collisions.renamed_in_value(changed, to, kept, new_id)
    headers = tuple((name.decode(), value) for name, value in changed.headers)
    return New(changed.key, changed.value, headers, changed.timestamp)


def new_ids_of(notes: Sequence[Mapping[str, Any]]) -> dict[int, str]:
    """Return the new ids that some notes say, by offset."""
    return {each["offset"]: each["new_id"] for each in notes if "new_id" in each}


def foretold(notes: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return receipts and notes without what only who has the secret can foretell."""
    return [{key: value for key, value in each.items() if key not in ONLY_NOTED} for each in notes]


def assert_hashes(
    rules: FingerprintRules, records: Mapping[int, Record], told: Sequence[dict[str, Any]]
) -> None:
    """Notes show equal fingerprints of equal contents, and one new id for each id and content; of no others.

    Args:
        rules: What tells contents apart.
        records: Of one partition, by offset.
        told: Its receipts and notes.
    """
    prints: dict[Any, str] = {}
    new_ids: dict[Any, str] = {}
    for note in told:
        if note["verdict"] != "collision":
            assert not ONLY_NOTED & note.keys(), f"a receipt says {note}"
            continue
        came, owner = records[note["offset"]], records[note["owner"]["offset"]]
        for record, shown_as in ((came, note["fingerprint"]), (owner, note["owner_fingerprint"])):
            assert len(shown_as) == 16
            assert set(shown_as) <= set("0123456789abcdef")
            content = fingerprint_of(record, rules.fingerprint)
            assert prints.setdefault(content, shown_as) == shown_as, f"{record.offset} has another fingerprint"
        assert ("new_id" in note) == (rules.on_collision == "rename")
        if "new_id" in note:
            made = uuid.UUID(note["new_id"])
            assert (str(made), made.version, made.variant) == (note["new_id"], 8, uuid.RFC_4122)
            name = id_of(came, rules), fingerprint_of(came, rules.fingerprint)
            assert new_ids.setdefault(name, note["new_id"]) == note["new_id"], "a new id is another in a replay"
    assert len(set(prints.values())) == len(prints), "two contents have one fingerprint"
    assert len(set(new_ids.values())) == len(new_ids), "two contents have one new id"


def unfit(model: Model | IdModel, offsets: Sequence[int]) -> None:
    """Have a model know which records their tag or new id makes too large."""
    if isinstance(model, FingerprintModel):
        model.unfit = frozenset(offsets)


def receipt_value(rules: IdRules, pipeline: str, source: str, record: Record, said: IdSaid) -> dict[str, Any]:
    """Return what the receipt of a duplicate says, or without `ONLY_NOTED` the note of a collision.

    Args:
        rules: The model's.
        pipeline: Its name.
        source: Its topic.
        record: Of it.
        said: What the model says of the record.
    """
    place = {"topic": source, "partition": record.partition}
    value: dict[str, Any] = {
        "pipeline": pipeline,
        **place,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "verdict": said.verdict,
        "mode": "insert-id",
        "id": shown(record, rules),
        "owner": {**place, "offset": said.owner},
    }
    if said.expires_ms:
        value["expires_at"] = said.expires_ms
    if said.verdict == "collision":
        assert isinstance(rules, FingerprintRules)
        value["action"] = rules.on_collision
    return value
