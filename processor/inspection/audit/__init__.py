"""What a topic holds twice, what made it so, and which rule would drop that and nothing else."""
