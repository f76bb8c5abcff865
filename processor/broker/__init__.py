"""The embedded broker, a real Kafka for demo, tests and development, and the Java it runs on."""
