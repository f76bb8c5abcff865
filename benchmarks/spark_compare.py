"""Do both ways come to the same? ``python -m benchmarks.spark_compare FOLDER`` prints the rows they share."""

from __future__ import annotations

import sys
from pathlib import Path

from spark_sink.session import spark_session


def main(folder: Path) -> None:
    """Compare row by row; exits 1 where they differ."""
    with spark_session("bench-compare") as spark:
        one, other = (spark.read.parquet(str(folder / f"{name}-rows")) for name in ("seqmark", "alone"))
        apart = one.exceptAll(other).count(), other.exceptAll(one).count()
        rows = one.count()
    if any(apart) or not rows:
        raise SystemExit(f"the outputs differ: of {rows} rows of Seqmark's way {apart[0]} are not in Spark's, "
                         f"which has {apart[1]} others")  # fmt: skip
    print(rows)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
