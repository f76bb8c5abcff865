"""The whole config; validation finds all problems at once."""

from collections.abc import Mapping
from typing import Any, Self

from pydantic import Field, ModelWrapValidatorHandler, ValidationError, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from schemas.config.aggregates import Sink
from schemas.config.batches import FileBatch
from schemas.config.kafka import Kafka
from schemas.config.pipeline import Pipeline
from schemas.config.rules import reads_a_topic, uses_kafka, violations
from schemas.config.values import ConfigTable, wrong
from schemas.config.worker import WorkerOptions

_UNUSED = {
    "kafka": {"bootstrap_servers": "no-kafka-in-this-config.invalid:9092"},  # RFC 2606: it never resolves
    "worker": {"application_id": "no-worker-in-this-config"},
}
"""What stands for the tables that a config of batches alone need not have."""


class Settings(ConfigTable):
    """The whole config file."""

    kafka: Kafka = Field(description="How the cluster is reached.")
    worker: WorkerOptions = Field(description="How a worker runs.")
    pipelines: list[Pipeline] = Field(
        default_factory=list, description="What is made clean, from where to where."
    )
    aggregates: list[Sink] = Field(default_factory=list, description="What Spark makes of the clean topics.")
    batches: list[FileBatch] = Field(
        default_factory=list,
        description="Files at rest that Spark makes clean. A config with these alone needs no other table.",
    )

    @model_validator(mode="wrap")
    @classmethod
    def _everything_at_once(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        # pydantic would run cross-field rules only where no field is wrong: a user would then fix his
        # file twice. The rules therefore read what was written, not the finished model.
        if isinstance(data, Mapping) and data.get("batches") and not uses_kafka(data):
            needed = {"kafka"} if reads_a_topic(data) else set()
            data = {**{key: table for key, table in _UNUSED.items() if key not in needed}, **data}
        errors: list[InitErrorDetails] = []
        settings: Self | None = None
        try:
            settings = handler(data)
        except ValidationError as error:
            errors += [_again(details) for details in error.errors(include_url=False)]
        if isinstance(data, Mapping):
            errors += [
                InitErrorDetails(type=wrong(message), loc=where, input=None)
                for where, message in violations(data)
            ]
        if errors or settings is None:
            raise ValidationError.from_exception_data(cls.__name__, errors, hide_input=True)
        return settings


def _again(details: Any) -> InitErrorDetails:
    """Make an error raisable once more; its input is left behind, for it may be a secret."""
    context = {"message": details["msg"], **details.get("ctx", {})}
    kind = PydanticCustomError(details["type"], "{message}", context)
    return InitErrorDetails(type=kind, loc=details["loc"], input=None)
