"""What ``seqmark init`` proposes for a topic, from a sample of its records."""
