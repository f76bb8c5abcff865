"""Makes files clean by Polars' streaming anti-join on the id: no commit, no window, no limit of memory."""

from __future__ import annotations

from pathlib import Path

import polars as pl  # type: ignore[import-not-found]  # it is in another environment

from benchmarks.rest.protocol import CLEANED, ID, REMEMBERED, STARTED, ProgramMarks, RestJob


def main() -> None:
    """Do the job."""
    marks, job = ProgramMarks(), RestJob.of_arguments()
    marks.say(STARTED)
    earlier = list(job.history)
    marks.say(REMEMBERED)
    for step in job.steps:
        out = Path(job.folder) / f"{step.name}.parquet"
        new = pl.scan_parquet(step.inputs).unique(ID, keep="any")
        old = pl.scan_parquet(earlier).select(ID)
        new.join(old, on=ID, how="anti").sink_parquet(out, compression="zstd", compression_level=1)
        earlier.append(str(out))
        marks.say(CLEANED, [out])


if __name__ == "__main__":
    main()
