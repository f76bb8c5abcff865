"""The consumer group: membership, the slot assignor, who reads what, and how far it has come."""
