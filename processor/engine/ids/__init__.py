"""Mode insert-id: the clock, blocks and pages of ids, and the two backends."""
