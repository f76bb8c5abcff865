"""The consumer group: membership, the slot assignor, and who reads what."""
