"""Options of a worker that are the same for all its pipelines."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from schemas.config.values import ConfigTable, Endpoint, HostName, Name, SizeBytes, Text, WholeNumber

Milliseconds = Annotated[WholeNumber, Field(ge=1)]


class WorkerOptions(ConfigTable):
    """The table ``[worker]``."""

    application_id: Name = Field(
        description="Consumer group, and prefix of transactional ids and internal topics. "
        "Another one starts with empty state."
    )
    state_dir: Path = Field(
        default=Path("var/state"),
        description="Folder of the local state: a copy of the changelog, rebuilt where it is gone. "
        "Workers on one host may share it: each takes a folder of its own in it.",
    )
    guarantee: Literal["exactly_once", "at_least_once"] = Field(
        default="exactly_once",
        description="exactly_once writes output, state and offset in one transaction; "
        "at_least_once may repeat output after a crash.",
    )
    commit_interval_ms: Annotated[Milliseconds, Field(le=60_000)] = Field(
        default=100, description="How often a transaction is committed, at most; a reader's delay."
    )
    # The broker has bounds of its own: group.min/max.session.timeout.ms, 6 s and 30 min by default.
    session_timeout_ms: Annotated[WholeNumber, Field(ge=1_000, le=1_800_000)] = Field(
        default=45_000,
        description="A worker that is silent for so long loses its partitions. "
        "Brokers accept 6000 to 1800000 by default.",
    )
    # The broker's bound is transaction.max.timeout.ms, 15 min by default.
    transaction_timeout_ms: Annotated[WholeNumber, Field(ge=1_000, le=900_000)] = Field(
        default=60_000,
        description="The broker aborts a transaction that is open for so long. Above `commit_interval_ms`.",
    )
    group_instance_id: Name | None = Field(
        default=None,
        description="Static membership, one name per worker: a restart within the session time-out "
        "moves no partitions.",
    )
    start: Literal["earliest", "latest"] = Field(
        default="earliest", description="Where a pipeline without state begins."
    )
    create_topics: bool = Field(
        default=True,
        description="Create topics that are missing at start, as `seqmark topics` does.",
    )
    slots: Annotated[WholeNumber, Field(ge=1, le=1_024)] = Field(
        default=4,
        description="Per pipeline: groups of partitions that move and commit together. The same for "
        "all workers of an application; those above the partition count stay empty.",
    )
    escape_gauge: bool = Field(
        default=True,
        description="Estimate by a sample of ids how many duplicates escape (mode insert-id): up to 18 MB, "
        "about 0.2 % of a core, up to 1 % where a hundred partitions commit ten times a second. Each worker "
        "knows what it has judged itself since its start.",
    )
    memory_limit: SizeBytes | None = Field(
        default=None,
        description='What the process may have in use, such as "4GB" (MB or GB, of 1000 each): a warning from '
        "80 % on, and at all of it the worker stops with exit 1 before the system kills it. Not set: no limit.",
    )
    web_host: Text = Field(
        default="127.0.0.1",
        description="Address that the dashboard, /status.json, /health, /ready and /metrics are served on. "
        "They know no password.",
    )
    web_port: Annotated[WholeNumber, Field(ge=0, le=65_535)] = Field(
        default=6066, description="Port of the same; 0: none. Not set and taken: the next free one."
    )
    web_names: list[HostName] = Field(
        default_factory=list,
        description="Further names by which the dashboard is opened, such as that of a proxy before it. It "
        "answers to addresses, localhost, this machine's name and these; to others it does not, for a foreign "
        "page could read it through a reader's browser.",
    )
    web_receipts: bool = Field(
        default=False,
        description="Whether the dashboard and what is beside it may show receipts, ids, keys and values of "
        "records. false: verdicts, positions and times only.",
    )
    otel_endpoint: Endpoint | None = Field(
        default=None,
        description="Base address of an OpenTelemetry collector, such as http://collector:4318, that the "
        "metrics are pushed to by OTLP over HTTP; needs the extra otel. "
        "Not set: as OTEL_EXPORTER_OTLP_ENDPOINT says.",
    )
    log_format: Literal["text", "json"] = Field(
        default="text", description="Lines for people, or one JSON object per line."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="The least level that is logged."
    )
