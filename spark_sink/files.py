"""Reads and writes the driver's small files, wherever a checkpoint lies.

Through Hadoop's file systems, as Spark does: a path may be a folder of this machine or `s3a://...`. Of this
machine's files no checksums are kept beside them, as Hadoop would: they are renamed one after the other, and a
process that is killed in between leaves a file that its checksum contradicts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Files:
    """A folder, which need not exist yet. Paths below it are given with `/` between their steps."""

    def __init__(self, spark: SparkSession, folder: str) -> None:
        self._jvm: Any = spark._jvm  # noqa: SLF001 - py4j's door to the JVM
        self._gateway: Any = spark.sparkContext._gateway  # noqa: SLF001 - the same
        configuration: Any = spark._jsc.hadoopConfiguration()  # noqa: SLF001 - the same
        self.folder = folder.rstrip("/") or folder
        self._fs: Any = self._path().getFileSystem(configuration)
        self._context: Any = self._jvm.org.apache.hadoop.fs.FileContext.getFileContext(
            self._fs.getUri(), configuration
        )
        self._local = str(self._fs.getUri().getScheme()) == "file"
        if self._local:
            self._fs = self._fs.getRawFileSystem()

    def _path(self, name: str = "") -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(f"{self.folder}/{name}" if name else self.folder)

    @property
    def absolute(self) -> str:
        """The folder from its file system on, where a relative one lies below the driver's working folder."""
        return str(self._fs.makeQualified(self._path()).toString())

    def exists(self, name: str = "") -> bool:
        """Say whether there is such a file or folder."""
        found: bool = self._fs.exists(self._path(name))
        return found

    def names(self, name: str = "") -> list[str]:
        """Return the names in a folder, in order; none where it does not exist. Hidden ones are left out."""
        if not self.exists(name):
            return []
        found = [str(status.getPath().getName()) for status in self._fs.listStatus(self._path(name))]
        return sorted(each for each in found if not each.startswith("."))

    def numbers(self, name: str) -> list[int]:
        """Return the names in a folder that are whole numbers, in order: Spark's logs are kept so."""
        return sorted(int(each) for each in self.names(name) if each.isdecimal())

    def read(self, name: str) -> str | None:
        """Return a file's text; None where there is no such file."""
        if not self.exists(name):
            return None
        stream = self._fs.open(self._path(name))
        try:
            text: str = self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8")
        finally:
            stream.close()
        return text

    def write(self, name: str, text: str) -> None:
        """Write a file, whole or not at all: a crash or lost power leaves the old one or the new one."""
        hidden = self._path(_hidden(name, "new"))
        stream = self._fs.create(hidden, True)
        try:
            stream.write(bytearray(text.encode()))
            if self._local:
                stream.hsync()
        finally:
            stream.close()
        if self._local:
            # Spark's own files have one, which would contradict what is written over them.
            self.remove(_hidden(name, "crc"))
            if not self._fs.rename(hidden, self._path(name)):
                raise OSError(f"{self.folder}/{name} cannot be put in place of the file before")
            return
        rename = getattr(self._jvm.org.apache.hadoop.fs, "Options$Rename")
        how = self._gateway.new_array(rename, 1)
        how[0] = rename.OVERWRITE
        self._context.rename(hidden, self._path(name), how)

    def remove(self, name: str) -> None:
        """Remove a file, or a folder with all that is in it; nothing where it does not exist."""
        self._fs.delete(self._path(name), True)


def _hidden(name: str, ending: str) -> str:
    """Return the name of a hidden file beside another one."""
    *folders, file = name.split("/")
    return "/".join((*folders, f".{file}.{ending}"))
