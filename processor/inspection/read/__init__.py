"""What ``seqmark read`` shows of a topic: its records, and sentences about receipts and quarantined ones."""
