"""One page for people on what became of the records: counts per hour, pictures, aggregates."""
