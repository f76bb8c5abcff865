"""Writes the lists of jars with their hashes, which Ivy resolves: ``python -m packing.jars``.

The Ivy jar that PySpark carries resolves each set; it needs a network and Java. The list of the product's own
sets goes into its package. Those of the tests' other brokers and of what is measured for comparison stay here.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import tempfile
from pathlib import Path

import click
import pyspark

from benchmarks.peers import flink, java, kafka_streams
from processor.broker.jars import KAFKA_JARS, LIST, JarSet
from processor.broker.java import find_java
from processor.errors import BrokerError
from processor.paths import OTHERS, cache_dir, make_private
from spark_sink.session import CONNECTOR, LAKES
from tests.support.kafka import versions

_LIMIT_S = 900
# `ibiblio` without a root is Maven Central. Without `required` Ivy takes a POM that does not come for one that
# names nothing, and the set for whole.
SETTINGS = """<ivysettings><settings defaultResolver="central"/><resolvers>
<ibiblio name="central" m2compatible="true" descriptor="required"/></resolvers></ivysettings>"""


def lists() -> dict[Path, list[JarSet]]:
    """Return which sets stand in which list."""
    return {
        LIST: [KAFKA_JARS, CONNECTOR, *LAKES.values()],
        versions.LIST: list(map(versions.jars, versions.OTHERS)),
        java.LIST: [kafka_streams.JARS, flink.JARS],
    }


def resolved(wanted: JarSet, settings: str = SETTINGS) -> dict[str, str]:
    """Return the jars of a set with all that they need at run time: paths in a repository to SHA-256.

    Raises:
        BrokerError: Ivy cannot resolve them; says what it has said.
    """
    cache = cache_dir() / "ivy"
    make_private(cache_dir().parent, cache_dir().name, cache.name)
    with tempfile.TemporaryDirectory() as made:
        work = Path(made)
        (work / "settings.xml").write_text(settings)
        (work / "ivy.xml").write_text(_module(wanted))
        ivy = next((Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar"))
        command: list[str | Path] = [
            *(
                find_java().path,
                f"-Divy.default.ivy.user.dir={cache}",
                "-jar",
                ivy,
                "-settings",
                "settings.xml",
            ),
            *("-cache", cache, "-ivy", "ivy.xml", "-types", "jar", "bundle"),
            # As a repository has them, but for the dots of a group: Ivy knows no pattern for its folders.
            *(
                "-retrieve",
                "jars/[organisation]/[module]/[revision]/[artifact]-[revision](-[classifier]).[ext]",
            ),
        ]
        # A list of arguments, with an executable that find_java has tried.
        run = subprocess.run(  # noqa: S603 - see above
            command, cwd=work, capture_output=True, text=True, timeout=_LIMIT_S, check=False, umask=OTHERS
        )
        if run.returncode != 0:
            raise BrokerError(f"Ivy cannot resolve {', '.join(wanted.coordinates)}:\n{run.stdout[-2000:]}")
        jars = sorted((work / "jars").glob("*/*/*/*.jar"))
        return {_path(jar, work / "jars"): hashlib.sha256(jar.read_bytes()).hexdigest() for jar in jars}


def _path(jar: Path, root: Path) -> str:
    group, *rest = jar.relative_to(root).parts
    return "/".join([*group.split("."), *rest])


def _module(wanted: JarSet) -> str:
    # `default->default` is what a program needs to run: no sources, no javadoc, nothing optional.
    needs = [each.split(":") for each in wanted.coordinates]
    lines = [
        '<ivy-module version="2.0"><info organisation="seqmark" module="jars"/>',
        '<configurations><conf name="default"/></configurations><dependencies>',
        *(f'<dependency org="{a}" name="{b}" rev="{c}" conf="default->default"/>' for a, b, c in needs),
        *('<exclude org="{}" module="{}"/>'.format(*each.split(":")) for each in wanted.exclude),
        "</dependencies></ivy-module>",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    for file, sets in lists().items():
        found = [{**each._asdict(), "jars": resolved(each)} for each in sets]
        file.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        click.echo(f"wrote {file}: {sum(len(each['jars']) for each in found)} jars", err=True)
