"""The changelog-backed table: what a partition remembers, and how it is restored."""
