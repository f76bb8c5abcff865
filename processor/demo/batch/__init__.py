"""The demo at rest: three days of files with known copies, made clean by `seqmark batch`."""
