"""Kafka: the only importer of aiokafka."""
