"""A pipeline without Kafka: the worker's own code over a cluster in memory."""
