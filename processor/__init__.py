"""The stream processor: from a Kafka topic with duplicates to a clean one, exactly once."""
