"""Sets quotas of client ids, which no other client of a broker feels."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING

from processor.kafka.client import Client
from processor.kafka.protocol.requests import NO_TAGS, FlexibleRequest

if TYPE_CHECKING:
    from collections.abc import Iterator


class AlterClientQuotasRequest(FlexibleRequest):
    """Sets one (KIP-546), or with None takes it away."""

    API_KEY, VERSION = 49, 1
    ASKS = """
        entries[entity[entity_type:text name:text] ops[key:text value:float64 remove:bool]] validate_only:bool
    """
    ANSWER = """
        throttle_time_ms:int32
        entries[error_code:int16 error_message:text entity[entity_type:text name:text]]
    """

    def __init__(self, client_id: str, key: str, value: float | None) -> None:
        entity = [("client-id", client_id, NO_TAGS)]
        super().__init__([(entity, [(key, value or 0.0, value is None, NO_TAGS)], NO_TAGS)], False)


@contextmanager
def quotas(bootstrap: str, *wanted: tuple[str, str, float]) -> Iterator[None]:
    """Have quotas (client id, key, value) while the block runs."""

    async def alter(*, there: bool) -> None:
        client = await Client.open({"bootstrap_servers": bootstrap}, "quotas")
        try:
            await client.inner.force_metadata_update()
            for name, key, value in wanted:
                request = AlterClientQuotasRequest(name, key, value if there else None)
                answer = await client.request(await client.any_node(), request)
                assert answer.entries[0][0] == 0, answer
        finally:
            await client.close()

    asyncio.run(alter(there=True))
    try:
        yield
    finally:
        asyncio.run(alter(there=False))
