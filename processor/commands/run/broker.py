"""``seqmark broker`` runs the embedded broker in the foreground until told to stop."""

from __future__ import annotations

import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import click

from processor.broker.embedded import EmbeddedBroker

_LOOK_S = 0.1


class _Stopped(BaseException):
    """Raised at SIGTERM and SIGINT; passes every `except Exception`."""


@click.command()
@click.option("--port", type=click.IntRange(0, 65535), help="Port to serve on; not set: a free one.")
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder that keeps the data; not set: a temporary one, gone at the end.",
)
def broker(port: int | None, data_dir: Path | None) -> None:
    """Run an Apache Kafka broker on this machine's Java, in the foreground.

    Prints `ready HOST:PORT` on stdout when it serves. SIGTERM or Ctrl-C stops it cleanly. The first run of
    all fetches its jars (about 45 MB) into the user's cache folder.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _stop)
    with suppress(_Stopped), EmbeddedBroker(port=port or 0, data_dir=data_dir, say=_say) as running:
        click.echo(f"ready {running.bootstrap_servers}")
        while running.alive:
            time.sleep(_LOOK_S)
        raise running.failure()


def _say(text: str) -> None:
    click.echo(text, err=True)


def _stop(*_: object) -> NoReturn:
    # Once is enough: a second signal must not cut the clean stop short.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    raise _Stopped
