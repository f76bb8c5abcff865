"""Kafka's protocol: requests, error codes, connections, and the parts of aiokafka that we stand on."""
