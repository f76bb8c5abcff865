"""Makes files at rest clean: `seqmark batch`, and readers of what it has committed."""
