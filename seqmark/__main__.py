"""Runs Seqmark's commands: the script ``seqmark``, and ``python -m seqmark``."""

from __future__ import annotations

from processor.commands.cli import main

if __name__ == "__main__":
    main(prog_name="seqmark")
