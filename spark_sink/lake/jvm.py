"""Calls the libraries of Delta and Iceberg in Spark's JVM, and translates what they raise."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # it ships none
from pyspark.errors import PySparkException

from processor.errors import StopError
from spark_sink.session import lake_package

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql import SparkSession

_CONFLICTS = ("Concurrent", "CommitFailedException", "ProtocolChanged", "MetadataChanged")
_MOST_SAID = 300


class LakeError(Exception):
    """What a library has refused.

    Args:
        said: Its words.
        conflict: Whether somebody else has changed the table.
    """

    def __init__(self, said: str, *, conflict: bool) -> None:
        super().__init__(said)
        self.conflict = conflict


class LakeJvm:
    """Spark's JVM, with the classes of one format.

    Args:
        spark: The session.
        lake: ``delta`` or ``iceberg``.
        needed: A class that is there if the jars are.

    Raises:
        StopError: The jars are not there: somebody else has started Spark.
    """

    def __init__(self, spark: SparkSession, lake: str, needed: str) -> None:
        self.root: Any = spark._jvm  # noqa: SLF001 - py4j's door to the JVM
        self.session: Any = spark._jsparkSession  # noqa: SLF001 - as above
        self.hadoop: Any = spark._jsc.hadoopConfiguration()  # noqa: SLF001 - as above
        try:
            self.root.java.lang.Class.forName(needed, False, self._loader())
        except Py4JError as error:
            raise StopError(
                f"this Spark has no {lake}: start it with --packages {lake_package(lake)}, or let seqmark do so"
            ) from error

    def _loader(self) -> Any:
        return self.root.java.lang.Thread.currentThread().getContextClassLoader()

    def java_list(self, items: Iterable[Any]) -> Any:
        """Return a list of Java's."""
        made = self.root.java.util.ArrayList()
        for each in items:
            made.add(each)
        return made

    def scala_seq(self, items: Iterable[Any]) -> Any:
        """Return a sequence of Scala's that nobody changes."""
        return self.root.scala.jdk.javaapi.CollectionConverters.asScala(self.java_list(items)).toSeq()

    def java_map(self, items: dict[str, str]) -> Any:
        """Return a map of Java's."""
        made = self.root.java.util.HashMap()
        for key, value in items.items():
            made.put(key, value)
        return made


@contextmanager
def translated() -> Iterator[None]:
    """Let what the libraries raise be a `LakeError`.

    Raises:
        LakeError: They have raised something.
    """
    try:
        yield
    except (Py4JError, PySparkException) as error:
        cause = getattr(error, "java_exception", None)
        said = str(error) if cause is None else str(cause)
        first = next((line.strip() for line in said.splitlines() if line.strip()), type(error).__name__)
        conflict = any(word in said for word in _CONFLICTS)
        raise LakeError(first[:_MOST_SAID], conflict=conflict) from error
