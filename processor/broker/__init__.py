"""The embedded broker: a real Kafka for demo, tests and development."""
