"""Fetches jars once, by lists with their hashes. The only importer of jgo.

``jars.json`` beside this file has of each set what Ivy resolves: paths in a Maven repository, each with its
SHA-256; `make jars` writes it. Nothing is resolved here, and whoever serves the files cannot change them: what
has another hash is not used. A set lies in a folder of its own, ``<cache>/jars/<name>-<revisions>``, with a
manifest. The folder appears by one rename, so it is whole or not there; a lock keeps two processes from
fetching side by side.

Jars are run: nothing is taken from a folder that others can write to, or could have (`processor.paths`).
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, NamedTuple
from xml.etree import ElementTree as ET

from processor.errors import BrokerError
from processor.paths import PRIVATE_FOLDER, cache_dir, distrust, make_private

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

LIST = Path(__file__).with_name("jars.json")
_MANIFEST = "jars.json"
_TIMEOUT_S = 60
_AT_ONCE = 6
_UNTRUSTED = "CERTIFICATE_VERIFY_FAILED"


class JarSet(NamedTuple):
    """Jars that are fetched together, with all that they need at run time.

    Attributes:
        name: Short, for the set's folder and for messages.
        coordinates: ``group:artifact:revision`` each.
        exclude: ``group:artifact`` of what is not wanted, ``*`` for any.
    """

    name: str
    coordinates: tuple[str, ...]
    exclude: tuple[str, ...] = ()


# Kafka's own logging binding is left out of kafka_2.13; slf4j-simple writes to stderr.
KAFKA_JARS = JarSet("kafka", ("org.apache.kafka:kafka_2.13:4.3.0", "org.slf4j:slf4j-simple:1.7.36"))


def resolve(wanted: JarSet, *, listed: Path = LIST, say: Callable[[str], None] = lambda _: None) -> list[Path]:
    """Return the jars of a set, sorted; what the cache holds whole at once, without a network.

    Args:
        wanted: The set.
        listed: The file that lists its jars.
        say: Told of each step, for a person to read.

    Raises:
        BrokerError: The jars are not reachable or not those of the list, or the cache cannot be written, or can
            be by others; says what to do.
    """
    revisions = (coordinate.rpartition(":")[2] for coordinate in wanted.coordinates)
    folder = cache_dir() / "jars" / "-".join([wanted.name, *revisions])
    try:
        _require_trust("jars", folder.name)
        if jars := _cached(folder, wanted):
            return jars
        make_private(cache_dir().parent, cache_dir().name, "jars")
        _require_trust("jars")
        with _locked(folder.parent / ".lock", say):
            if jars := _cached(folder, wanted):  # the process we waited for has done it
                return jars
            say(f"fetching the jars of {wanted.name}, once: {', '.join(wanted.coordinates)}")
            with tempfile.TemporaryDirectory(prefix=".fetch-", dir=folder.parent) as made:
                _download(jars_of(wanted, listed), Path(made), folder, say)
                _publish(Path(made) / "jars", folder, wanted)
    except OSError as exc:
        raise BrokerError(_cannot_write(exc, folder)) from exc
    return _cached(folder, wanted)


def jars_of(wanted: JarSet, listed: Path = LIST) -> dict[str, str]:
    """Return the jars of a set: path in a repository to SHA-256.

    Raises:
        BrokerError: It is not in the list.
    """
    meant = list(wanted.coordinates), list(wanted.exclude)
    for each in json.loads(listed.read_bytes()):
        if (each["coordinates"], each["exclude"]) == meant:
            jars: dict[str, str] = each["jars"]
            return jars
    raise BrokerError(
        f"this version of Seqmark has no list of the jars of {', '.join(wanted.coordinates)}: it was not "
        f"tested with them ({listed}; `make jars` writes it)"
    )


def _require_trust(*names: str) -> None:
    """Refuse a folder of the cache that others than this user and root can write to, or could have."""
    cache = cache_dir()
    if (why := distrust(cache.parent, cache.name, *names)) is not None:
        raise BrokerError(
            f"jars of the cache {cache} are not run: {why}. Whoever can write there could have their code run "
            "as this user. Remove it, or set XDG_CACHE_HOME to a folder that only this user can write to."
        )


def _cached(folder: Path, wanted: JarSet) -> list[Path]:
    """Return the jars of a whole set, or nothing: a missing or cut-off jar spoils it."""
    try:
        manifest = json.loads((folder / _MANIFEST).read_bytes())
        sizes: dict[str, int] = manifest.pop("jars")
        whole = manifest == _meant(wanted) and all(
            (folder / jar).stat().st_size == size for jar, size in sizes.items()
        )
    except (OSError, ValueError, KeyError, AttributeError):
        return []
    return [folder / jar for jar in sorted(sizes)] if whole else []


def _meant(wanted: JarSet) -> dict[str, list[str]]:
    return {"coordinates": list(wanted.coordinates), "exclude": list(wanted.exclude)}


@contextmanager
def _locked(lock: Path, say: Callable[[str], None]) -> Iterator[None]:
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another process that is fetching jars")
            fcntl.flock(file, fcntl.LOCK_EX)
        for stale in lock.parent.glob(".fetch-*"):  # of a process that was killed
            shutil.rmtree(stale, ignore_errors=True)
        yield


def _own_settings() -> Path:
    return cache_dir() / "ivysettings.xml"


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
        raise BrokerError(f'{ivy_settings} has no <ibiblio root="https://..."/>: name your mirror so')
    return root.rstrip("/")


def _download(jars: Mapping[str, str], work: Path, folder: Path, say: Callable[[str], None]) -> None:
    """Fetch the jars of a list, some at a time, into ``jars`` in the folder ``work``."""
    root = mirror(_own_settings())
    (work / "jars").mkdir(mode=PRIVATE_FOLDER)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        fetched = pool.map(lambda path: _fetched(path, root, work / "repository", folder), jars)
        for digest, jar in zip(jars.values(), fetched, strict=True):
            if hashlib.sha256(jar.read_bytes()).hexdigest() != digest:
                raise BrokerError(
                    f"{root or 'Maven Central'} serves a {jar.name} that is not the one that this version of "
                    "Seqmark was tested with: its SHA-256 is another. It is not used: name another repository "
                    "in an Ivy settings file"
                )
            jar.rename(work / "jars" / jar.name)
            say(f"  {jar.name}")


def _fetched(path: str, root: str | None, repository: Path, folder: Path) -> Path:
    # A client of Maven repositories in plain Python; slow to import, and needed once per machine.
    from jgo.maven import MavenContext  # noqa: PLC0415 - see above

    *group, name, revision, _ = PurePosixPath(path).parts
    context = MavenContext(
        repo_cache=repository,
        local_repos=[],
        remote_repos={"mirror": root} if root else None,
        timeout=_TIMEOUT_S,
    )
    try:
        jar: Path = (
            context.project(".".join(group), name).at_version(revision).artifact(packaging="jar").resolve()
        )
    except (OSError, RuntimeError) as error:
        if getattr(error, "errno", None):  # of the disk; those of the network are wrapped, and have none
            raise
        raise BrokerError(_unreachable(f"{path}: {error}{_trust(str(error))}", folder)) from error
    return jar


def _trust(said: str) -> str:
    """Say how to trust who looks into TLS on the way: the machine's own list of certificates is not asked."""
    if _UNTRUSTED not in said:
        return ""
    return ". If a proxy looks into TLS here, name its certificate: REQUESTS_CA_BUNDLE=/path/to/ca.pem"


def _publish(fetched: Path, folder: Path, wanted: JarSet) -> None:
    sizes = {jar.name: jar.stat().st_size for jar in sorted(fetched.glob("*.jar"))}
    (fetched / _MANIFEST).write_text(json.dumps({**_meant(wanted), "jars": sizes}, indent=1), "utf-8")
    shutil.rmtree(folder, ignore_errors=True)  # a spoiled set, or none
    fetched.rename(folder)


def _unreachable(why: str, folder: Path) -> str:
    return (
        f"the jars of {folder.name} are not in the cache and cannot be fetched: {why}\n"
        "Do one of these: run this command once with the network at hand (HTTPS_PROXY is "
        f"honoured); copy the folder {folder} from a machine where it ran; or name your mirror "
        f"in an Ivy settings file {_own_settings()}."
    )


def _cannot_write(exc: OSError, folder: Path) -> str:
    cache = f"the cache {folder.parent}"
    if exc.errno in (errno.ENOSPC, errno.EDQUOT):
        return (
            f"the disk of {cache} is full: free about 200 MB there, "
            f"or set XDG_CACHE_HOME to a folder on another disk ({os.strerror(exc.errno)})."
        )
    return f"{cache} cannot be used: {exc}. Make it writable, or set XDG_CACHE_HOME to a folder that is."
