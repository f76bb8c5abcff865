"""The one declaration of every key of the config.

Default, help, environment variable and `docs/configuration.md` all come from the fields declared here.
Attributes carry the key's own name (``from`` is `from_`: it is a word of Python). Values are checked when
they are read: a `Settings` that exists is valid as a whole, cross-field rules included.
"""

from __future__ import annotations

from schemas.config.aggregates import (
    AggregateCall,
    ConsoleOutput,
    DeltaOutput,
    FolderOutput,
    IcebergOutput,
    KafkaOutput,
    Output,
    ParquetOutput,
    PostgresOutput,
    Sink,
    aggregate_call,
    output_column,
)
from schemas.config.batches import (
    BatchFingerprint,
    BatchInput,
    BatchOutput,
    BatchRename,
    FileBatch,
    TopicInput,
)
from schemas.config.dedup import (
    AnyId,
    BloomOptions,
    ColumnId,
    ColumnNumber,
    ColumnSource,
    ContentId,
    Dedup,
    Fingerprint,
    HeaderId,
    HeaderNumber,
    HeaderSource,
    IdPart,
    InsertIdDedup,
    KeyId,
    Rename,
    SequenceSource,
    TextId,
    ValueId,
    ValueNumber,
    ValueSource,
    WatermarkDedup,
)
from schemas.config.kafka import Kafka
from schemas.config.pipeline import InternalTopic, Pipeline
from schemas.config.settings import Settings
from schemas.config.worker import WorkerOptions

__all__ = [
    "AggregateCall",
    "AnyId",
    "BatchFingerprint",
    "BatchInput",
    "BatchOutput",
    "BatchRename",
    "BloomOptions",
    "ColumnId",
    "ColumnNumber",
    "ColumnSource",
    "ConsoleOutput",
    "ContentId",
    "Dedup",
    "DeltaOutput",
    "FileBatch",
    "Fingerprint",
    "FolderOutput",
    "HeaderId",
    "HeaderNumber",
    "HeaderSource",
    "IcebergOutput",
    "IdPart",
    "InsertIdDedup",
    "InternalTopic",
    "Kafka",
    "KafkaOutput",
    "KeyId",
    "Output",
    "ParquetOutput",
    "Pipeline",
    "PostgresOutput",
    "Rename",
    "SequenceSource",
    "Settings",
    "Sink",
    "TextId",
    "TopicInput",
    "ValueId",
    "ValueNumber",
    "ValueSource",
    "WatermarkDedup",
    "WorkerOptions",
    "aggregate_call",
    "output_column",
]
