"""Kafka: the only place that imports aiokafka."""
