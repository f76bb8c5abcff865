"""Makes files clean by DuckDB's anti-join on the id: no commit, no window."""

from __future__ import annotations

from pathlib import Path

import duckdb  # type: ignore[import-not-found]  # it is in another environment

from benchmarks.rest.protocol import CLEANED, ID, REMEMBERED, STARTED, ProgramMarks, RestJob


def main() -> None:
    """Do the job."""
    marks, job = ProgramMarks(), RestJob.of_arguments()
    folder = Path(job.folder)
    base = duckdb.connect(
        config={"threads": 2, "memory_limit": f"{job.memory_gb}GB", "temp_directory": str(folder / "spill")}
    )
    # Rows may come in any order, as from the others: keeping theirs would hold them in memory.
    base.execute("SET preserve_insertion_order = false")
    marks.say(STARTED)
    earlier = list(job.history)
    marks.say(REMEMBERED)
    for step in job.steps:
        out = folder / f"{step.name}.parquet"
        base.execute(
            f"COPY (SELECT DISTINCT ON ({ID}) new.* FROM read_parquet(?) new "  # noqa: S608 - names of ours
            f"ANTI JOIN (SELECT {ID} FROM read_parquet(?)) old USING ({ID})) "
            f"TO '{out}' (FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL 1)",
            [step.inputs, earlier],
        )
        earlier.append(str(out))
        marks.say(CLEANED, [out])


if __name__ == "__main__":
    main()
