"""What becomes of a batch when the database's disk is full? It waits, says why, and is in the table once."""

from __future__ import annotations

import threading
from decimal import Decimal
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg import sql
from pydantic import SecretStr

from spark_sink.outputs.postgres.batch import Batch, write_batch
from spark_sink.outputs.postgres.server import Server
from spark_sink.outputs.postgres.table import ensure
from tests.postgres.test_batch import FIELDS, row
from tests.support.kafka.topics import until
from tests.support.spark_sink.postgres import rows
from tests.support.worker.disk import mounted

if TYPE_CHECKING:
    from tests.support.spark_sink.postgres import OwnPostgres

pytestmark = pytest.mark.postgres

WAIT_S = 120.0
ROWS = 40_000
"""Some 5 MB, twice while it is written; what is left while the disk is full is less than a tenth of it."""
LEFT_BYTES = 400_000


def test_a_batch_waits_for_room_on_the_databases_disk_and_goes_in_once(own_postgres: OwnPostgres) -> None:
    own = own_postgres()
    with mounted("64m") as disk:
        # Data on the small disk, the log of transactions elsewhere: what is full is what the data needs.
        folder = disk.path / "data"
        own.give(folder)
        with psycopg.connect(own.url, autocommit=True) as owner:
            owner.execute(sql.SQL("CREATE TABLESPACE small LOCATION {}").format(str(folder)))
            owner.execute(b"CREATE DATABASE small TABLESPACE small")
        url = urlsplit(own.url)._replace(path="/small").geturl()
        told: list[str] = []
        server = Server(SecretStr(url), "hourly", told.append, patience_s=WAIT_S)
        target = server.transact("its table", lambda c: ensure(c, None, "hourly", FIELDS))
        small, large = (row("a", 1),), [row(f"c{number}", 2, "0.25") for number in range(ROWS)]
        server.transact("batch 0", lambda c: write_batch(c, target, Batch("hourly", "q", 0), small))
        done: list[bool] = []

        def write() -> None:
            batch = Batch("hourly", "q", 1)
            done.append(server.transact("batch 1", lambda c: write_batch(c, target, batch, large)))

        disk.fill(LEFT_BYTES)
        writing = threading.Thread(target=write)
        writing.start()
        try:
            until(lambda: len(told) >= 2, "it has tried twice", WAIT_S)
            assert rows(url, "SELECT campaign, events FROM hourly") == [("a", 1)]
        finally:
            disk.free()
            writing.join(WAIT_S)
        assert done == [True]
        assert "batch 1 waits for PostgreSQL" in told[0]
        assert "(53100)" in told[0]  # disk_full
        found = rows(url, "SELECT count(*), count(DISTINCT campaign), sum(revenue) FROM hourly")
        assert found == [(ROWS + 1, ROWS + 1, ROWS * Decimal("0.25"))]
        own.stop()
