"""Fetches the broker's jars without PySpark's Ivy, by a list with their hashes. The only importer of jgo.

``kafka_jars.json`` beside this file has what Ivy resolves: paths in a Maven repository, each with its SHA-256;
`make jars` writes it. Nothing is resolved here, and whoever serves the files cannot change them: what has
another hash is not used.
"""

from __future__ import annotations

import hashlib
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from processor.errors import BrokerError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

LOCK = Path(__file__).with_name("kafka_jars.json")
_TIMEOUT_S = 60
_AT_ONCE = 6
_UNTRUSTED = "CERTIFICATE_VERIFY_FAILED"


class UnreachableJarError(Exception):
    """A jar cannot be fetched; says which and why."""


def locked(coordinates: Sequence[str]) -> dict[str, str]:
    """Return the jars of these coordinates, path in a repository to SHA-256; none where no list is kept."""
    lock = json.loads(LOCK.read_bytes())
    jars: dict[str, str] = lock["jars"] if lock["coordinates"] == list(coordinates) else {}
    return jars


def mirror(ivy_settings: Path) -> str | None:
    """Return the repository that the user's settings for Ivy name first, ``<ibiblio root="...">``.

    None: there are no settings, so it is Maven Central.

    Raises:
        BrokerError: There are settings, and they name none so.
    """
    if not ivy_settings.is_file():
        return None
    try:
        # The user's own file, in a folder that nobody else can write to.
        found = ET.parse(ivy_settings).iter("ibiblio")  # noqa: S314 - see above
        root = next((root for each in found if (root := each.get("root"))), None)
    except ET.ParseError as error:
        raise BrokerError(f"{ivy_settings} is not XML: {error}") from error
    if root is None or not root.startswith(("https://", "http://")):
        raise BrokerError(
            f'{ivy_settings} has no <ibiblio root="https://..."/>: name your mirror so, or install Ivy, which '
            "understands all settings: pip install 'seqmark[spark]'"
        )
    return root.rstrip("/")


def download(jars: Mapping[str, str], root: str | None, folder: Path, say: Callable[[str], None]) -> None:
    """Fetch the jars of a list into a folder that is there, some at a time.

    Args:
        jars: Path in a Maven repository to SHA-256.
        root: Address of the repository; None: Maven Central.
        folder: Where they go.
        say: Told the name of each.

    Raises:
        UnreachableJarError: One cannot be fetched.
        BrokerError: One is not the file that the list means.
        OSError: The folder cannot be written.
    """
    beside = folder.with_name("repository")
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        fetched = pool.map(lambda path: _fetched(path, root, beside), jars)
        for digest, jar in zip(jars.values(), fetched, strict=True):
            if hashlib.sha256(jar.read_bytes()).hexdigest() != digest:
                raise BrokerError(
                    f"{root or 'Maven Central'} serves a {jar.name} that is not the one that this version of "
                    "Seqmark was tested with: its SHA-256 is another. It is not used: name another repository "
                    "in an Ivy settings file"
                )
            jar.rename(folder / jar.name)
            say(f"  {jar.name}")


def _fetched(path: str, root: str | None, folder: Path) -> Path:
    # A client of Maven repositories in plain Python; slow to import, and needed once per machine.
    from jgo.maven import MavenContext  # noqa: PLC0415 - see above

    *group, name, revision, _ = PurePosixPath(path).parts
    context = MavenContext(
        repo_cache=folder, local_repos=[], remote_repos={"mirror": root} if root else None, timeout=_TIMEOUT_S
    )
    try:
        jar: Path = (
            context.project(".".join(group), name).at_version(revision).artifact(packaging="jar").resolve()
        )
    except (OSError, RuntimeError) as error:
        if getattr(error, "errno", None):  # of the disk; those of the network are wrapped, and have none
            raise
        raise UnreachableJarError(f"{path}: {error}{_trust(str(error))}") from error
    return jar


def _trust(said: str) -> str:
    """Say how to trust who looks into TLS on the way: the machine's own list of certificates is not asked."""
    if _UNTRUSTED not in said:
        return ""
    return ". If a proxy looks into TLS here, name its certificate: REQUESTS_CA_BUNDLE=/path/to/ca.pem"
