"""Fetches the jars, on a machine without Maven.

The Ivy jar that PySpark carries fetches them from Maven Central once. Without PySpark the broker's are fetched
by a list with their hashes (`processor.broker.locked_jars`). A set lies in a folder of its own,
``<cache>/jars/<name>-<revisions>``, with a manifest ``jars.json``. The folder appears by one rename, so it is
whole or not there; a lock keeps two processes from fetching side by side.

Jars are run, and what Ivy has or is told decides which: nothing is taken from a folder that others can
write to, or could have (`processor.paths`).
"""

from __future__ import annotations

import errno
import fcntl
import importlib.util
import json
import os
import re
import shutil
import subprocess
import tempfile
import threading
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from processor.broker.java import find_java
from processor.broker.locked_jars import UnreachableJarError, download, locked, mirror
from processor.errors import BrokerError, MissingExtraError
from processor.ops.extras import install
from processor.paths import OTHERS, PRIVATE_FOLDER, cache_dir, distrust, make_private

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

# Kafka's own logging binding is left out of kafka_2.13; slf4j-simple writes to stderr.
KAFKA_JARS = ("org.apache.kafka:kafka_2.13:4.3.0", "org.slf4j:slf4j-simple:1.7.36")

# About 100 files one after the other took 40 s at 150 ms per request; this is for far slower lines.
_FETCH_TIMEOUT_S = 900

_MANIFEST = "jars.json"
# Read by Ivy when the user has no settings of his own. `ibiblio` without a root is Maven Central. Without
# `required` Ivy takes a POM that does not come for one that names nothing, and the set for whole.
_SETTINGS = """<ivysettings>
  <settings defaultResolver="central"/>
  <timeout-constraints>
    <timeout-constraint name="line" connectionTimeout="10000" readTimeout="60000"/>
  </timeout-constraints>
  <resolvers><ibiblio name="central" m2compatible="true" descriptor="required"
    timeoutConstraint="line"/></resolvers>
</ivysettings>
"""
_UNREACHABLE = re.compile(
    r"Server access error|UnknownHost|ConnectException|SocketTimeout|NoRouteToHost|"
    r"SSLHandshake|SSLException|Host \S+ not found",
)
_DISK_FULL = "No space left on device"


def resolve(
    coordinates: Sequence[str],
    name: str,
    *,
    exclude: Sequence[str] = (),
    say: Callable[[str], None] = lambda _: None,
) -> list[Path]:
    """Return the jars of these Maven coordinates with all that they need at run time, sorted.

    What the cache holds whole is returned at once: no Java, no network. Otherwise Ivy fetches it,
    which needs both and takes up to a minute; or, without PySpark, the list that is kept of it.

    Args:
        coordinates: ``group:artifact:revision`` each.
        name: Short name of the set, for its folder and for messages.
        exclude: ``group:artifact`` of what is not wanted, ``*`` for any.
        say: Told of each step, for a person to read.

    Raises:
        BrokerError: There is no suitable Java, the jars are not reachable, or the cache cannot be
            written, or can be by others; says what to do.
        MissingExtraError: There is no PySpark, and no list is kept of these coordinates.
    """
    modules = [_split(coordinate, 3) for coordinate in coordinates]
    excluded = [_split(pattern, 2) for pattern in exclude]
    wanted = {"coordinates": list(coordinates), "exclude": list(exclude)}
    folder = cache_dir() / "jars" / "-".join([name, *(revision for *_, revision in modules)])
    try:
        _require_trust("jars", folder.name)
        if jars := _cached(folder, wanted):
            return jars
        for part in ("jars", "ivy"):
            make_private(cache_dir().parent, cache_dir().name, part)
            _require_trust(part)
        with _locked(folder.parent / ".lock", say):
            if jars := _cached(folder, wanted):  # the process we waited for has done it
                return jars
            say(f"fetching the jars of {name}, once (up to a minute): {', '.join(coordinates)}")
            with tempfile.TemporaryDirectory(prefix=".fetch-", dir=folder.parent) as made:
                work = Path(made)
                if (ivy := _ivy_jar()) is not None:
                    (work / "ivy.xml").write_text(_ivy_file(modules, excluded), encoding="utf-8")
                    _run_ivy(ivy, work, name, folder, say)
                else:
                    _download(coordinates, work, name, folder, say)
                _publish(work / "jars", folder, wanted)
    except OSError as exc:
        raise BrokerError(_cannot_write(exc, folder)) from exc
    jars = _cached(folder, wanted)
    if not jars:
        raise BrokerError(f"no jar was fetched for {', '.join(coordinates)} into {folder}.")
    return jars


def _require_trust(*names: str) -> None:
    """Refuse a folder of the cache that others than this user and root can write to, or could have."""
    cache = cache_dir()
    if (why := distrust(cache.parent, cache.name, *names)) is not None:
        raise BrokerError(
            f"jars of the cache {cache} are not run: {why}. Whoever can write there could have their code run "
            "as this user. Remove it, or set XDG_CACHE_HOME to a folder that only this user can write to."
        )


def _split(coordinate: str, parts: int) -> list[str]:
    fields = coordinate.split(":")
    if len(fields) != parts or not all(re.fullmatch(r"[\w.*-]+", field) for field in fields):
        raise ValueError(f"not {parts} names with a colon between them: {coordinate!r}")
    return fields


def _cached(folder: Path, wanted: dict[str, list[str]]) -> list[Path]:
    """Return the jars of a whole set, or nothing: a missing or cut-off jar spoils it."""
    try:
        manifest = json.loads((folder / _MANIFEST).read_bytes())
        sizes: dict[str, int] = manifest.pop("jars")
        whole = manifest == wanted and all((folder / jar).stat().st_size == size for jar, size in sizes.items())
    except (OSError, ValueError, KeyError, AttributeError):
        return []
    return [folder / jar for jar in sorted(sizes)] if whole else []


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


def _ivy_file(modules: list[list[str]], excluded: list[list[str]]) -> str:
    # `default->default` is what a program needs to run: no sources, no javadoc, nothing optional.
    lines = [
        '<ivy-module version="2.0"><info organisation="seqmark" module="jars"/>',
        '<configurations><conf name="default"/></configurations><dependencies>',
        *(
            f'<dependency org="{org}" name="{module}" rev="{revision}" conf="default->default"/>'
            for org, module, revision in modules
        ),
        *(f'<exclude org="{org}" module="{module}"/>' for org, module in excluded),
        "</dependencies></ivy-module>",
    ]
    return "\n".join(lines)


def _own_settings() -> Path:
    return cache_dir() / "ivysettings.xml"


def _download(
    coordinates: Sequence[str], work: Path, name: str, folder: Path, say: Callable[[str], None]
) -> None:
    jars = locked(coordinates)
    if not jars:
        raise MissingExtraError(f"fetching {', '.join(coordinates)} {install(['spark'])}")
    (work / "jars").mkdir(mode=PRIVATE_FOLDER)
    try:
        download(jars, mirror(_own_settings()), work / "jars", say)
    except UnreachableJarError as error:
        raise BrokerError(_unreachable(str(error), name, folder)) from error


def _run_ivy(ivy: Path, work: Path, name: str, folder: Path, say: Callable[[str], None]) -> None:
    own_settings = _own_settings()
    settings = own_settings if own_settings.is_file() else work / "ivysettings.xml"
    if settings != own_settings:
        settings.write_text(_SETTINGS, encoding="utf-8")
    ivy_cache = cache_dir() / "ivy"
    command: list[str | Path] = [
        find_java().path,
        "-Xmx256m",
        *_proxy_flags(),
        f"-Divy.default.ivy.user.dir={ivy_cache}",  # otherwise a folder in the user's home
        *("-jar", ivy, "-settings", settings, "-cache", ivy_cache),
        *("-ivy", "ivy.xml", "-types", "jar", "bundle"),
        # Relative, for Ivy takes brackets in a path for a pattern.
        *("-retrieve", "jars/[artifact]-[revision](-[classifier]).[ext]"),
    ]
    said: list[str] = []
    # A list of arguments, with an executable that find_java has tried.
    with subprocess.Popen(  # noqa: S603 - see above
        command,
        cwd=work,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        umask=OTHERS,  # what it makes is looked at before it is used again
    ) as process:
        watch = threading.Timer(_FETCH_TIMEOUT_S, process.kill)
        watch.start()
        try:
            for line in process.stdout or ():
                said.append(line.rstrip())
                if line.startswith("downloading "):
                    say("  " + line.split()[1].rpartition("/")[2])
        except BaseException:
            process.kill()
            raise
        finally:
            watch.cancel()
    if process.returncode != 0:
        raise BrokerError(_cannot_fetch(said, name, folder))


def _publish(fetched: Path, folder: Path, wanted: dict[str, list[str]]) -> None:
    sizes = {jar.name: jar.stat().st_size for jar in sorted(fetched.glob("*.jar"))}
    (fetched / _MANIFEST).write_text(json.dumps({**wanted, "jars": sizes}, indent=1), "utf-8")
    shutil.rmtree(folder, ignore_errors=True)  # a spoiled set, or none
    fetched.rename(folder)


def _ivy_jar() -> Path | None:
    # Found, not imported: PySpark starts slowly, and only the Spark side may depend on its code.
    spec = importlib.util.find_spec("pyspark")
    for place in (spec and spec.submodule_search_locations) or ():
        for jar in sorted((Path(place) / "jars").glob("ivy-*.jar")):
            return jar
    return None


def _proxy_flags() -> list[str]:
    """Tell Java of the proxies that the environment names for everybody else."""
    proxies = urllib.request.getproxies()
    flags = []
    for scheme in ("http", "https"):
        proxy = urlsplit(proxies.get(scheme, ""))
        if proxy.hostname:
            flags += [f"-D{scheme}.proxyHost={proxy.hostname}"]
            flags += [f"-D{scheme}.proxyPort={proxy.port or 80}"]
    if flags and (direct := proxies.get("no")):
        hosts = (host.strip() for host in direct.split(","))
        names = "|".join("*" + host if host.startswith(".") else host for host in hosts if host)
        flags.append(f"-Dhttp.nonProxyHosts={names}")
    return flags


def _cannot_fetch(said: list[str], name: str, folder: Path) -> str:
    text = "\n".join(said)
    if _DISK_FULL in text:
        return _cannot_write(OSError(errno.ENOSPC, _DISK_FULL), folder)
    lines = [line.strip() for line in said if _UNREACHABLE.search(line)]
    if lines:
        # The last one tells enough: the rest are the same for other files.
        return _unreachable(lines[-1], name, folder)
    tail = "\n".join(f"  {line}" for line in said[-15:] if line.strip())
    return f"Ivy cannot resolve the jars of {name}:\n{tail}"


def _unreachable(why: str, name: str, folder: Path) -> str:
    return (
        f"the jars of {name} are not in the cache and cannot be fetched: {why}\n"
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
