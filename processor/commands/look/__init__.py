"""Commands that read what a pipeline did, and change nothing."""
