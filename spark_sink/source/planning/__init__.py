"""Plans what a stream's batches read: from one place to the next, and where a batch is cut by event time."""
