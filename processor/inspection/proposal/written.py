"""Writes a proposal as a config file, with the reason beside each choice."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from pydantic import SecretStr

from processor.inspection.proposal.toml_text import toml_text
from schemas.config.reference import ENV_DELIMITER, ENV_PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from processor.inspection.proposal.choose import Proposal
    from processor.inspection.proposal.names import PipelineNames
    from schemas.config import Kafka

_COLUMNS = 100
_BESIDE = 40
"""Where a remark begins that stands beside a key."""


def config_text(topic: str, records: str, kafka: Kafka, names: PipelineNames, proposal: Proposal) -> str:
    """Return the config.

    Args:
        topic: The source.
        records: What the proposal rests on, as ``1,000 records in 4 partitions``.
        kafka: How the cluster was reached; secrets are not written.
        names: Of the pipeline and its topics.
        proposal: How to judge.
    """
    head = (
        f"Proposed by `seqmark init` after a look at {records} of {topic}. A sample shows what is usual, not "
        "all that is possible: look it over."
    )
    lines = [
        *_remark(head),
        "",
        "[kafka]",
        *_kafka(kafka),
        "",
        "[worker]",
        _beside("application_id", names.pipeline, "consumer group, and prefix of internal topics"),
        "",
        "[[pipelines]]",
        f"name = {toml_text(names.pipeline)}",
        f"source = {toml_text(topic)}",
        _beside("sink", names.sink, "the clean topic: read it with isolation.level=read_committed"),
        _beside("duplicates", names.duplicates, "a receipt per dropped record"),
        _beside("quarantine", names.quarantine, "records that cannot be judged"),
        "",
        "[pipelines.dedup]",
        *_dedup(proposal),
    ]
    return "\n".join(lines) + "\n"


def _kafka(kafka: Kafka) -> Iterator[str]:
    for key in type(kafka).model_fields:
        value = getattr(kafka, key)
        if key not in kafka.model_fields_set or value is None:
            continue
        if isinstance(value, SecretStr):
            yield f"# {key}: from the environment, {ENV_PREFIX}KAFKA{ENV_DELIMITER}{key.upper()}"
        else:
            yield f"{key} = {toml_text(value if isinstance(value, bool) else str(value))}"


def _dedup(proposal: Proposal) -> Iterator[str]:
    for key, value in proposal.dedup.items():
        if key in proposal.reasons:
            yield from _remark(proposal.reasons[key])
        yield f"{key} = {toml_text(value)}"
    for text, reason in proposal.hints:
        yield from _remark(f"{reason}{':' if text else ''}")
        if text:
            yield f"# {text}"
    for note in proposal.notes:
        yield from _remark(f"Note: {note}")


def _beside(key: str, value: str, remark: str) -> str:
    return f"{f'{key} = {toml_text(value)}':<{_BESIDE - 2}}  # {remark}"


def _remark(text: str) -> Iterable[str]:
    return textwrap.wrap(text, _COLUMNS, initial_indent="# ", subsequent_indent="# ", break_long_words=False)
