"""Where the rows of aggregates go: batches that come again, tables of others, disks that fill."""
