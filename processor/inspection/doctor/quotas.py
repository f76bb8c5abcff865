"""Asks which quotas brokers keep a worker to (KIP-546).

A quota is set for a user, for a client id, or for both, by name or for all that have none of their own. Brokers
take the most specific one, and say nothing of it before it bites.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from processor.kafka.client import KafkaCode, KafkaError, error_name
from processor.kafka.protocol.quota_requests import DescribeClientQuotasRequest, QuotaMatch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from processor.inspection.doctor.rows import Trials
    from processor.kafka.client import Client
    from schemas.config import Settings

PART = "rights"
TRIED = "quotas of this user and the workers' client ids (DescribeClientQuotas)"
USER, CLIENT = "user", "client-id"
MOST_BATCH_BYTES = 1_048_588
"""Kafka's default for ``max.message.bytes``."""
WINDOW_S = 10
"""What brokers look at, by default. They cut a batch for nobody, and send none that is more than the quota
allows in that time (`KafkaApis.handleFetchRequest`): it is asked for again for ever."""
_SHOWN = 5


class _Quota(NamedTuple):
    """A quota: Kafka's key, its value, and by type whom it is for; None: all without one of their own."""

    key: str
    value: float
    whom: dict[str, str | None]

    def __str__(self) -> str:
        names = ", ".join(
            f"all {kind}s" if name is None else f"{kind} {name}" for kind, name in self.whom.items()
        )
        return f"{self.key} {self.value:,.0f} for {names}"


async def try_quotas(client: Client, settings: Settings, trials: Trials) -> None:
    """Note which there are."""
    try:
        found = [quota for quota in await _quotas(client, _user(settings)) if _is_ours(quota, settings)]
    except (KafkaError, TimeoutError) as error:
        trials.not_tried(PART, TRIED, f"not told: {str(error) or repr(error)}")
        return
    said = "; ".join(map(str, found[:_SHOWN])) + (f" and {len(found) - _SHOWN} more" if found[_SHOWN:] else "")
    low = [
        each for each in found if each.key == "consumer_byte_rate" and each.value * WINDOW_S < MOST_BATCH_BYTES
    ]
    if low:
        least = -(-MOST_BATCH_BYTES // WINDOW_S)
        advice = f"raise consumer_byte_rate to {least:,} or more: brokers never send a batch larger than "
        trials.warning(PART, TRIED, said, f"{advice}{WINDOW_S} s of it, and those of 1 MiB are common")
    else:
        trials.ok(PART, TRIED, said or "none")


def _user(settings: Settings) -> str | None:
    """Return who a worker is to brokers; None: only they know, by its certificate."""
    kafka = settings.kafka
    if kafka.security_protocol.startswith("SASL"):
        return kafka.sasl_plain_username
    return None if kafka.ssl_certfile else "ANONYMOUS"


def _is_ours(quota: _Quota, settings: Settings) -> bool:
    name = quota.whom.get(CLIENT)
    return name is None or name.startswith(f"{settings.worker.application_id}-")


async def _quotas(client: Client, user: str | None) -> list[_Quota]:
    """Return what is set for a user, for all users, and for client ids of whatever user.

    Raises:
        KafkaError: Brokers do not say.
    """
    users = [(QuotaMatch.ANY, None)] if user is None else [(QuotaMatch.NAME, user), (QuotaMatch.DEFAULT, None)]
    found: list[_Quota] = []
    for kind, (match, name) in [*((USER, each) for each in users), (CLIENT, (QuotaMatch.ANY, None))]:
        request = DescribeClientQuotasRequest(kind, match, name, strict=kind == CLIENT)
        answer = await client.request(await client.any_node(), request)
        if answer.error_code == KafkaCode.CLUSTER_AUTHORIZATION_FAILED:
            raise KafkaError("grant this principal DESCRIBE_CONFIGS on the cluster")
        if answer.error_code:
            raise KafkaError(error_name(answer.error_code))
        found += _read(answer.entries or ())
    return found


def _read(entries: Sequence[tuple[Sequence[tuple[str, str | None, object]], ...]]) -> Iterator[_Quota]:
    for entity, values, *_ in entries:
        whom = {kind: name for kind, name, _ in entity}
        for key, value, _ in values:
            yield _Quota(key, float(value), whom)  # type: ignore[arg-type]  # untyped protocol
