"""``seqmark broker`` runs the embedded broker in the foreground until told to stop."""

from __future__ import annotations

import signal
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NoReturn

import click

from processor.broker.embedded import START_TIMEOUT, EmbeddedBroker
from processor.errors import ending_signals

_LOOK_S = 0.1


class _Stopped(BaseException):
    """Raised at a signal to end; passes every `except Exception`."""


@click.command()
@click.option("--port", type=click.IntRange(0, 65535), help="Port to serve on; not set: a free one.")
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder that keeps the data; not set: a temporary one, gone at the end.",
)
@click.option(
    "--start-timeout",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help=f"How long its start may take; not set: what {START_TIMEOUT} says, or 60.",
)
def broker(port: int | None, data_dir: Path | None, start_timeout: float | None) -> None:
    """Run an Apache Kafka broker on this machine's Java, in the foreground.

    Prints `ready HOST:PORT` on stdout when it serves. SIGTERM, SIGHUP or Ctrl-C stops it cleanly. The first
    run of all fetches its jars (about 45 MB) into the user's cache folder.
    """
    for number in ending_signals():
        signal.signal(number, _stop)
    running = EmbeddedBroker(port=port or 0, data_dir=data_dir, say=_say)
    with suppress(_Stopped), ExitStack() as ending:
        ending.callback(running.stop)
        running.start(start_timeout)
        click.echo(f"ready {running.bootstrap_servers}")
        while running.alive:
            time.sleep(_LOOK_S)
        raise running.failure()


def _say(text: str) -> None:
    click.echo(text, err=True)


def _stop(*_: object) -> NoReturn:
    # Once is enough: a second signal must not cut the clean stop short.
    for number in ending_signals():
        signal.signal(number, signal.SIG_IGN)
    raise _Stopped
